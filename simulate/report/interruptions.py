"""Pictures of preemptions: how many a job suffers, and when runs are interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulate.report.cdf import at_least
from simulate.report.drawing.charts import Curve, Curves, Figure, legend_of
from simulate.report.drawing.scale import Axis, nice_axis, time_axis
from simulate.report.drawing.steps import bin_edges, last_time
from simulate.report.study import Group
from simulate.report.wording import duration_text
from simulate.results.tables import Floats, Ints, ReplayResult, Segments

# Two ends closer than this many seconds are one moment; far below any round or overhead.
SAME_MOMENT_S = 1e-6


class Stretches(NamedTuple):
    """Segments with back-to-back rows of one job on one node and as many GPUs joined."""

    job: Ints
    node: Ints
    gpus: Ints
    start: Floats
    end: Floats


def stretches(segments: Segments) -> Stretches:
    """Join what a recorder cut at round boundaries; ordered by job, node and start."""
    order = np.lexsort((segments.start, segments.node, segments.job))
    order = order[np.isfinite(segments.start[order]) & np.isfinite(segments.end[order])]
    job, node, gpus = segments.job[order], segments.node[order], segments.gpus[order]
    start, end = segments.start[order], segments.end[order]
    if not job.shape[0]:
        return Stretches(job, node, gpus, start, end)
    goes_on = (
        (job[1:] == job[:-1])
        & (node[1:] == node[:-1])
        & (gpus[1:] == gpus[:-1])
        & (np.abs(start[1:] - end[:-1]) <= SAME_MOMENT_S)
    )
    first = np.concatenate([[True], ~goes_on])
    last = np.concatenate([~goes_on, [True]])
    return Stretches(job[first], node[first], gpus[first], start[first], end[last])


def interruption_times(run: ReplayResult, joined: Stretches) -> Floats:
    """When a job lost or changed its GPUs before its finish, one entry a job and moment."""
    finish = run.jobs.finish_time[joined.job]
    horizon = last_time(run.timeline)
    # Under some semantics GPUs are held past the finish, until a boundary: not an interruption.
    early = ~(joined.end >= finish - SAME_MOMENT_S)
    early &= joined.end < horizon - SAME_MOMENT_S
    job, end = joined.job[early], joined.end[early]
    order = np.lexsort((job, end))
    job, end = job[order], end[order]
    # A gang over several nodes ends on all of them at once: one moment.
    again = (job[1:] == job[:-1]) & (end[1:] - end[:-1] <= SAME_MOMENT_S)
    return end[np.concatenate([[True], ~again])] if end.size else end


def preemption_figure(groups: Sequence[Group], *, bins: int = 80) -> Figure:
    """Preemptions per job, and interruptions over time where segments were recorded."""
    title = "Preemptions"
    counts = {g.label: g.pooled(lambda jobs: jobs.preemptions.astype(np.float64)) for g in groups}
    most = max((float(c.max()) for c in counts.values() if c.size), default=0.0)
    panels: list[Curves] = []
    caption = ""
    if most >= 1:
        panels.append(per_job_panel(groups, counts, most))
        never = [g.label for g in groups if not counts[g.label].any()]
        caption = "Preemptions per job: the share of jobs that had at least so many. "
        if any(len(g.runs) > 1 for g in groups):
            caption += "Jobs of all seeds are pooled. "
        if never:
            caption += f"No job was preempted under {', '.join(never)}. "
    over_time = over_time_panel(groups, bins)
    if over_time is not None:
        panels.append(over_time)
        caption += (
            "Interruptions over time are the moments at which a running job was preempted, "
            "migrated or resized, or lost a node, from the recorded placements"
        )
        caption += " of the lowest seed. " if any(len(g.runs) > 1 for g in groups) else ". "
    elif any(g.first.segments is None for g in groups) and most >= 1:
        caption += "Placements were not recorded, so there is no picture over time. "
    if not panels:
        return Figure(key="preemptions", title=title, absent="No job was preempted in any run.")
    if most < 1:
        caption = "No job was preempted in any run. " + caption
    if len(panels) == 1:
        panels = [replace(panels[0], wide=True)]
    return Figure(
        key="preemptions",
        title=title,
        caption=caption.strip(),
        legend=legend_of([g.key for g in groups]),
        panels=tuple(panels),
    )


def per_job_panel(groups: Sequence[Group], counts: dict[str, Floats], most: float) -> Curves:
    """Share of jobs with at least k preemptions."""
    if most > 12:
        x = Axis(
            label="preemptions of a job, at least (log scale)",
            quantity="number",
            low=1.0,
            high=(most + 1) * 1.05,
            kind="log",
        )
    else:
        x = Axis(
            label="preemptions of a job, at least",
            quantity="number",
            low=1.0,
            high=max(most + 1, 4.0),
            step=1.0,
        )
    curves = []
    for group in groups:
        shown = at_least(counts[group.label])
        if not shown.known or not shown.share.any():
            continue
        # A share for "at least k" holds from just above k - 1 up to k: the step falls after k.
        curves.append(
            Curve(
                label=group.label,
                series=group.series,
                x=shown.value,
                y=shown.share,
                step=False,
                markers=np.arange(min(shown.value.shape[0], 8), dtype=np.int64),
            )
        )
    top = max(float(c.y.max()) for c in curves)
    return Curves(
        title="Preemptions per job",
        x=x,
        y=nice_axis("share of jobs", "share", top),
        curves=tuple(curves),
        height=260.0,
    )


def over_time_panel(groups: Sequence[Group], bins: int) -> Curves | None:
    """Interruptions an hour over the replay."""
    end = max((last_time(g.first.timeline) for g in groups), default=0.0)
    if not end > 0:
        return None
    edges = bin_edges(0.0, end, bins)
    hours = (end / bins) / 3600.0
    curves = []
    for group in groups:
        segments = group.first.segments
        if segments is None:
            continue
        moments = interruption_times(group.first, stretches(segments))
        if not moments.size:
            continue
        rate = np.histogram(moments, edges)[0] / hours
        curves.append(
            Curve(
                label=group.label,
                series=group.series,
                x=edges,
                y=np.append(rate, rate[-1]),
                step=True,
            )
        )
    if not curves:
        return None
    top = max(float(c.y.max()) for c in curves)
    return Curves(
        title="Interruptions over time",
        x=time_axis(
            f"time since the trace's start, in bins of {duration_text(end / bins, 2)}", 0.0, end
        ),
        y=nice_axis("interruptions per hour", "number", top),
        curves=tuple(curves),
        height=260.0,
    )
