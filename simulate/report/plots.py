"""The report's pictures as SVG and PDF files, for papers; drawn by matplotlib, an optional extra.

Places and tick labels come from the same `Axis` as on the page, so that the pictures agree. No
pyplot state and no dates: the same results give the same files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlsched.core.errors import BadInput
from dlsched.core.sums import ordered_sum
from simulate.report.drawing.charts import (
    Bars,
    Curves,
    Figure,
    Gantt,
    Panel,
    Ranges,
    Reference,
    Strips,
)
from simulate.report.drawing.palette import JOBS, LIGHT, colour_of, dash_of, marker_of
from simulate.report.drawing.scale import Axis
from simulate.report.page import check_window
from simulate.report.series import pictures
from simulate.report.wording import shorten
from simulate.results.tables import Floats, ReplayResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

NEEDED = "matplotlib is needed for --plots: pip install 'dlsched[plots]'"

INK, SOFT, FAINT, IDLE = "#1b1f24", "#57606a", "#e4e7eb", "#eceff2"
WIDE_IN, HALF_IN = 7.2, 3.5
SHAPES = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "down": "v",
    "cross": "x",
}
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "dlsched",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.2,
    "text.parse_math": False,
}


def write_plots(
    results: Sequence[ReplayResult],
    directory: str | Path,
    *,
    window: tuple[float, float] | None = None,
) -> tuple[Path, ...]:
    """Write each picture of the report as `NAME.svg` and `NAME.pdf`; returns the files.

    With several loads the names end in the load. Pictures with nothing to show are left out.
    Raises BadInput without matplotlib, when the window is empty or the folder cannot be written.
    """
    check_window(window)
    try:
        import matplotlib as mpl  # noqa: PLC0415  an optional extra
    except ImportError as error:
        raise BadInput(NEEDED) from error
    shown = pictures(results, window=window)
    named = [(figure.key, figure) for figure in shown.across]
    for one in shown.by_load:
        suffix = "" if len(shown.by_load) == 1 or one.load is None else f"-load-{one.load:.4g}"
        named += [(figure.key + suffix, figure) for figure in one.figures]
    folder = Path(directory)
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(SETTINGS):
            for name, figure in named:
                for part, panels in parts_of(name, figure):
                    written += save(sheet(figure, panels), folder / part)
    except OSError as error:
        raise BadInput(f"cannot write plots to {folder}: {error.strerror}") from error
    return tuple(written)


def parts_of(name: str, figure: Figure) -> list[tuple[str, tuple[Panel, ...]]]:
    """Files of a figure: one, or one an alternative."""
    if figure.is_absent:
        return []
    if not figure.choice:
        return [(name, figure.panels)]
    return [
        (f"{name}-{file_word(word)}", (panel,))
        for word, panel in zip(distinct(figure.choice), figure.panels, strict=True)
    ]


def file_word(text: str) -> str:
    """A label as part of a file's name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._+") else "-" for c in text)[:60]


def distinct(names: Sequence[str]) -> list[str]:
    """Names whose file words would be equal get a number."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        word = file_word(name)
        seen[word] = seen.get(word, 0) + 1
        found.append(name if seen[word] == 1 else f"{name}-{seen[word]}")
    return found


def save(drawn: Sheet, stem: Path) -> list[Path]:
    """Both files of a picture."""
    svg, pdf = stem.with_name(stem.name + ".svg"), stem.with_name(stem.name + ".pdf")
    drawn.savefig(svg, format="svg", metadata={"Date": None, "Creator": "dlsched"})
    drawn.set_layout_engine("none")  # the places found for the first file hold for the second
    drawn.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Creator": "dlsched"})
    return [svg, pdf]


def sheet(figure: Figure, panels: Sequence[Panel]) -> Sheet:
    """A matplotlib figure with the panels two abreast (wide ones alone) and the legend on top."""
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415  an optional extra

    rows: list[list[Panel]] = []
    for panel in panels:
        if not panel.wide and rows and len(rows[-1]) == 1 and not rows[-1][0].wide:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    if figure.stacked:
        rows = [list(panels[:1])]
    heights = [max(height_in(p) for p in row) for row in rows]
    lone = len(panels) == 1 and not panels[0].wide
    per_row = 6
    lines = math.ceil(len(figure.legend) / per_row)
    above = 0.22 * lines
    size = (HALF_IN if lone else WIDE_IN, ordered_sum(heights) + above)
    drawn = Sheet(figsize=size, layout="constrained")
    if figure.legend:
        handles = [legend_line(key.series, key.label) for key in figure.legend]
        drawn.legend(
            handles=handles,
            loc="outside upper left",
            ncols=min(len(handles), per_row),
            frameon=False,
            handlelength=2.2,
        )
    if figure.stacked:
        stack = drawn.add_gridspec(max(len(panels) - 1, 1), 2)
        draw(drawn.add_subplot(stack[:, 0]), panels[0])
        for i, panel in enumerate(panels[1:]):
            draw(drawn.add_subplot(stack[i, 1]), panel)
        return drawn
    grid = drawn.add_gridspec(len(rows), 2, height_ratios=heights)
    for r, row in enumerate(rows):
        if len(row) == 1 and (row[0].wide or lone):
            draw(drawn.add_subplot(grid[r, :]), row[0])
        else:
            for c, panel in enumerate(row):
                draw(drawn.add_subplot(grid[r, c]), panel)
    return drawn


def height_in(panel: Panel) -> float:
    """Inches that a panel wants."""
    if isinstance(panel, Curves):
        return panel.height / 125.0
    if isinstance(panel, Strips):
        return 0.6 + 0.42 * len(panel.strips)
    if isinstance(panel, Bars):
        return 0.6 + 0.2 * len(panel.bars)
    if isinstance(panel, Ranges):
        return 0.7 + ordered_sum(0.12 + 0.11 * max(len(r.ranges), 1) for r in panel.rows)
    return min(0.7 + 0.024 * panel.total_lanes + 0.06 * len(panel.nodes), 9.0)


def legend_line(series: int, name: str) -> Any:
    """A legend's handle."""
    from matplotlib.lines import Line2D  # noqa: PLC0415  an optional extra

    return Line2D([], [], label=name, **stroke(series), **point(series))


