"""Columns that grow: the live jobs, one row each, packed when enough of them have ended.

Rows are in the order of job ids. Invariant: `row_of` names exactly the rows in use, and packing
keeps their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools
from dlsched.core.cluster.site_rules import WEEK_S
from dlsched.core.service_clock import ClockColumns, ServiceClock
from dlsched.core.sharing.decayed_usage import DecayedUsage
from dlsched.core.units import UNIT_COLUMNS

# a job's phase; a suspended job keeps its GPUs, a job that is away does not
PENDING, HOLDING, SUSPENDED, ENDED, AWAY = 0, 1, 2, 3, 4
# how an ended job ended
COMPLETED, FAILED = 1, 2
# whether a run has been asked to stop: no; yes, its GPUs go to others; yes, as it ends
STAYS, GIVES_WAY, IS_ENDING = 0, 1, 2

_F, _I, _B, _S = np.float64, np.int64, np.bool_, np.int8
# what policies see as it is; the rest is made for each snapshot, or is of replays alone
SEEN_BY_POLICIES = tuple(
    name
    for name in UNIT_COLUMNS
    if name
    not in {"group", "predicted_work", "status", "admitted_at", "rate", "gpu_limit", "gpu_memory"}
)
MEASURED = ("gpu_util", "gpu_memory")  # of its GPUs, by the nodes' drivers
_KINDS: dict[str, tuple[type[np.generic], float | int | bool]] = {
    "job": (_I, 0),
    **{name: UNIT_COLUMNS[name] for name in SEEN_BY_POLICIES},
    # what the live world needs besides
    "expected": (_F, np.nan),  # seconds that its user expects it to run
    "steps_done": (_F, np.nan),  # as its run has reported
    "loss": (_F, np.nan),  # likewise
    "accuracy": (_F, np.nan),  # likewise; unknown after a restart of the daemon until it reports
    "gpu_util": (_F, np.nan),  # per cent of the time in which its GPUs computed, while alone there
    "gpu_util_s": (_F, 0.0),  # seconds over which that was measured
    "gpu_memory": (_F, np.nan),  # most GiB that were in use on one of its GPUs, likewise
    "phase": (_S, PENDING),
    "outcome": (_S, 0),
    "leaving": (_S, STAYS),
    "runs": (_I, 0),  # the highest run number given
    "held": (_B, False),
    "begin_at": (_F, -np.inf),
    "not_before": (_F, -np.inf),  # after a start that failed
    "failed_starts": (_I, 0),
    "bytes": (_I, 0),  # of its script, arguments and environment; its part of what an array shares
    "orphan": (_B, False),  # a run of it that the database does not know is alive
}


class JobColumns:
    """One array a column, each as long as there is room for.

    Attributes:
        count: rows in use.
        row_of: the row of each job.
        usage: what the owners of jobs have used, in this term and before.
    """

    def __init__(self, room: int = 64) -> None:
        self.count = 0
        self.usage = DecayedUsage(WEEK_S)
        self.row_of: dict[int, int] = {}
        self._columns: dict[str, NDArray[Any]] = {
            name: np.full(room, fresh, kind) for name, (kind, fresh) in _KINDS.items()
        }

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column, of the rows in use; writing to it changes the row."""
        return self._columns[name][: self.count]

    @property
    def clock(self) -> ServiceClock:
        """The jobs' service clocks, until a row is added or the rows are packed."""
        return ServiceClock(cast(ClockColumns, SimpleNamespace(**self._columns)), self.usage)

    def get(self, name: str, row: int) -> Any:
        """One value, as a plain one."""
        return self._columns[name].item(row)

    def set(self, row: int | slice, **values: Any) -> None:
        """Set values of one row, or of neighbouring ones."""
        for name, value in values.items():
            self._columns[name][row] = value

    def append(
        self,
        jobs: Sequence[int],
        rows: Sequence[Mapping[str, Any]],
        counts: Sequence[int],
        **values: Any,
    ) -> None:
        """Add rows; ids only grow, so they are the last ones.

        Args:
            jobs: their ids.
            rows: values, the same names in each.
            counts: for how many neighbouring jobs each of `rows` stands.
            values: the same for all.
        """
        first, end = self.count, self.count + len(jobs)
        if end > len(self._columns["job"]):
            for name, column in self._columns.items():
                kind, fresh = _KINDS[name]
                self._columns[name] = np.concatenate([column, np.full(end + 64, fresh, kind)])
        self.count = end
        self.row_of.update(zip(jobs, range(first, end), strict=True))
        self.set(slice(first, end), job=jobs, **values)
        for name in rows[0] if rows else ():
            self._columns[name][first:end] = np.repeat([row[name] for row in rows], counts)

    def sort(self) -> None:
        """Put the rows in the order of their jobs again, after an earlier job came back."""
        order = np.argsort(self["job"], kind="stable")
        for column in self._columns.values():
            column[: self.count] = column[: self.count][order]
        self.row_of = {job: row for row, job in enumerate(self["job"].tolist())}

    def pack(self, keep: Bools) -> list[int]:
        """Drop rows; returns the jobs dropped."""
        gone: list[int] = self["job"][~keep].tolist()
        kept = np.flatnonzero(keep)
        for name, column in self._columns.items():
            kind, fresh = _KINDS[name]
            packed = np.full(max(64, len(kept) + len(kept) // 2), fresh, kind)
            packed[: len(kept)] = column[kept]
            self._columns[name] = packed
        self.count = len(kept)
        self.row_of = {job: row for row, job in enumerate(self["job"].tolist())}
        return gone
