"""Pictures of what preemption costs: restarts, migrations, resizes, and GPU time lost to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from simulate.report.compare import bar_axis, bars_of
from simulate.report.drawing.charts import Bars, Figure
from simulate.report.drawing.scale import Quantity
from simulate.report.intervals import estimate
from simulate.report.metrics import lost_share
from simulate.report.study import Group
from simulate.report.wording import number_text, share_text
from simulate.results.tables import JobOutcomes, ReplayResult


def loss_figure(groups: Sequence[Group]) -> Figure:
    """Restarts per job and lost GPU time, per group with intervals over seeds."""
    title = "Restarts and lost work"
    lost = "GPU time lost to restarts, share of GPU time held"
    every = (
        bars(groups, "Restarts per started job", restarts_per_job),
        bars(groups, lost, lost_share, "share"),
        bars(groups, "Migrations per started job", per_started(lambda j: j.migrations)),
        bars(groups, "Resizes per started job", per_started(lambda j: j.resizes)),
    )
    panels = [panel for panel in every if panel is not None]
    if not panels:
        return Figure(
            key="losses",
            title=title,
            absent="No job was restarted and no work was lost in any run.",
        )
    if len(panels) == 1:
        panels = [replace(panels[0], wide=True)]
    return Figure(
        key="losses",
        title=title,
        caption=(
            "Restarts are starts after a job's first. Lost time is what a job held GPUs for "
            "without progress (restart overhead, work since the last checkpoint), times its gang "
            "size. "
            "Figures that are zero in every run are left out."
        ),
        panels=tuple(panels),
    )


def restarts_per_job(run: ReplayResult) -> float:
    """Starts after the first, over jobs that started; NaN when none did."""
    started = run.counted_jobs.starts >= 1
    n = int(started.sum())
    return float((run.counted_jobs.starts[started] - 1).sum()) / n if n else math.nan


def per_started(column: Callable[[JobOutcomes], np.ndarray]) -> Callable[[ReplayResult], float]:
    """A total over jobs that started."""

    def figure(run: ReplayResult) -> float:
        n = int((run.counted_jobs.starts >= 1).sum())
        return float(column(run.counted_jobs).sum()) / n if n else math.nan

    return figure


def bars(
    groups: Sequence[Group],
    title: str,
    figure: Callable[[ReplayResult], float],
    quantity: Quantity = "number",
) -> Bars | None:
    """A panel, or None when the figure is zero or unknown everywhere.

    Args:
        groups: of the bars.
        title: of the panel.
        figure: of one run.
        quantity: what the figure is.
    """
    estimates = [estimate({run.seed: figure(run) for run in g.runs}) for g in groups]
    if not any(e.mean > 0 for e in estimates):
        return None
    shown = bars_of(groups, estimates, share_text if quantity == "share" else number_text)
    return Bars(title=title, x=bar_axis(quantity, shown), bars=shown)
