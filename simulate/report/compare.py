"""Policies side by side: the table of summary figures, bars with intervals, lines over loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np

from simulate.report.drawing.charts import Bar, Bars, Curve, Curves, Figure, Key, Table, legend_of
from simulate.report.drawing.scale import Axis, Quantity, nice_axis
from simulate.report.intervals import Estimate
from simulate.report.metrics import COMPARED, DEADLINES, METRICS, SERVICES, Metric, standing
from simulate.report.study import Group, Study, load_text
from simulate.report.wording import (
    DASH,
    common_unit,
    count_text,
    duration_text,
    duration_unit,
    share_text,
)

# So many of the metrics say how jobs fared; the rest is about the cluster.
OUTCOMES = 7
LEAST_READABLE = 0.1  # in the unit of a column; what is smaller gets a unit of its own


def value_text(value: float, metric: Metric) -> str:
    """A metric's value with its unit."""
    if metric.quantity == "duration":
        return duration_text(value)
    return share_text(value) if metric.quantity == "share" else count_text(value)


def summary_tables(study: Study) -> tuple[Table, ...]:
    """One row a policy and load; outcomes in one table, use, fairness and cost in another."""
    return tuple(
        table
        for table in (
            metric_table(study, "Outcomes", METRICS[:OUTCOMES]),
            metric_table(study, "Deadlines", DEADLINES),
            metric_table(study, "Services", SERVICES),
            metric_table(study, "Use, fairness and cost", METRICS[OUTCOMES:]),
        )
        if len(table.columns) > 1
    )


def metric_table(study: Study, caption: str, metrics: Sequence[Metric]) -> Table:
    """One column a figure, each in one unit; figures that no run knows are left out."""
    blocks = [study.at(load) for load in study.loads]
    cells: list[list[str]] = [[group.label] for block in blocks for group in block]
    columns = [""]
    best: set[tuple[int, int]] = set()
    near: set[tuple[int, int]] = set()
    for metric in metrics:
        standings = [standing(block, metric) for block in blocks]
        known = [e for s in standings for e in s.estimates if math.isfinite(e.mean)]
        if not known:
            continue
        unit, say = column_format(metric, known)
        columns.append(f"{metric.short} ({unit})" if unit else metric.short)
        row = 0
        for found in standings:
            for i, value in enumerate(found.estimates):
                cells[row + i].append(say(value))
            best |= {(row + i, len(columns) - 1) for i in found.best}
            near |= {(row + i, len(columns) - 1) for i in found.near}
            row += len(found.estimates)
    headings = tuple((load_text(b[0].load).capitalize(), len(b)) for b in blocks)
    return Table(
        caption=caption,
        columns=tuple(columns),
        rows=tuple(tuple(c) for c in cells),
        groups=headings if len(blocks) > 1 else (),
        best=frozenset(best),
        near=frozenset(near),
    )


def column_format(
    metric: Metric, known: Sequence[Estimate]
) -> tuple[str, Callable[[Estimate], str]]:
    """A unit for the whole column and how its cells are written.

    Durations that differ so much that no unit suits all have each its own, and the column has none.
    """
    unit, size = {"share": ("%", 0.01)}.get(metric.quantity, ("", 1.0))
    each_its_own = False
    if metric.quantity == "duration":
        means = [e.mean for e in known]
        unit, size = common_unit(means)
        each_its_own = any(0 < abs(mean) < LEAST_READABLE * size for mean in means)
    whole = metric.quantity == "number" and all(e.mean == round(e.mean) for e in known)

    def say(value: Estimate) -> str:
        if not math.isfinite(value.mean):
            return DASH
        name, per = duration_unit(value.mean) if each_its_own else ("", size)
        scaled = abs(value.mean) / per
        # Three digits of the mean; its interval gets as many decimals.
        before = math.floor(math.log10(scaled)) + 1 if scaled > 0 else 3
        digits = 0 if whole else min(max(3 - before, 0), 5)
        text = f"{value.mean / per:,.{digits}f}".replace("-", "\u2212")
        if math.isfinite(value.half_width) and value.half_width > 0:
            text += f" ± {value.half_width / per:,.{digits}f}"
        return f"{text} {name}" if name else text

    return "" if each_its_own else unit, say


