"""The estimator `loss-curve`: the remaining time of a training, from the losses that it reports.

The prediction for a new job is the run time of similar jobs (`history`). After losses at three
different epochs a curve is fitted to them, and the job is predicted to end in the epoch in which it
converges; see `convergence`. If the curve does not converge within `most` epochs, `else_epochs`
more are predicted. A user's own estimate has precedence over both.

Jobs report `loss` and `epoch` (`--metrics losses` in a replay), or `steps_done` (a live cluster).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.context import RoundContext
from dlsched.core.memory import by_row, kept, lists_by_row
from dlsched.core.options import option
from dlsched.core.stage import Estimator
from dlsched.core.units import Units
from dlsched.policies.estimators.convergence import LEAST_POINTS, converges_at, fit_losses
from dlsched.policies.estimators.estimators import History, HistoryOptions
from dlsched.policies.learning.points import Points, add_point, curve_of, forget_ended

MOST_POINTS = 100  # of a job; of more points, every second one is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurveOptions:
    """When a training has converged."""

    threshold: float = option(
        0.05, "a job has converged when its loss falls by at most this in `window` epochs", low=0.0
    )
    window: int = option(10, "number of last epochs that are compared", low=2)
    most: int = option(100, "epochs within which a job is expected to converge", low=1)
    else_epochs: float = option(20.0, "remaining epochs of a job that does not", low=0.0)
    epoch_steps: float = option(
        1000.0, "steps of an epoch, for jobs that report only steps", low=1.0
    )
    default_s: float = option(3600.0, "predicted seconds before any job has finished", low=1.0)


class LossCurves(Estimator[LossCurveOptions]):
    """History at first, then the job's own losses."""

    name = "loss-curve"
    summary = "a curve fitted to the losses that a job reports; before that, history"
    revises = True

    _points: Points = lists_by_row()
    _epochs: dict[int, float] = by_row(float)  # predicted total
    _history: History = kept(None)

    def __init__(self, options: LossCurveOptions) -> None:
        super().__init__(options)
        self._history = History(HistoryOptions(default_s=options.default_s))

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The run times of similar jobs."""
        return self._history.predict(units, true_work, ctx)

    def revise(self, units: Units, ctx: RoundContext) -> Floats:
        """Fit the losses reported since, and return new predictions of the total duration."""
        work = np.full(len(units), np.nan)
        reported = ctx.table.extra
        if "loss" not in reported or not {"epoch", "steps_done"} & reported.keys():
            return work
        if "epoch" in reported:
            epochs = units.extra("epoch")
        else:
            epochs = units.extra("steps_done") / self.options.epoch_steps
        losses, done = units.extra("loss"), units.executed
        said = ctx.table.has("expected")[units.rows]
        for place, row in enumerate(units.rows.tolist()):
            epoch = float(epochs[place])
            if not epoch > 0 or said[place]:
                continue
            point = epoch, float(losses[place])
            if add_point(self._points, row, point, most=MOST_POINTS) >= LEAST_POINTS:
                self._refit(row)
            if row in self._epochs:
                work[place] = done[place] * max(self._epochs[row] / epoch, 1.0)
        for row in forget_ended(self._points, ctx.table):
            self._epochs.pop(row, None)
        return work

    def _refit(self, row: int) -> None:
        options = self.options
        epochs, losses = curve_of(self._points, row)
        curve = fit_losses(epochs, losses)
        if curve is None:
            return
        now = float(epochs[-1])
        at = converges_at(
            curve, int(now), window=options.window, threshold=options.threshold, most=options.most
        )
        self._epochs[row] = float(at) if at >= 0 else now + options.else_epochs
