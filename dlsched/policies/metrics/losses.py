"""Losses and accuracies that trainings report in a replay: curves of each job, from the trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dlsched.core.arrays import numbers
from dlsched.core.context import RoundContext
from dlsched.core.job_metrics import Metric, MetricBoard
from dlsched.core.options import option
from dlsched.core.stage import MetricsPart
from dlsched.core.units import Units

CURVE = ("accuracy_best", "accuracy_gap", "accuracy_speed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOptions:
    """The noise of reported losses."""

    sigma: float = option(
        0.0, "standard deviation of the logarithm of a factor on each loss", low=0.0
    )
    seed: int = option(0, "seed of the factors; by default the run's seed", low=0)


class Losses(MetricsPart[LossOptions]):
    """A running job reports the epochs it has done and its loss, 1 / (b0·epoch + b1) + b2.

    Columns of the trace: `epoch_s` (seconds of work an epoch), `loss_falls` (b0), `loss_begins`
    (b1), `loss_floor` (b2). A job that has `accuracy_best` (a), `accuracy_gap` (b) and
    `accuracy_speed` (c) also reports its accuracy, a − b · (1 + epoch)^−c.
    """

    name = "losses"
    summary = "epochs done and the loss, from the trace's columns epoch_s and loss_*"
    needs = frozenset({"epoch_s", "loss_falls", "loss_begins", "loss_floor"})
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(key="epoch", merge="mean"),
        Metric(key="loss", merge="mean"),
        Metric(key="accuracy", merge="mean"),
    )

    def report(self, running: Units, board: MetricBoard, ctx: RoundContext) -> None:
        """Report the progress and loss of each running job."""
        epochs = running.executed / running.extra("epoch_s")
        below = running.extra("loss_falls") * epochs + running.extra("loss_begins")
        losses = 1.0 / below + running.extra("loss_floor")
        if self.options.sigma:
            rng = np.random.default_rng((self.options.seed, ctx.number))
            losses = losses * np.exp(self.options.sigma * rng.standard_normal(len(losses)))
        for row, epoch, loss in zip(
            running.rows.tolist(), epochs.tolist(), losses.tolist(), strict=True
        ):
            board.push(row, "epoch", epoch)
            board.push(row, "loss", loss)
        if running.table.extra.keys() >= set(CURVE):
            best, gap, speed = (numbers(running.extra(name)) for name in CURVE)
            accuracies = best - gap * (1.0 + epochs) ** -speed
            known = ~np.isnan(accuracies)
            for row, accuracy in zip(
                running.rows[known].tolist(), accuracies[known].tolist(), strict=True
            ):
                board.push(row, "accuracy", accuracy)
