"""Packing that is tried and measured: two jobs on the same GPUs as long as both do more so.

A *packed* job runs on the GPUs of its *host*. For a window both are measured, each
against its own speed alone; the pack is kept only while these parts add up to more than 1, which is
what taking turns would give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlsched.core.sums import ordered_sum


@dataclass(slots=True)
class Pack:
    """A packed job and its host.

    Attributes:
        host: whose GPUs they share.
        since: work of both and seconds on GPUs of the packed job, when the window began; None
            until both work.
        is_kept: a window has shown that it pays.
    """

    host: int
    since: tuple[float, float, float] | None = None
    is_kept: bool = False


class Packs:
    """All packs, what jobs do alone, and what was tried in vain.

    Attributes:
        of: by packed job.
    """

    def __init__(self) -> None:
        self.of: dict[int, Pack] = {}
        self._alone: dict[int, float] = {}  # work per second on GPUs of its own
        self._last: dict[int, tuple[float, float]] = {}  # work and seconds on GPUs, as last seen
        self._failed: dict[int, tuple[float, tuple[int, ...]]] = {}  # since when, and which hosts

    def packed_on(self, host: int) -> list[int]:
        """The jobs that are packed on the GPUs of a job."""
        return [packed for packed, pack in self.of.items() if pack.host == host]

    def begin(self, packed: int, host: int) -> None:
        """Try a pack."""
        self.of[packed] = Pack(host)

    def end(self, packed: int, now: float, *, failed: bool) -> None:
        """A pack is over; two with which it did not pay are not tried again for a while."""
        pack = self.of.pop(packed)
        if failed:
            for one, other in ((packed, pack.host), (pack.host, packed)):
                _, tried = self._failed.get(one, (now, ()))
                self._failed[one] = (now, (*tried, other))

    def forget(self, job: int) -> None:
        """A job has ended."""
        for kept in (self.of, self._alone, self._last, self._failed):
            kept.pop(job, None)

    def failed_with(self, packed: int, now: float, retry_s: float) -> tuple[int, ...]:
        """The hosts that were tried in vain, in the last `retry_s` seconds."""
        since, hosts = self._failed.get(packed, (now, ()))
        if now - since >= retry_s:
            self._failed.pop(packed, None)
            return ()
        return hosts

    def see_alone(self, job: int, work: float, held_s: float, window_s: float) -> None:
        """A job runs on GPUs of its own: after a window its speed there is known.

        Reports come now and then, so a shorter time says little. The time until the first work is
        that of its start.
        """
        before = self._last.get(job)
        if before is None or not before[0] > 0:
            self._last[job] = (work, held_s)
        elif held_s - before[1] >= window_s * (1 - 1e-9):
            self._alone[job] = (work - before[0]) / (held_s - before[1])
            self._last[job] = (work, held_s)

    def see_packed(self, job: int) -> None:
        """A job does not run alone at present."""
        self._last.pop(job, None)

    def alone(self, job: int, usual: float) -> float:
        """A job's work per second alone, as measured; `usual` where it was not."""
        return self._alone.get(job, usual)

    def gain(
        self, packed: int, work: Mapping[int, float], held_s: float, window_s: float, usual: float
    ) -> float | None:
        """The sum of normalised rates over a window; None while the window is not over.

        Args:
            packed: the packed job.
            work: of the packed job and its host by now.
            held_s: seconds that the packed job has been on GPUs.
            window_s: seconds of a window.
            usual: work per second alone of a job that never was; NaN where that is not known.
        """
        pack = self.of[packed]
        now = (work[packed], work[pack.host], held_s)
        if pack.since is None:
            pack.since = now
            return None
        passed = held_s - pack.since[2]
        if passed < window_s * (1 - 1e-9):
            return None
        rates = ((now[0] - pack.since[0]) / passed, (now[1] - pack.since[1]) / passed)
        pack.since = now
        alone = (self.alone(packed, usual), self.alone(pack.host, usual))
        if not all(each > 0 for each in alone):
            return 0.0  # nothing to compare with: it does not count as a gain
        return ordered_sum(rate / each for rate, each in zip(rates, alone, strict=True))

    # -- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Packs and measurements, as plain values."""
        return {
            "packs": [
                [packed, pack.host, None if pack.since is None else list(pack.since), pack.is_kept]
                for packed, pack in self.of.items()
            ],
            "alone": sorted(self._alone.items()),
            "last": [[job, *each] for job, each in sorted(self._last.items())],
            "failed": [[job, at, list(hosts)] for job, (at, hosts) in sorted(self._failed.items())],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.of = {
            int(packed): Pack(int(host), None if since is None else tuple(since), bool(kept))
            for packed, host, since, kept in state["packs"]
        }
        self._alone = {int(job): float(rate) for job, rate in state["alone"]}
        self._last = {int(job): (float(work), float(held)) for job, work, held in state["last"]}
        self._failed = {
            int(job): (float(at), tuple(map(int, hosts))) for job, at, hosts in state["failed"]
        }

    def rename(self, place: Mapping[int, int]) -> None:
        """Jobs have other numbers from now on; those without one are gone."""
        packs = {place[g]: p for g, p in self.of.items() if g in place and p.host in place}
        self.of = {g: Pack(place[p.host], p.since, p.is_kept) for g, p in packs.items()}
        self._alone = {place[j]: rate for j, rate in self._alone.items() if j in place}
        self._last = {place[j]: each for j, each in self._last.items() if j in place}
        self._failed = {
            place[j]: (at, tuple(place[h] for h in hosts if h in place))
            for j, (at, hosts) in self._failed.items()
            if j in place
        }
