"""Pictures of JCT and queueing delay: over all jobs, by gang size and by virtual cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import plural
from simulate.report.cdf import cdf, marker_places
from simulate.report.drawing.charts import (
    Curve,
    Curves,
    Figure,
    Range,
    RangeRow,
    Ranges,
    Table,
    legend_of,
)
from simulate.report.drawing.scale import Axis, log_duration_axis
from simulate.report.study import Group
from simulate.report.wording import clean, duration_text, share_text
from simulate.results.tables import Floats, JobOutcomes

PERCENTILES = (10, 25, 50, 75, 90, 95, 99, 100)
MOST_CATEGORIES = 10


def jct_figure(groups: Sequence[Group]) -> Figure:
    """Share of jobs done within, and started within, a time; log time axis."""
    title = "Job completion time and queueing delay"
    done = {g.label: g.pooled(lambda jobs: jobs.jct) for g in groups}
    waited = {g.label: g.pooled(lambda jobs: jobs.queueing_delay) for g in groups}
    known = {label: int(np.isfinite(v).sum()) for label, v in done.items()}
    if not any(known.values()):
        return Figure(key="jct", title=title, absent="No job finished in any run.")
    caption = (
        "Cumulative distribution over completed jobs (left) and over started jobs (right), on a "
        "logarithmic time axis. Markers stand at the 50th, 90th and 99th percentile. "
    )
    if any(len(g.runs) > 1 for g in groups):
        caption += "Jobs of all seeds are pooled. "
    unfinished = {
        g.label: 1 - known[g.label] / max(done[g.label].shape[0], 1)
        for g in groups
        if known[g.label] < done[g.label].shape[0]
    }
    if unfinished:
        worst = max(unfinished.values())
        caption += (
            f"Jobs without a finish time (up to {share_text(worst, 2)}) are not in the curves. "
        )
    return Figure(
        key="jct",
        title=title,
        caption=caption.strip(),
        legend=legend_of([g.key for g in groups]),
        panels=(
            cdf_panel("Job completion time", groups, done, time_axis_of(done, zero=False)),
            cdf_panel("Queueing delay", groups, waited, time_axis_of(waited, zero=True)),
        ),
        table=percentile_table(groups, done, waited),
    )


def time_axis_of(columns: dict[str, Floats], *, zero: bool) -> Axis:
    """The axis of durations since submit; with `zero` it shows 0 too."""
    return log_duration_axis("time since submit, log scale", columns.values(), zero=zero)


def cdf_panel(title: str, groups: Sequence[Group], columns: dict[str, Floats], x: Axis) -> Curves:
    """One cumulative curve for each group that has known values.

    Args:
        title: of the panel.
        groups: of the curves.
        columns: the values of each group, by its label.
        x: the axis of the values.
    """
    curves = []
    for group in groups:
        shown = cdf(columns[group.label])
        if not shown.known:
            continue
        # Start on the floor, so that the first step is seen to rise.
        start = min(x.low, shown.value[0])
        curves.append(
            Curve(
                label=group.label,
                series=group.series,
                x=np.append(np.concatenate([[start], shown.value]), x.high),
                y=np.append(np.concatenate([[0.0], shown.share]), 1.0),
                step=True,
                markers=marker_places(shown) + 1,
            )
        )
    y = Axis(label="share of jobs", quantity="share", low=0.0, high=1.0, step=0.25)
    return Curves(title=title, x=x, y=y, curves=tuple(curves))


def percentile_table(
    groups: Sequence[Group], done: dict[str, Floats], waited: dict[str, Floats]
) -> Table:
    """The percentiles behind the curves."""
    rows: list[tuple[str, ...]] = []
    for columns in (done, waited):
        for group in groups:
            known = columns[group.label]
            known = known[np.isfinite(known)]
            values = (
                np.percentile(known, PERCENTILES).tolist()
                if known.size
                else [float("nan")] * len(PERCENTILES)
            )
            mean = float(known.mean()) if known.size else float("nan")
            rows.append((group.label, f"{known.size:,}", *map(duration_text, (mean, *values))))
    names = [f"p{p}" if p < 100 else "max" for p in PERCENTILES]
    return Table(
        caption="Percentiles of job completion time and queueing delay",
        columns=("", "jobs", "mean", *names),
        rows=tuple(rows),
        groups=(("Job completion time", len(groups)), ("Queueing delay", len(groups))),
    )


class Categories(NamedTuple):
    """Labels, and per group the category of each pooled job."""

    labels: tuple[str, ...]
    member: dict[str, NDArray[np.int64]]


def delay_figure(groups: Sequence[Group]) -> Figure:
    """Queueing delay by gang size and by virtual cluster."""
    title = "Queueing delay by gang size and by virtual cluster"
    waited = {g.label: g.pooled(lambda jobs: jobs.queueing_delay) for g in groups}
    if not any(np.isfinite(v).any() for v in waited.values()):
        return Figure(key="delay", title=title, absent="No job started in any run.")
    x = log_duration_axis("queueing delay, log scale", waited.values(), zero=True)
    by_vc = vc_categories(groups)
    sizes = gang_categories(groups)
    rows = range_rows(groups, waited, sizes)
    panels = [Ranges(title="By gang size", x=x, rows=rows, wide=by_vc is None)]
    caption = (
        "Delay from submit to first start: marker at the median, thick line from the 25th to the "
        "75th percentile, thin line from the 5th to the 95th. Percentages are shares of the jobs."
    )
    if by_vc is None:
        caption += " The trace names no virtual clusters, or just one."
    else:
        rows = range_rows(groups, waited, by_vc)
        panels.append(Ranges(title="By virtual cluster", x=x, rows=rows))
    return Figure(
        key="delay",
        title=title,
        caption=caption,
        legend=legend_of([g.key for g in groups]),
        panels=tuple(panels),
    )


def range_rows(
    groups: Sequence[Group], waited: dict[str, Floats], by: Categories
) -> tuple[RangeRow, ...]:
    """Percentile ranges of each group in each category."""
    rows = []
    total = sum(m.shape[0] for m in by.member.values())
    for number, label in enumerate(by.labels):
        inside = {g.label: by.member[g.label] == number for g in groups}
        size = sum(int(m.sum()) for m in inside.values())
        ranges = tuple(percentile_range(g, waited[g.label][inside[g.label]]) for g in groups)
        rows.append(RangeRow(label, share_text(size / max(total, 1), 2), ranges))
    return tuple(rows)


def percentile_range(group: Group, values: Floats) -> Range:
    """Five percentiles of the known values."""
    known = values[np.isfinite(values)]
    five = np.percentile(known, (5, 25, 50, 75, 95)) if known.size else np.full(5, np.nan)
    return Range(group.series, group.label, int(known.size), *map(float, five))


def gang_categories(groups: Sequence[Group]) -> Categories:
    """Each size its own row while they are few, else powers of two."""
    sizes = {g.label: gathered(g, lambda jobs: jobs.num_gpus).astype(np.int64) for g in groups}
    distinct = np.unique(np.concatenate(list(sizes.values())))
    if distinct.shape[0] <= MOST_CATEGORIES:
        labels = tuple(gpus_text(str(d)) for d in distinct.tolist())
        return Categories(labels, {k: np.searchsorted(distinct, v) for k, v in sizes.items()})
    tops = [1]
    while tops[-1] < distinct[-1] and len(tops) < MOST_CATEGORIES - 1:
        tops.append(tops[-1] * 2)
    edges = np.array(tops[:-1] if tops[-1] < distinct[-1] else tops)
    names = []
    below = 0
    for top in edges.tolist():
        names.append(str(top) if top - below <= 1 else f"{below + 1}–{top}")
        below = top
    names.append(f"{below + 1} and more")
    member = {k: np.searchsorted(edges, v) for k, v in sizes.items()}
    return drop_empty(Categories(tuple(gpus_text(n) for n in names), member))


def gpus_text(size: str) -> str:
    """A size with its unit."""
    return f"{size} GPU" if size == "1" else f"{size} GPUs"


def drop_empty(by: Categories) -> Categories:
    """Without the categories that hold no job."""
    used = np.unique(np.concatenate(list(by.member.values())))
    renumbered = {k: np.searchsorted(used, v) for k, v in by.member.items()}
    return Categories(tuple(by.labels[i] for i in used.tolist()), renumbered)


def vc_categories(groups: Sequence[Group]) -> Categories | None:
    """The virtual clusters with most jobs, the rest together; None when there is no choice."""
    codes: dict[object, int] = {}
    coded = {g.label: coded_column(gathered(g, lambda jobs: jobs.vc), codes) for g in groups}
    if len(codes) < 2:
        return None
    names = [clean(name) for name in codes]
    counts = np.bincount(np.concatenate(list(coded.values())), minlength=len(codes))
    ranked = sorted(range(len(codes)), key=lambda c: (-int(counts[c]), names[c]))
    top = ranked if len(ranked) <= MOST_CATEGORIES else ranked[: MOST_CATEGORIES - 1]
    labels = [names[c] or "(none)" for c in top]
    if len(top) < len(ranked):
        labels.append(plural(len(ranked) - len(top), "other"))
    place = np.full(len(codes), len(top), dtype=np.int64)
    place[top] = np.arange(len(top))
    return Categories(tuple(labels), {label: place[column] for label, column in coded.items()})


def coded_column(column: NDArray[Any], codes: dict[object, int]) -> NDArray[np.int64]:
    """Texts as small numbers, handed out in order of first appearance.

    A loop over jobs: sorting a million texts takes many times as long.
    """
    return np.fromiter(
        (codes.setdefault(name, len(codes)) for name in column.tolist()),
        dtype=np.int64,
        count=column.shape[0],
    )


def gathered(group: Group, column: Callable[[JobOutcomes], NDArray[Any]]) -> NDArray[Any]:
    """A column of any type over all seeds."""
    return np.concatenate([column(run.counted_jobs) for run in group.runs])
