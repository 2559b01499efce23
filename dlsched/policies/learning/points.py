"""What trainings have reported over time: by row some points, ascending."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.units import COMPLETED, UnitTable

Points = dict[int, list[tuple[float, float]]]  # where, and the value there, by row


def add_point(points: Points, row: int, point: tuple[float, float], *, most: int) -> int:
    """Add a point behind the others of a row; of more than `most`, every second one is forgotten.

    Returns:
        how many the row has, 0 if the point is not new.
    """
    here = points.setdefault(row, [])
    if here and point[0] <= here[-1][0]:
        return 0
    here.append(point)
    if len(here) > most:
        del here[1::2]
    return len(here)


def curve_of(points: Points, row: int) -> tuple[Floats, Floats]:
    """The points of a row: where, and the values there."""
    found = np.array(points.get(row, []), np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def forget_ended(points: Points, table: UnitTable) -> Iterator[int]:
    """Forget rows that have ended, one by one."""
    for row in [row for row in points if table.status[row] >= COMPLETED]:
        del points[row]
        yield row
