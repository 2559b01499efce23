"""How far jobs are, and how their losses have fallen, from what they report.

The paper wants the reduction of the loss of every iteration. Reports come less often: the last
reduction is the mean of the iterations between the last two reports, and all of them together are
the first reported loss less the last.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, numbers
from dlsched.core.memory import Remembering, lists_by_row
from dlsched.core.units import COMPLETED, Units, UnitTable
from dlsched.policies.scheduling.mlfs.priorities import part_learnt

DONE = ("steps_done", "iterations", "epoch")  # columns of the iterations done, the first known
Point = tuple[float, float]  # iterations done, and the loss there


def iterations_done(units: Units) -> Floats:
    """Iterations that each unit has done, as reported, else by its work; NaN where unknown."""
    found = np.full(len(units), np.nan)
    for name in DONE:
        if name in units.table.extra:
            said = numbers(units.extra(name))
            found = np.where(np.isnan(found), said, found)
    if "total_iterations" in units.table.extra:
        part = units.executed / units.predicted_work
        found = np.where(np.isnan(found), numbers(units.extra("total_iterations")) * part, found)
    return found


class Losses(Remembering):
    """The first report of each job, and its last two."""

    _seen: dict[int, list[Point]] = lists_by_row(key="losses")

    def see(self, units: Units, done: Floats) -> None:
        """Note what has been reported since; `done` are the iterations of each unit."""
        if "loss" not in units.table.extra:
            return
        losses = numbers(units.extra("loss"))
        for place in np.flatnonzero(np.isfinite(losses) & np.isfinite(done)).tolist():
            point = (done.item(place), losses.item(place))
            points = self._seen.setdefault(units.rows.item(place), [])
            if not points or point[0] > points[-1][0]:
                points[1:] = [*points[1:][-1:], point] if points else [point]

    def forget(self, table: UnitTable) -> None:
        """Forget the jobs that have ended."""
        for row in [row for row in self._seen if table.status[row] >= COMPLETED]:
            del self._seen[row]

    def learnt(self, row: int) -> float:
        """The last iteration's reduction over all reductions; 1 before there are any."""
        points = self._seen.get(row, ())
        if len(points) < 2:
            return 1.0
        (before, old), (at, new) = points[-2:]
        last = (old - new) / (at - before)
        return part_learnt([points[0][1] - new - last, last])
