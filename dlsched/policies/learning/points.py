"""What trainings have reported over time: of each job some points, ascending."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.units import COMPLETED, UnitTable

Stored = list[list[float]]


class Points:
    """Points of a curve by row; of more than `most`, every second one is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[int, list[tuple[float, float]]] = {}

    def add(self, row: int, at: float, value: float) -> int:
        """Add a point behind the others; returns how many there are, 0 if it is not new."""
        points = self._of.setdefault(row, [])
        if points and at <= points[-1][0]:
            return 0
        points.append((at, value))
        if len(points) > self._most:
            del points[1::2]
        return len(points)

    def of(self, row: int) -> tuple[Floats, Floats]:
        """The points of a row: where, and the values there."""
        found = np.array(self._of.get(row, []), np.float64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def forget_ended(self, table: UnitTable) -> Iterator[int]:
        """Forget rows that have ended, one by one."""
        for row in [row for row in self._of if table.status[row] >= COMPLETED]:
            del self._of[row]
            yield row

    def to_list(self) -> Stored:
        """Rows with their points, as plain values."""
        return [[row, *point] for row, seen in self._of.items() for point in seen]

    def load(self, stored: Stored) -> None:
        """Go on from a `to_list`."""
        self._of = {}
        for row, at, value in stored:
            self._of.setdefault(int(row), []).append((float(at), float(value)))

    def renumber(self, old: Rows) -> None:
        """Follow a table that was packed."""
        place = places(old)
        self._of = {place[row]: seen for row, seen in self._of.items() if row in place}


def places(old: Rows) -> dict[int, int]:
    """The new row of each old one that is still there; `old` has the old row of each new one."""
    return {before: row for row, before in enumerate(old.tolist()) if before >= 0}