def comparison_figure(groups: tuple[Group, ...]) -> Figure:
    """Bars of the main figures, one panel a figure."""
    title = "Policies side by side"
    if len(groups) < 2:
        return Figure(key="compare", title=title, absent="One policy: nothing to compare with.")
    panels = []
    for metric in COMPARED:
        found = standing(groups, metric)
        if not any(math.isfinite(e.mean) for e in found.estimates):
            continue
        bars = bars_of(groups, found.estimates, partial(value_text, metric=metric), found.best)
        axis = bar_axis(metric.quantity, bars)
        if metric.key == "gpu_utilization":  # shares of GPUs go to 100 %
            axis = nice_axis("", "share", 1.0)
        arrow = {"low": "lower is better", "high": "higher is better", "none": ""}[metric.better]
        panels.append(Bars(title=metric.name, x=axis, bars=bars, note=arrow))
    seeds = max(len(g.runs) for g in groups)
    caption = (
        f"Means over {seeds} seeds with 95 % intervals (Student's t)."
        if seeds > 1
        else "One seed: no intervals can be given."
    )
    if not panels:
        return Figure(key="compare", title=title, absent="The summaries hold no figures.")
    caption += " The best of each panel is set in bold."
    return Figure(key="compare", title=title, caption=caption, panels=tuple(panels))


def bars_of(
    groups: Sequence[Group],
    estimates: Sequence[Estimate],
    say: Callable[[float], str],
    best: Collection[int] = (),
) -> tuple[Bar, ...]:
    """A bar for each group.

    Args:
        groups: of the bars.
        estimates: one for each group.
        say: writes a mean as text.
        best: which of the groups are the best.
    """
    return tuple(
        Bar(group.label, group.series, e.mean, e.low, e.high, say(e.mean), i in best)
        for i, (group, e) in enumerate(zip(groups, estimates, strict=True))
    )


def bar_axis(quantity: Quantity, bars: Sequence[Bar]) -> Axis:
    """From zero past the largest bar or interval end."""
    ends = [v for b in bars for v in (b.value, b.high) if math.isfinite(v)]
    return nice_axis("", quantity, max(ends, default=1.0))


def load_figure(study: Study) -> Figure:
    """The main figures against the load."""
    title = "Policies against load"
    loads = [load for load in study.loads if load is not None]
    if len(loads) < 2:
        return Figure(key="loads", title=title, absent="Only one load was replayed.")
    x = load_axis(loads)
    panels = []
    for metric in COMPARED:
        curves = []
        for series, label in enumerate(study.labels):
            mine = [g for g in study.groups if g.label == label and g.load is not None]
            estimates = [standing((g,), metric).estimates[0] for g in mine]
            y = np.array([e.mean for e in estimates])
            if not np.isfinite(y).any():
                continue
            curves.append(
                Curve(
                    label=label,
                    series=series,
                    x=np.array([g.load for g in mine], dtype=np.float64),
                    y=y,
                    markers=np.arange(len(mine), dtype=np.int64),
                    aside=(series - (len(study.labels) - 1) / 2) * min(1.0, 6 / len(study.labels)),
                    spread_low=np.array([e.low for e in estimates]),
                    spread_high=np.array([e.high for e in estimates]),
                )
            )
        if curves:
            panels.append(
                Curves(
                    title=metric.name,
                    x=x,
                    y=value_axis(metric, curves),
                    curves=tuple(curves),
                    height=260.0,
                )
            )
    seeds = max(len(g.runs) for g in study.groups)
    return Figure(
        key="loads",
        title=title,
        caption="Each point is one policy at one load"
        + (f", mean over {seeds} seeds with its 95 % interval (Student's t)." if seeds > 1 else ".")
        + " Points of one load stand side by side.",
        panels=tuple(panels),
        legend=legend_of([Key(label, i) for i, label in enumerate(study.labels)]),
    )


def load_axis(loads: Sequence[float]) -> Axis:
    """Loads with a little air at both ends."""
    air = 0.05 * (loads[-1] - loads[0])
    return Axis(
        label="load factor",
        quantity="number",
        low=loads[0] - air,
        high=loads[-1] + air,
        stops=tuple(loads),
    )


def value_axis(metric: Metric, curves: Sequence[Curve]) -> Axis:
    """From zero past the largest interval end; logarithmic when policies lie decades apart."""
    values = np.concatenate([c.y for c in curves])
    ends = [c.spread_high for c in curves if c.spread_high is not None]
    known = np.concatenate([values, *ends])
    top = float(known[np.isfinite(known)].max())
    if metric.key == "gpu_utilization":
        return Axis(label="", quantity="share", low=0.0, high=1.0, step=0.25)
    positive = values[np.isfinite(values) & (values > 0)]
    if positive.size and top / float(positive.min()) > 60:
        return Axis(
            label="log scale",
            quantity=metric.quantity,
            low=float(positive.min()) * 0.8,
            high=top * 1.2,
            kind="log",
        )
    return nice_axis("", metric.quantity, top)
