"""Pictures over time: GPU utilisation, and jobs waiting and running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from simulate.report.drawing.charts import (
    Curve,
    Curves,
    Figure,
    Reference,
    Strip,
    Strips,
    legend_of,
)
from simulate.report.drawing.scale import Axis, nice_axis, time_axis
from simulate.report.drawing.steps import (
    bin_edges,
    bin_means,
    last_time,
    time_weighted_mean,
    utilization,
)
from simulate.report.study import Group
from simulate.report.wording import count_text, duration_text, share_text
from simulate.results.tables import Floats, Ints, Timeline


def occupancy_figure(groups: Sequence[Group], *, bins: int) -> Figure:
    """Utilisation and queue length over the whole replay, one seed a group."""
    title = "GPU utilisation and queue over time"
    shown = [g for g in groups if last_time(g.first.timeline) > 0]
    if not shown:
        recorded = any(g.first.timeline.time.size for g in groups)
        why = "No time passed in any run." if recorded else "Series over time were not recorded."
        return Figure(key="occupancy", title=title, absent=why)
    end = max(last_time(g.first.timeline) for g in shown)
    submits = [g.first.jobs.submit_time for g in shown]
    last_submit = max((float(s.max()) for s in submits if s.size), default=0.0)
    marks = (Reference(at=last_submit, text="last submit"),) if last_submit < 0.97 * end else ()
    x = time_axis("time since the trace's start", 0.0, end)
    span = Span(bin_edges(0.0, end, bins), x, marks)
    caption = (
        f"Each point is the time-weighted mean over {duration_text(end / bins, 2)}. "
        "Figures at the right are means over the run. Queue length counts the jobs that wait."
    )
    if any(len(g.runs) > 1 for g in shown):
        caption += " One seed is shown: the lowest."
    return Figure(
        key="occupancy",
        title=title,
        caption=caption,
        legend=legend_of([g.key for g in shown]),
        panels=(
            utilization_strips(shown, span),
            count_panel("Jobs waiting", shown, span, lambda t: t.waiting_jobs),
            count_panel("Jobs running", shown, span, lambda t: t.running_jobs),
        ),
    )


class Span(NamedTuple):
    """What all panels share: the edges of the bins, the axis of time, and marked moments."""

    edges: Floats
    x: Axis
    marks: tuple[Reference, ...]


def utilization_strips(groups: Sequence[Group], span: Span) -> Strips:
    """A band a group: overlaid, four of these curves would hide each other."""
    strips = []
    for group in groups:
        line = group.first.timeline
        used = time_weighted_mean(line.time, line.allocated_gpus)
        total = time_weighted_mean(line.time, line.total_gpus)
        strips.append(
            Strip(
                label=group.label,
                series=group.series,
                x=span.edges,
                y=utilization(line, span.edges),
                figure=share_text(used / total) if total > 0 else share_text(float("nan")),
            )
        )
    # Jobs that share GPUs can hold more than there are.
    top = max((float(np.nanmax(s.y)) for s in strips if np.isfinite(s.y).any()), default=1.0)
    y = Axis(label="", quantity="share", low=0.0, high=1.0, step=0.5)
    return Strips(
        title="GPU utilisation: allocated share of the GPUs in service",
        x=span.x,
        y=y if top <= 1.0 else nice_axis("", "share", top, ticks=2),
        strips=tuple(strips),
        references=span.marks,
        figure_title="mean",
    )


def count_panel(
    title: str, groups: Sequence[Group], span: Span, column: Callable[[Timeline], Ints]
) -> Curves:
    """A line for each group.

    Args:
        title: of the panel.
        groups: of the lines.
        span: of all panels.
        column: the counts of a run.
    """
    curves = []
    for group in groups:
        line = group.first.timeline
        y = bin_means(line.time, column(line), span.edges)
        curves.append(
            Curve(
                label=f"{group.label} (peak {count_text(float(column(line).max()))})",
                series=group.series,
                x=span.edges,
                y=np.append(y, y[-1]),
                step=True,
            )
        )
    top = max((float(np.nanmax(c.y)) for c in curves if np.isfinite(c.y).any()), default=1.0)
    return Curves(
        title=title,
        x=span.x,
        y=nice_axis("jobs", "number", max(top, 1.0)),
        curves=tuple(curves),
        references=span.marks,
        height=240.0,
    )
