"""Metrics in a replay: none, or from the trace's count of iterations."""

from __future__ import annotations

from typing import ClassVar

from dlsched.core.context import RoundContext
from dlsched.core.job_metrics import Metric, MetricBoard
from dlsched.core.memory import by_row
from dlsched.core.options import NoOptions
from dlsched.core.stage import MetricsPart
from dlsched.core.units import Units


class NoMetrics(MetricsPart[NoOptions]):
    """Jobs report nothing beyond what the world itself counts."""

    name = "none"
    summary = "jobs report nothing of their own (default)"

    def report(self, running: Units, board: MetricBoard, ctx: RoundContext) -> None:
        """Report nothing."""


class Iterations(MetricsPart[NoOptions]):
    """Jobs report the iterations they have done and the seconds that one takes.

    A job of the column `total_iterations` does them evenly over its duration. Every GPU's rank
    pushes its share of the iterations (merged by sum) and its iteration time (merged by mean).
    """

    name = "iterations"
    summary = "iterations done (sum) and seconds per iteration (mean), from total_iterations"
    needs = frozenset({"total_iterations", "predicted_work"})
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(key="iterations", merge="sum", default=0.0),
        Metric(key="iteration_time", merge="mean"),
    )

    _reported: dict[int, float] = by_row(float)  # iterations reported so far

    def report(self, running: Units, board: MetricBoard, ctx: RoundContext) -> None:
        """Report the iterations of each running job since its last report."""
        total = running.extra("total_iterations")
        work = running.predicted_work
        done = running.executed / work * total
        for k, row in enumerate(running.rows.tolist()):
            ranks = int(running.gpus_now[k])
            fresh = float(done[k]) - self._reported.get(row, 0.0)
            self._reported[row] = float(done[k])
            for _ in range(ranks):
                board.push(row, "iterations", fresh / ranks)
                board.push(row, "iteration_time", float(work[k] / total[k]))