def stroke(series: int) -> dict[str, Any]:
    """A line's looks."""
    dash = dash_of(series)
    style = (0, tuple(float(d) / 2 for d in dash.split())) if dash else "-"
    return {"color": LIGHT[colour_of(series)], "linestyle": style}


def point(series: int) -> dict[str, Any]:
    """A marker's looks."""
    colour = LIGHT[colour_of(series)]
    return {
        "marker": SHAPES[marker_of(series)],
        "markersize": 4.2,
        "markerfacecolor": colour,
        "markeredgecolor": colour if marker_of(series) == "cross" else "white",
        "markeredgewidth": 1.2 if marker_of(series) == "cross" else 0.5,
    }


def draw(axes: Axes, panel: Panel) -> None:
    """One panel on its axes, which run from 0 to 1 both ways."""
    # A reference's word stands between the title and the plot.
    room = 11.0 if isinstance(panel, (Curves, Strips)) and panel.references else 5.0
    axes.set_title(panel.title, loc="left", pad=room, fontsize=8, fontweight="bold", color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(SOFT)
    axes.tick_params(length=0, colors=SOFT)
    axes.set_axisbelow(True)
    axes.set_xlim(0.0, 1.0)
    across = 760.0 if panel.wide else 340.0
    ticks = panel.x.ticks(across)
    axes.set_xticks([t.at for t in ticks], [t.text for t in ticks])
    axes.set_xlabel(panel.x.label, color=SOFT)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    if isinstance(panel, Curves):
        draw_curves(axes, panel)
    elif isinstance(panel, Strips):
        draw_strips(axes, panel)
    elif isinstance(panel, Ranges):
        draw_ranges(axes, panel)
    elif isinstance(panel, Bars):
        draw_bars(axes, panel)
    else:
        draw_gantt(axes, panel)


def mark(axes: Axes, marks: Sequence[Reference], x: Axis) -> None:
    """Dashed lines across, with their words."""
    for one in marks:
        at = float(x.fraction([one.at])[0])
        axes.axvline(at, color=SOFT, linewidth=0.7, linestyle=(0, (4, 3)))
        left = at > 0.8
        axes.annotate(
            one.text,
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-2 if left else 2, 2),
            textcoords="offset points",
            ha="right" if left else "left",
            va="bottom",
            fontsize=6.5,
            color=SOFT,
        )


def draw_curves(axes: Axes, panel: Curves) -> None:
    """Lines with markers and intervals."""
    axes.set_ylim(0.0, 1.02)
    ticks = panel.y.ticks(180.0, apart=36.0)
    axes.set_yticks([t.at for t in ticks], [t.text for t in ticks])
    axes.set_ylabel(panel.y.label, color=SOFT)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    mark(axes, panel.references, panel.x)
    for curve in panel.curves:
        x = panel.x.fraction(curve.x) + curve.aside * 0.014
        y = panel.y.fraction(curve.y)
        axes.plot(
            x,
            y,
            drawstyle="steps-post" if curve.step else "default",
            markevery=curve.markers.astype(int).tolist(),
            **stroke(curve.series),
            **point(curve.series),
        )
        if curve.spread_low is not None and curve.spread_high is not None:
            low = panel.y.fraction(curve.spread_low)
            high = panel.y.fraction(curve.spread_high)
            known = np.isfinite(low) & np.isfinite(high)
            axes.errorbar(
                x[known],
                y[known],
                yerr=np.stack([y[known] - low[known], high[known] - y[known]]),
                fmt="none",
                ecolor=LIGHT[colour_of(curve.series)],
                elinewidth=0.8,
                capsize=2,
            )


