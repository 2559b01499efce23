"""When units become visible: after their submit, the units they wait for, and others of an array.

An array may limit how many of its units are there at once: the next one comes when one has ended.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.semantics import Semantics


class Arrivals:
    """The units that are still to come.

    Attributes:
        visible: when each row of the table becomes visible, in seconds.
        next_time: when the next unit becomes visible; inf when none will.
        last_time: when the last of the rows becomes visible; -inf where there are none.
        rows: in the order in which they become visible.
        times: when each of `rows` becomes visible, in seconds, and behind them inf.
        place: how many of `rows` have become visible.
    """

    def __init__(
        self,
        rows: Rows,
        visible: Floats,
        parents: Mapping[int, tuple[int, ...]],
        semantics: Semantics,
        array_limits: Mapping[int, tuple[int, int]] | None = None,
        there: Iterable[int] = (),
    ) -> None:
        """Begin before the first arrival.

        Args:
            rows: in the order in which they become visible.
            visible: when each row of the table becomes visible, in seconds, before the semantics
                moves it to the grid.
            parents: the units that must end before a row becomes visible.
            semantics: says when an arrival is seen.
            array_limits: the number of a row's array, and how many of it may be there at once.
            there: rows of arrays that are visible already and have not ended.
        """
        self._semantics = semantics
        self.visible = semantics.seen_at(visible) if len(rows) else visible
        self.last_time = float(self.visible[rows[-1]]) if len(rows) else -math.inf
        self.rows = rows.data
        self.times = np.append(self.visible[rows], math.inf).data
        self.place = 0
        self._freed: list[tuple[float, int]] = []  # rows that others have kept waiting, by time
        self._parents_left = {row: len(each) for row, each in parents.items()}
        self._children: dict[int, list[int]] = {}
        for row, each in parents.items():
            for parent in each:
                self._children.setdefault(parent, []).append(row)
        self._array_of = {row: array for row, (array, _) in (array_limits or {}).items()}
        self._room = dict((array_limits or {}).values())  # how many more of each array may come
        self._in_turn = set(there)  # rows for which their array has room
        for row in self._in_turn:
            self._room[self._array_of[row]] -= 1
        self._queues: dict[int, deque[int]] = {array: deque() for array in self._room}
        self.next_time = self._next_time()

    def until(self, now: float) -> list[int]:
        """The rows that have become visible by now, in order; each is returned once."""
        first, times = self.place, self.times
        while times[self.place] <= now:
            self.place += 1
        arrived = self.rows[first : self.place].tolist()
        if self._parents_left or self._array_of:
            arrived = [row for row in arrived if not self._parents_left.get(row)]
            while self._freed and self._freed[0][0] <= now:
                arrived.append(heapq.heappop(self._freed)[1])
            arrived = list(dict.fromkeys(arrived))  # both at once, if the parents ended before
            arrived = [row for row in arrived if self._has_room(row)]
        self.next_time = self._next_time()
        return arrived

    def skip_to(self, place: int) -> None:
        """The rows up to a place have become visible; none of them waits for others."""
        self.place, self.next_time = place, self.times[place]

    def ended(self, row: int, now: float) -> None:
        """A unit has ended: its children may come, when the last of their parents has."""
        for child in self._children.get(row, ()):
            self._parents_left[child] -= 1
            if not self._parents_left[child]:
                self._free(child, now)
        self.gone(row, now)

    def gone(self, row: int, now: float) -> None:
        """A unit has ended or was refused: the next one of its array may come."""
        if row not in self._in_turn:
            return
        self._in_turn.remove(row)
        array = self._array_of[row]
        if self._queues[array]:
            self._in_turn.add(following := self._queues[array].popleft())
            self._free(following, now)
        else:
            self._room[array] += 1

    def _free(self, row: int, now: float) -> None:
        """Nothing keeps a row from coming any more, but its own time."""
        seen = float(self._semantics.seen_at(np.array([now]))[0])
        heapq.heappush(self._freed, (max(float(self.visible[row]), seen), row))
        self.next_time = self._next_time()

    def _has_room(self, row: int) -> bool:
        """May a row come, by its array's limit? If not, it comes after one that is there."""
        array = self._array_of.get(row)
        if array is None or row in self._in_turn:
            return True
        if self._room[array] <= 0:
            self._queues[array].append(row)
            return False
        self._room[array] -= 1
        self._in_turn.add(row)
        return True

    def _next_time(self) -> float:
        next_visible: float = self.times[self.place]
        return min(next_visible, self._freed[0][0]) if self._freed else next_visible
