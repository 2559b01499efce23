"""The accounts of apps: their ideal finish times, and the number of apps they competed with.

    T_id = T_cluster · N_avg
    T_cluster = serial work in all / min(GPUs it can use, GPUs there are)

N_avg is the mean number of active apps over the app's life, at least 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlsched.core.memory import Remembering, by_row, kept


@dataclass(slots=True, kw_only=True)
class Account:
    """The account of one app.

    Attributes:
        start: seconds of its first submit.
        serial: seconds of work of all its jobs so far, on one GPU.
        widest: GPUs that all its jobs could use at once.
        crowd: seconds times active apps, summed while it was active.
        alive: seconds for which it was active.
    """

    start: float
    serial: float = 0.0
    widest: int = 0
    crowd: float = 0.0
    alive: float = 0.0

    def competed_with(self, now: int) -> float:
        """N_avg, the mean number of active apps; `now` where no time has passed yet."""
        return max(self.crowd / self.alive if self.alive > 0 else float(now), 1.0)

    def ideal(self, gpus: int, apps: int) -> float:
        """T_id in seconds, in a cluster of so many GPUs with so many active apps."""
        alone = self.serial / max(min(self.widest, gpus), 1)
        return max(alone * self.competed_with(apps), 1e-9)


class Accounts(Remembering):
    """The accounts of all active apps.

    Attributes:
        of: the account of each app.
        app: the app of each row that was entered.
    """

    of: dict[str, Account] = kept(
        dict,
        lambda stored: {name: Account(**values) for name, values in stored.items()},
        store=lambda of: {
            name: {each: getattr(account, each) for each in Account.__slots__}
            for name, account in of.items()
        },
    )
    app: dict[int, str] = by_row(str)
    _updated_at: float = kept(0.0, key="looked_at")
    _numbered: int = kept(0)

    def pass_time(self, now: float) -> None:
        """Enter the time since the last call, in which all active apps competed."""
        elapsed, self._updated_at = now - self._updated_at, now
        for account in self.of.values():
            account.crowd += elapsed * len(self.of)
            account.alive += elapsed

    def enter(self, row: int, group: str, start: float, serial: float, gang: int) -> None:
        """Enter a new job; without a group it is an app of its own.

        Args:
            row: the job.
            group: its job group, or "".
            start: seconds of its submission.
            serial: seconds of its work on one GPU.
            gang: GPUs that it can use at once.
        """
        if not group:
            self._numbered += 1
        name = f"group {group}" if group else f"job {self._numbered}"
        account = self.of.setdefault(name, Account(start=start))
        account.start = min(account.start, start)
        account.serial += serial
        account.widest += gang
        self.app[row] = name

    def keep(self, rows: Mapping[int, Any]) -> None:
        """Remove jobs that are not among these, and apps without jobs."""
        self.app = {row: name for row, name in self.app.items() if row in rows}
        active = set(self.app.values())
        self.of = {name: account for name, account in self.of.items() if name in active}
