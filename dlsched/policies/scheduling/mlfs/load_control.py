"""MLF-C: trainings end when they are accurate enough, sooner while GPUs are short.

A job says when its training ends (`stop_when`) and when it may end while the cluster is overloaded
(`stop_under_load`). Of all that is allowed at the moment, what comes first counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dlsched.core.arrays import Floats, Rows, numbers
from dlsched.core.memory import Remembering, lists_by_row
from dlsched.core.training_ends import allowed_ends, may_end_early
from dlsched.core.units import Units, UnitTable
from dlsched.policies.learning.points import Points, add_point, curve_of, forget_ended
from dlsched.policies.scheduling.mlfs.accuracy_curve import LEAST_POINTS, fit_accuracies
from dlsched.policies.scheduling.mlfs.losses import iterations_done
from dlsched.policies.scheduling.mlfs.options import MlfsOptions

MOST_POINTS = 100


class LoadControl(Remembering):
    """What trainings have reported of their accuracy, and which of them may end."""

    _points: Points = lists_by_row(key="accuracies")

    def __init__(self, options: MlfsOptions) -> None:
        self._options = options

    def applies(self, table: UnitTable, rows: Rows) -> bool:
        """May any of these rows be ended, once it reports?"""
        return self._options.load_control and may_end_early(table, rows)

    def ended(self, running: Units, *, overloaded: bool) -> Iterator[tuple[int, str]]:
        """The rows whose training ends now, and why; reports since are noted."""
        table = running.table
        for _ in forget_ended(self._points, table):
            pass
        if "accuracy" not in table.extra or not self.applies(table, running.rows):
            return
        accuracies, done = numbers(running.extra("accuracy")), iterations_done(running)
        total = _iterations_in_all(running, done)
        for place in np.flatnonzero(~np.isnan(accuracies)).tolist():
            row, accuracy = running.rows.item(place), accuracies.item(place)
            if done[place] >= 0:
                point = done.item(place) + 1.0, accuracy
                add_point(self._points, row, point, most=MOST_POINTS)
            allowed = allowed_ends(table, row, overloaded=overloaded)
            why = ""
            if "target" in allowed:
                why = _is_enough(accuracy, table.target_accuracy.item(row))
            if not why and "best" in allowed:
                why = self._gains_no_more(row, total.item(place), table.target_accuracy.item(row))
            if why:
                yield row, why

    def _gains_no_more(self, row: int, total: float, target: float) -> str:
        """Why a training need not go on; empty: it may still gain, or too little is known."""
        options = self._options
        iterations, accuracies = curve_of(self._points, row)
        if len(iterations) < max(options.points, LEAST_POINTS):
            return ""
        curve = fit_accuracies(iterations, accuracies)
        if curve is None:
            return ""
        now, last = float(iterations[-1]), max(total, float(iterations[-1]))
        best = curve.at(last)
        gain = best - curve.at(now)
        if gain < options.gain * abs(best):
            return f"accuracy {accuracies[-1]:.4g}, and {gain:.2g} more are all that it would gain"
        if options.confidence < 1 and curve.reaches(target, last) < 1 - options.confidence:
            return f"accuracy {accuracies[-1]:.4g}; {best:.4g} is likely its best, not {target:.4g}"
        return ""


def _is_enough(accuracy: float, target: float) -> str:
    return f"accuracy {accuracy:.4g} of {target:.4g}" if accuracy >= target else ""


def _iterations_in_all(units: Units, done: Floats) -> Floats:
    """Iterations that each training takes, as said or as its work predicts; infinite: unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        total = done * units.predicted_work / units.executed
    if "total_iterations" in units.table.extra:
        said = numbers(units.extra("total_iterations"))
        total = np.where(said > 0, said, total)
    return np.where(np.isfinite(total), total + 1.0, np.inf)
