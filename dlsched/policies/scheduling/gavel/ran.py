"""The leases of a round of the published rounds, as they were when it began.

What their jobs have done since says what time they received.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.whole_rounds import WholeRounds
from dlsched.policies.scheduling.gavel.entries import ALONE

__all__ = ["NOTHING", "Key", "Ran", "renamed_key"]

GONE = -2  # no job's row

Key = tuple[int, int]  # a job and its partner, `ALONE` for none
Part = tuple[Key, int, tuple[float, ...], tuple[float, ...]]  # see `Ran`


class Ran(NamedTuple):
    """The leases of a round, by their first jobs, which ascend.

    Attributes:
        keys, rows: the jobs; the first of each.
        lines: in the books.
        kinds: types.
        start: when the round began.
        done, speed: per half, the steps done before, and steps/s.
    """

    keys: list[Key]
    rows: Rows
    lines: Rows
    kinds: Rows
    start: float
    done: list[tuple[float, ...]]
    speed: list[tuple[float, ...]]

    @classmethod
    def of(cls, leases: Iterable[Part], start: float, line: Mapping[Key, int]) -> Ran:
        """From one lease after the other."""
        parts = sorted(leases)
        keys, kinds, done, speed = map(list, zip(*parts, strict=True)) if parts else ([],) * 4
        first = np.array([one for one, _ in keys], np.int64)
        lines = np.array([line[key] for key in keys], np.int64)
        return cls(keys, first, lines, np.array(kinds, np.int64), start, done, speed)

    def leases(self) -> Iterator[Part]:
        """One after the other."""
        return zip(self.keys, self.kinds.tolist(), self.done, self.speed, strict=True)

    def renamed(self, place: Mapping[int, int], line: Mapping[Key, int]) -> Ran:
        """Rows have other numbers now, by their old ones; whoever has none has ended."""
        parts: list[Part] = []
        for key, kind, done, speed in self.leases():
            if key[0] in place and key[1] in place:
                new = renamed_key(key, place)
                step = 1 if new[0] == place[key[0]] else -1
                parts.append((new, kind, done[::step], speed[::step]))
        return Ran.of(parts, self.start, line)

    def times(self, past: WholeRounds, executed: Floats, last_end: float) -> tuple[Floats, Floats]:
        """When each lease's jobs stopped, and what time it is credited with, [round, lease].

        Args:
            past: what the world says; who is not in it is judged by what it has done.
            executed: steps done so far, by job.
            last_end: when the round before ended.
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


NOTHING = Ran.of([], 0.0, {})


def renamed_key(key: Key, place: Mapping[int, int]) -> Key:
    """A key whose rows have other numbers now, by their old ones."""
    one, other = place[key[0]], place[key[1]]
    return (one, other) if other == ALONE or one < other else (other, one)
