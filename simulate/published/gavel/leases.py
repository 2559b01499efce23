"""The leases of one published round, as they were when the round began.

The steps that their jobs have done since then tell what time they received.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.whole_rounds import WholeRounds
from simulate.published.gavel.ledger import ALONE

GONE = -2  # a row that no job has

Key = tuple[int, int]  # a job and its partner, `ALONE` for none
Lease = tuple[Key, int, tuple[float, ...], tuple[float, ...]]  # key, type, done, speed


class RoundLeases(NamedTuple):
    """The leases of a round, in ascending order of their (first) jobs.

    Attributes:
        keys: the job and its partner, by lease.
        rows: the first job of each lease.
        lines: the line of each lease in the ledger.
        types: the GPU type of each lease.
        start: when the round began, seconds.
        done, speed: for each job of a lease, its steps done before the round, and its steps/s.
    """

    keys: list[Key]
    rows: Rows
    lines: Rows
    types: Rows
    start: float
    done: list[tuple[float, ...]]
    speed: list[tuple[float, ...]]

    @classmethod
    def of(cls, leases: Iterable[Lease], start: float, line: Mapping[Key, int]) -> RoundLeases:
        """Collect leases.

        A lease is (key, GPU type, steps done, steps/s); `start` is when the round began, and `line`
        the line of each key in the ledger.
        """
        ordered = sorted(leases)
        keys, types, done, speed = map(list, zip(*ordered, strict=True)) if ordered else ([],) * 4
        first = np.array([one for one, _ in keys], np.int64)
        lines = np.array([line[key] for key in keys], np.int64)
        return cls(keys, first, lines, np.array(types, np.int64), start, done, speed)

    def leases(self) -> Iterator[Lease]:
        """The leases one by one."""
        return zip(self.keys, self.types.tolist(), self.done, self.speed, strict=True)

    def renamed(self, place: Mapping[int, int], line: Mapping[Key, int]) -> RoundLeases:
        """The leases after the table was packed; those of jobs without a new row are dropped.

        `place` is the new row number by the old one, `line` the line of each new key in the ledger.
        """
        leases: list[Lease] = []
        for key, gpu_type, done, speed in self.leases():
            if key[0] in place and key[1] in place:
                new = renamed_key(key, place)
                step = 1 if new[0] == place[key[0]] else -1
                leases.append((new, gpu_type, done[::step], speed[::step]))
        return RoundLeases.of(leases, self.start, line)

    def times(self, past: WholeRounds, executed: Floats, last_end: float) -> tuple[Floats, Floats]:
        """When the jobs of each lease stopped, and the seconds it is credited with.

        `past` has the whole rounds since the last decision, as the world reports them; a job that
        is missing there is judged by its steps. `executed` is steps done so far, by row, and
        `last_end` when the previous round ended.

        Returns:
            stop times and credited seconds, both [round, lease].
        """
        place = np.searchsorted(past.rows, self.rows)
        known = np.append(past.rows, GONE)[place] == self.rows
        if known.all():
            return past.stop[:, place], past.took[:, place]
        stop = np.empty((1, len(self.rows)))
        for lease, (key, _, done, speed) in enumerate(self.leases()):
            halves = zip(key, done, speed, strict=False)
            stop[0, lease] = max(
                self.start + (executed.item(row) - before) / rate for row, before, rate in halves
            )
        took = stop - last_end
        if known.any():
            stop[:, known] = past.stop[-1, place[known]]
            took[:, known] = past.took[-1, place[known]]
        return stop, took


NO_LEASES = RoundLeases.of([], 0.0, {})


def renamed_key(key: Key, place: Mapping[int, int]) -> Key:
    """A key after the table was packed: `place` is the new row number by the old one."""
    one, other = place[key[0]], place[key[1]]
    return (one, other) if other == ALONE or one < other else (other, one)