def draw_strips(axes: Axes, panel: Strips) -> None:
    """Filled bands under each other."""
    n = len(panel.strips)
    axes.set_ylim(0.0, float(n))
    axes.set_yticks(
        [n - i - 0.55 for i in range(n)], [shorten(s.label, 110, 10) for s in panel.strips]
    )
    mark(axes, panel.references, panel.x)
    for i, strip in enumerate(panel.strips):
        floor = float(n - i - 1)
        y = floor + 0.85 * panel.y.fraction(np.append(strip.y, strip.y[-1]))
        axes.fill_between(
            panel.x.fraction(strip.x),
            y,
            floor,
            step="post",
            color=LIGHT[colour_of(strip.series)],
            alpha=0.8,
            linewidth=0,
        )
        axes.axhline(floor, color=SOFT, linewidth=0.5)
        axes.axhline(floor + 0.85, color=FAINT, linewidth=0.6)
        axes.text(1.01, floor + 0.42, strip.figure, va="center", fontsize=7, color=INK)


def draw_ranges(axes: Axes, panel: Ranges) -> None:
    """Percentile ranges in categories."""
    y = 0.0
    names = []
    for row in panel.rows:
        count = max(len(row.ranges), 1)
        names.append((y + count / 2, f"{shorten(row.label, 110, 10)}  {row.detail}"))
        for i, r in enumerate(row.ranges):
            if not r.jobs:
                continue
            colour = LIGHT[colour_of(r.series)]
            at = y + i + 0.5
            five = panel.x.fraction([r.p5, r.p25, r.p50, r.p75, r.p95]).tolist()
            axes.plot([five[0], five[4]], [at, at], color=colour, linewidth=0.8)
            axes.plot([five[1], five[3]], [at, at], color=colour, linewidth=3.0, alpha=0.6)
            axes.plot([five[2]], [at], linestyle="none", **point(r.series), color=colour)
        y += count + 1.0
        axes.axhline(y - 0.5, color=FAINT, linewidth=0.6)
    axes.set_ylim(y - 0.5, -0.5)
    axes.set_yticks([at for at, _ in names], [name for _, name in names])


def draw_bars(axes: Axes, panel: Bars) -> None:
    """Horizontal bars with intervals."""
    n = len(panel.bars)
    axes.set_ylim(n - 0.4, -0.6)
    axes.set_yticks(range(n), [shorten(b.label, 110, 10) for b in panel.bars])
    for i, bar in enumerate(panel.bars):
        weight = "bold" if bar.best else "normal"
        axes.text(1.02, i, bar.text, va="center", fontsize=7, fontweight=weight, color=INK)
        if not math.isfinite(bar.value):
            continue
        value, low, high = panel.x.fraction([bar.value, bar.low, bar.high]).tolist()
        axes.barh(i, value, height=0.62, color=LIGHT[colour_of(bar.series)], alpha=0.88)
        if math.isfinite(low) and high > low:
            axes.errorbar(
                value,
                i,
                xerr=[[value - low], [high - value]],
                fmt="none",
                ecolor=INK,
                elinewidth=0.9,
                capsize=2,
            )
    axes.axvline(0.0, color=SOFT, linewidth=0.7)


def draw_gantt(axes: Axes, panel: Gantt) -> None:
    """Bands of nodes with blocks of jobs; a gap of one lane between nodes."""
    from matplotlib.collections import PolyCollection  # noqa: PLC0415  an optional extra

    total = panel.total_lanes
    gap = max(0.12 * total / max(len(panel.nodes), 1), 0.3)
    shift = np.empty(total)
    idle = []
    for i, node in enumerate(panel.nodes):
        shift[node.top : node.top + node.lanes] = i * gap
        top = node.top + i * gap
        idle.append(box((0.0, 1.0), (top, top + node.lanes)))
    axes.add_collection(PolyCollection(idle, facecolors=IDLE, edgecolors="none"))
    x0, x1 = panel.x.fraction(panel.start), panel.x.fraction(panel.end)
    boxes = []
    colours = []
    for i in range(panel.job.shape[0]):
        top = float(panel.lane[i] + shift[panel.lane[i]])
        boxes.append(box((float(x0[i]), float(x1[i])), (top, top + float(panel.lanes[i]))))
        colours.append(JOBS[panel.job_colour[int(panel.job[i])]])
    axes.add_collection(
        PolyCollection(boxes, facecolors=colours, edgecolors="white", linewidths=0.25)
    )
    for link in panel.links:
        at = float(panel.x.fraction([link.time])[0])
        places = [lane + float(shift[min(int(lane), total - 1)]) for lane in link.lanes]
        axes.plot([at] * len(places), places, color=SOFT, linewidth=0.5, marker=".", markersize=2)
    axes.set_ylim(total + len(panel.nodes) * gap, 0.0)
    axes.set_yticks(
        [n.top + n.lanes / 2 + i * gap for i, n in enumerate(panel.nodes)],
        [shorten(n.name, 110, 10) for n in panel.nodes],
        fontsize=6,
    )
    axes.grid(visible=False)


def box(across: tuple[float, float], up: tuple[float, float]) -> Floats:
    """A rectangle's corners."""
    (x0, x1), (y0, y1) = across, up
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
