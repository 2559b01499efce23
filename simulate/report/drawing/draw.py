"""Panels as SVG text. Colours and fonts come from the page's style sheet, by class.

Sizes are pixels of a view box 1040 (wide) or 508 (half) across, which the page shows at about
their natural size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from dlsched.core.errors import plural
from simulate.report.drawing.charts import (
    Bars,
    Curve,
    Curves,
    Gantt,
    Key,
    Panel,
    Range,
    Ranges,
    Reference,
    Strips,
)
from simulate.report.drawing.palette import colour_of, dash_of, marker_of
from simulate.report.drawing.scale import Axis
from simulate.report.drawing.svg import element, label, line, marker, number, path, polyline, rect
from simulate.report.wording import clean, duration_text, shorten, text_width
from simulate.results.tables import Floats

WIDE = 1040.0
HALF = 508.0
TEXT = 12.0

# One band can be as high as a plot; many must fit on a page.
STRIPS = {1: 120.0, 2: 76.0, 3: 58.0}
STRIP = 46.0
STRIP_GAP = 13.0
RANGE = 13.0
BAR = 24.0
ASIDE = 6.0


class Frame(NamedTuple):
    """The rectangle, in pixels, in which a panel draws its values."""

    left: float
    right: float
    top: float
    bottom: float

    def across(self, axis: Axis, values: Floats | Iterable[float]) -> Floats:
        """Where values lie between the left and the right edge."""
        return self.left + axis.fraction(values) * (self.right - self.left)

    def up(self, axis: Axis, values: Floats | Iterable[float]) -> Floats:
        """Where values lie between the bottom and the top edge."""
        return self.bottom - axis.fraction(values) * (self.bottom - self.top)


def draw_panel(panel: Panel, identity: str) -> str:
    """One panel as a complete `<svg>`; `identity` is unique on the page."""
    width = WIDE if panel.wide else HALF
    if isinstance(panel, Curves):
        body, height, said = draw_curves(panel, width)
    elif isinstance(panel, Strips):
        body, height, said = draw_strips(panel, width)
    elif isinstance(panel, Ranges):
        body, height, said = draw_ranges(panel, width)
    elif isinstance(panel, Bars):
        body, height, said = draw_bars(panel, width)
    else:
        body, height, said = draw_gantt(panel, width)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {number(width)} '
        f'{number(height)}" width="{number(width)}" height="{number(height)}" '
        f'class="{"wide" if panel.wide else "half"}" aria-labelledby="{identity}-t {identity}-d">'
        f'<title id="{identity}-t">{escape(clean(panel.title))}</title>'
        f'<desc id="{identity}-d">{escape(clean(said))}</desc>{body}</svg>'
    )


def swatch(key: Key) -> str:
    """A legend's little line with its marker."""
    dash = dash_of(key.series)
    return (
        '<svg class="swatch" viewBox="0 0 26 12" width="26" height="12" aria-hidden="true">'
        + path("M0,6H26", f"line c{colour_of(key.series)}", dash=dash)
        + path(marker(13, 6, key.series), marker_class(key.series))
        + "</svg>"
    )


def marker_class(series: int) -> str:
    """Crosses are drawn, other markers filled."""
    kind = "cross" if marker_of(series) == "cross" else "mark"
    return f"{kind} c{colour_of(series)}"


def x_axis(axis: Axis, frame: Frame) -> str:
    """Grid lines, tick labels and the axis' name under a plot."""
    left, right, top, bottom = frame
    parts = []
    for at, text in axis.ticks(right - left):
        x = left + at * (right - left)
        parts.append(line(x, top, x, bottom, "grid"))
        # The outermost labels lean inwards rather than out of the picture.
        half = text_width(text, TEXT) / 2
        x = min(max(x, half + 1), right + 24 - half)
        parts.append(label(x, bottom + 16, text, "tick", "middle"))
    parts.append(line(left, bottom, right, bottom, "axis"))
    if axis.label:
        parts.append(label((left + right) / 2, bottom + 34, axis.label, "name", "middle"))
    return "".join(parts)


def y_axis(axis: Axis, frame: Frame) -> str:
    """Grid lines and tick labels beside a plot; its name stands above it."""
    left, right, top, bottom = frame
    parts = []
    for at, text in axis.ticks(bottom - top, apart=36.0):
        y = bottom - at * (bottom - top)
        parts.append(line(left, y, right, y, "grid"))
        parts.append(label(left - 7, y + 4, text, "tick", "end"))
    return "".join(parts)


def y_room(axis: Axis, length: float) -> float:
    """Pixels that the tick labels of a vertical axis take."""
    return max((text_width(t.text, TEXT) for t in axis.ticks(length, apart=36.0)), default=0) + 12


def references(marks: Sequence[Reference], axis: Axis, frame: Frame) -> str:
    """Dashed lines across a plot, each with its word at the top."""
    parts = []
    for mark in marks:
        x = float(frame.across(axis, [mark.at])[0])
        parts.append(line(x, frame.top, x, frame.bottom, "reference"))
        roomy = x + text_width(mark.text, 11) + 6 < frame.right
        place, anchor = (x + 4, "start") if roomy else (x - 4, "end")
        parts.append(label(place, frame.top - 5, mark.text, "remark", anchor))
    return "".join(parts)


def draw_curves(panel: Curves, width: float) -> tuple[str, float, str]:
    """Lines with markers and intervals."""
    top, bottom = 44.0, panel.height - (42.0 if panel.x.label else 24.0)
    left = max(y_room(panel.y, bottom - top), 30.0)
    room = 0.0
    if panel.direct:
        room = min(max(text_width(c.label, TEXT) for c in panel.curves) + 14, 150.0)
    frame = Frame(left, width - max(room, 14.0), top, bottom)
    parts = [label(0, 14, panel.title, "title")]
    if panel.y.label:
        parts.append(label(0, 31, panel.y.label, "name"))
    parts.append(y_axis(panel.y, frame))
    parts.append(x_axis(panel.x, frame))
    parts.append(references(panel.references, panel.x, frame))
    parts.extend(draw_curve(curve, panel, frame) for curve in panel.curves)
    if panel.direct:
        parts.append(end_labels(panel, frame, room))
    named = ", ".join(c.label for c in panel.curves)
    return "".join(parts), panel.height, f"Curves of {named} over {panel.x.label}."


def draw_curve(curve: Curve, panel: Curves, frame: Frame) -> str:
    """One line, its intervals and its markers."""
    x = frame.across(panel.x, curve.x) + curve.aside * ASIDE
    y = frame.up(panel.y, curve.y)
    colour = f"c{colour_of(curve.series)}"
    parts = [element("title", escape(clean(curve.label)))]
    if curve.spread_low is not None and curve.spread_high is not None:
        spreads = zip(curve.spread_low.tolist(), curve.spread_high.tolist(), strict=True)
        d = "".join(
            whisker(at, spread, panel.y, frame)
            for at, spread in zip(x.tolist(), spreads, strict=True)
            if all(map(math.isfinite, spread))
        )
        if d:
            parts.append(path(d, f"whisker {colour}"))
    d = polyline(x, y, step=curve.step)
    parts.append(path(d, f"line {colour}", dash=dash_of(curve.series)))
    places = [
        (float(x[i]), float(y[i])) for i in curve.markers.tolist() if math.isfinite(float(y[i]))
    ]
    if places:
        parts.append(
            path("".join(marker(a, b, curve.series) for a, b in places), marker_class(curve.series))
        )
    return element("g", "".join(parts))


def whisker(x: float, spread: tuple[float, float], axis: Axis, frame: Frame) -> str:
    """Drawing commands of a vertical interval.

    Args:
        x: where it stands.
        spread: both ends; one beyond the axis gets no cap, since the interval goes on there.
        axis: of the values.
        frame: of the plot.
    """
    places = frame.up(axis, spread).tolist()
    d = f"M{number(x)},{number(places[0])}V{number(places[1])}"
    for value, at in zip(spread, places, strict=True):
        if axis.low <= value <= axis.high:
            d += f"M{number(x - 3)},{number(at)}h6"
    return d


def end_labels(panel: Curves, frame: Frame, room: float) -> str:
    """The names of curves at their right ends, moved apart where they would overlap."""
    ends = []
    for curve in panel.curves:
        known = np.flatnonzero(np.isfinite(curve.y))
        if known.size:
            ends.append((float(frame.up(panel.y, [curve.y[known[-1]]])[0]), curve))
    ends.sort(key=lambda e: e[0])
    places = apart([y for y, _ in ends], frame)
    return "".join(
        label(
            frame.right + 8,
            y + 4,
            shorten(c.label, room - 10, TEXT),
            f"direct c{colour_of(c.series)}",
        )
        for y, (_, c) in zip(places, ends, strict=True)
    )


def apart(places: Sequence[float], frame: Frame, gap: float = 14.0) -> list[float]:
    """Ascending places moved as little as a two-way sweep needs to keep them `gap` apart."""
    moved = list(places)
    for i in range(len(moved)):
        moved[i] = max(moved[i], frame.top + 4 if i == 0 else moved[i - 1] + gap)
    for i in range(len(moved) - 1, -1, -1):
        moved[i] = min(moved[i], frame.bottom if i == len(moved) - 1 else moved[i + 1] - gap)
    return moved


def draw_strips(panel: Strips, width: float) -> tuple[str, float, str]:
    """Filled bands under each other."""
    names = max((text_width(s.label, TEXT) for s in panel.strips), default=0.0)
    left = min(max(names * 1.08, 30.0), 170.0) + 54.0
    right = width - 62.0
    tall = STRIPS.get(len(panel.strips), STRIP)
    parts = [label(0, 14, panel.title, "title")]
    parts.append(label(width, 14, panel.figure_title, "name", "end"))
    top = 38.0 if panel.references else 26.0
    bottom = top + len(panel.strips) * (tall + STRIP_GAP) - STRIP_GAP
    frame = Frame(left, right, top, bottom)
    parts.append(x_axis(panel.x, frame))
    for strip in panel.strips:
        floor = top + tall
        for at, text in panel.y.ticks(tall, apart=20.0):
            level = floor - at * tall
            parts.append(line(left, level, right, level, "grid"))
            parts.append(label(left - 7, level + 4, text, "small", "end"))
        x = frame.across(panel.x, strip.x)
        y = floor - panel.y.fraction(np.append(strip.y, strip.y[-1])) * tall
        parts.append(path(area_under(x, y, floor), f"area c{colour_of(strip.series)}"))
        parts.append(line(left, floor, right, floor, "axis"))
        middle = top + tall / 2 + 4
        shown = shorten(strip.label, left - 53.0, TEXT * 1.08)
        parts.append(label(0, middle, shown, f"direct c{colour_of(strip.series)}"))
        parts.append(label(width, middle, strip.figure, "figure", "end"))
        top += tall + STRIP_GAP
    parts.append(references(panel.references, panel.x, frame._replace(top=38.0)))
    said = ", ".join(f"{s.label} {panel.figure_title} {s.figure}" for s in panel.strips)
    return "".join(parts), bottom + 42.0, said + "."


def area_under(x: Floats, y: Floats, floor: float) -> str:
    """Drawing commands of the area between a step line and the floor; unknown parts stay empty."""
    known = np.isfinite(y)
    d = []
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(np.int8)))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        part = polyline(x[start:stop], y[start:stop], step=True)
        d.append(f"{part}V{number(floor)}H{number(float(x[start]))}z")
    return "".join(d)


def draw_ranges(panel: Ranges, width: float) -> tuple[str, float, str]:
    """Percentile ranges in categories."""
    names = max((text_width(r.label, TEXT) for r in panel.rows), default=0.0)
    left = min(max(names, 40.0), 150.0) + 56.0
    right = width - 14.0
    top = 28.0
    y = top
    parts = [label(0, 14, panel.title, "title")]
    body = []
    for row in panel.rows:
        tall = max(len(row.ranges) * RANGE, 18.0) + 10.0
        if y > top:
            body.append(line(0, y, right, y, "grid"))
        middle = y + tall / 2 + 4
        body.append(label(0, middle, shorten(row.label, left - 54, TEXT), "category"))
        body.append(label(left - 8, middle, row.detail, "small", "end"))
        for i, r in enumerate(row.ranges):
            at = y + tall / 2 + (i - (len(row.ranges) - 1) / 2) * RANGE
            body.append(draw_range(r, at, Frame(left, right, top, y), panel.x))
        y += tall
    parts.append(x_axis(panel.x, Frame(left, right, top, y)))
    said = "; ".join(
        f"{row.label}: "
        + ", ".join(f"{r.label} median {duration_text(r.p50)}" for r in row.ranges if r.jobs)
        for row in panel.rows
    )
    return "".join(parts) + "".join(body), y + 42.0, said + "."


def draw_range(r: Range, y: float, frame: Frame, axis: Axis) -> str:
    """One series' range: thin 5–95, thick 25–75, marker at the median.

    Args:
        r: the percentiles.
        y: where it stands.
        frame: of the plot.
        axis: of the values.
    """
    if not r.jobs:
        return ""
    p5, p25, p50, p75, p95 = frame.across(axis, [r.p5, r.p25, r.p50, r.p75, r.p95]).tolist()
    colour = f"c{colour_of(r.series)}"
    tip = (
        f"{r.label}: median {duration_text(r.p50)}, 25–75 % {duration_text(r.p25)} to "
        f"{duration_text(r.p75)}, 95 % {duration_text(r.p95)}, {plural(r.jobs, 'job')}"
    )
    return element(
        "g",
        element("title", escape(clean(tip)))
        + line(p5, y, p95, y, f"thin {colour}")
        + line(p25, y, p75, y, f"thick {colour}")
        + path(marker(p50, y, r.series, 3.6), marker_class(r.series)),
    )


def draw_bars(panel: Bars, width: float) -> tuple[str, float, str]:
    """Horizontal bars with intervals and figures in a column at the right."""
    names = max((text_width(b.label, TEXT) for b in panel.bars), default=0.0)
    left = min(max(names * 1.22, 40.0), 160.0) + 12.0
    figures = max((text_width(b.text, TEXT) for b in panel.bars), default=0.0) * 1.06
    right = width - max(figures, 40.0) - 16.0
    top = 26.0
    bottom = top + len(panel.bars) * BAR + 4.0
    parts = [label(0, 14, panel.title, "title")]
    if panel.note:
        parts.append(label(width, 14, panel.note, "name", "end"))
    frame = Frame(left, right, top, bottom)
    parts.append(x_axis(panel.x, frame))
    for i, bar in enumerate(panel.bars):
        y = top + 2.0 + i * BAR + BAR / 2
        weight = " best" if bar.best else ""
        shown = shorten(bar.label, left - 10, TEXT * (1.2 if bar.best else 1.05))
        parts.append(label(left - 8, y + 4, shown, f"category{weight}", "end"))
        parts.append(label(width, y + 4, bar.text, f"figure{weight}", "end"))
        if not math.isfinite(bar.value):
            continue
        value, low, high = frame.across(panel.x, [bar.value, bar.low, bar.high]).tolist()
        parts.append(rect(left, y - 7, value - left, 14, f"bar c{colour_of(bar.series)}"))
        if math.isfinite(low) and high - low > 0.5:
            d = f"M{number(low)},{number(y)}H{number(high)}"
            for end, at in ((bar.low, low), (bar.high, high)):
                if panel.x.low <= end <= panel.x.high:
                    d += f"M{number(at)},{number(y - 4)}v8"
            parts.append(path(d, "interval"))
    parts.append(line(left, top, left, bottom, "axis"))
    said = ", ".join(f"{b.label} {b.text}" for b in panel.bars)
    return "".join(parts), bottom + (42.0 if panel.x.label else 22.0), said + "."


def draw_gantt(panel: Gantt, width: float) -> tuple[str, float, str]:
    """Bands of nodes with blocks of jobs."""
    lane = min(max(720.0 / max(panel.total_lanes, 1), 1.6), 11.0)
    gap = 4.0
    names = max((text_width(n.name, 11.0) for n in panel.nodes), default=0.0)
    left = min(max(names, 30.0), 150.0) + 10.0
    right = width - 14.0
    top = 28.0
    tops: list[float] = []  # of each lane, in pixels
    bands = []
    y = top
    for node in panel.nodes:
        tall = max(node.lanes * lane, 11.0)
        tops.extend(y + np.arange(node.lanes) * (tall / max(node.lanes, 1)))
        bands.append(rect(left, y, right - left, tall, "idle"))
        shown = shorten(node.name, left - 10, 11.0)
        bands.append(label(left - 6, y + tall / 2 + 4, shown, "node", "end"))
        y += tall + gap
    frame = Frame(left, right, top, y)
    # Past the last lane of each node there is a gap: a block's end is its last lane's end.
    lane_top = np.asarray(tops, dtype=np.float64)
    lane_end = np.empty_like(lane_top)
    for node in panel.nodes:
        here = slice(node.top, node.top + node.lanes)
        step = max(node.lanes * lane, 11.0) / max(node.lanes, 1)
        lane_end[here] = lane_top[here] + step
    parts = [label(0, 14, panel.title, "title")]
    if panel.note:
        parts.append(label(width, 14, panel.note, "name", "end"))
    parts.extend(bands)
    parts.append(x_axis(panel.x, frame))
    parts.append(gantt_jobs(panel, frame, Lanes(lane_top, lane_end)))
    parts.append(gantt_tail(panel, frame, Lanes(lane_top, lane_end)))
    parts.append(references(panel.marks, panel.x, frame))
    said = (
        f"{plural(len(panel.job_name), 'job')} on {plural(len(panel.nodes), 'node')}, "
        f"{duration_text(panel.x.high - panel.x.low)}."
    )
    return "".join(parts), frame.bottom + 42.0, said


class Lanes(NamedTuple):
    """The first and last pixel of each lane of a Gantt chart."""

    top: Floats
    end: Floats

    def place(self, lane: float) -> float:
        """The pixel of a fractional lane."""
        whole = min(int(lane), self.top.shape[0] - 1)
        return float(self.top[whole] + (lane - whole) * (self.end[whole] - self.top[whole]))


def gantt_jobs(panel: Gantt, frame: Frame, lanes: Lanes) -> str:
    """A group for each job, so that pointing at one block shows all its blocks."""
    x0, x1 = frame.across(panel.x, panel.start), frame.across(panel.x, panel.end)
    parts = []
    blocks: dict[int, list[int]] = {}
    for i, job in enumerate(panel.job.tolist()):
        blocks.setdefault(job, []).append(i)
    links: dict[int, tuple[list[str], list[str]]] = {}
    for link in panel.links:
        x = float(frame.across(panel.x, [link.time])[0]) + 1.0
        places = [lanes.place(lane) for lane in link.lanes]
        line_of, dots_of = links.setdefault(link.job, ([], []))
        line_of.append(f"M{number(x)},{number(places[0])}V{number(places[-1])}")
        dots_of.extend(f"M{number(x)},{number(y)}h0" for y in places)
    for job, mine in sorted(blocks.items()):
        d = []
        words = []
        for i in mine:
            a, b = float(x0[i]), float(x1[i])
            top = float(lanes.top[panel.lane[i]])
            tall = float(lanes.end[panel.lane[i] + panel.lanes[i] - 1]) - top
            # A hair of ground between blocks keeps neighbours apart; nothing is thinner than one.
            wide = max(b - a - 0.5, 0.5)
            d.append(
                f"M{number(a)},{number(top)}h{number(wide)}v{number(tall - 0.5)}h-{number(wide)}z"
            )
            name = panel.job_name[job]
            if tall >= 11.0 and wide > text_width(name, 10.0) + 6:
                words.append(label(a + 3, top + tall / 2 + 3.5, name, "job"))
        tip = f"{panel.job_name[job]}: {panel.job_detail[job]}"
        body = element("title", escape(clean(tip))) + path("".join(d), f"j{panel.job_colour[job]}")
        body += "".join(words)
        if job in links:
            body += path("".join(links[job][0]), "gang")
            # Round caps make dots of empty strokes: these are the nodes that the gang is on.
            body += path("".join(links[job][1]), "gang dots")
        parts.append(element("g", body, class_="chosen" if job == panel.chosen else None))
    return element("g", "".join(parts), class_="jobs")


def gantt_tail(panel: Gantt, frame: Frame, lanes: Lanes) -> str:
    """A dashed frame from the chosen job's last end until the latest one that is likely."""
    mine = np.flatnonzero(panel.job == panel.chosen)
    if panel.tail is None or not mine.size or panel.tail <= panel.end[mine].max():
        return ""
    end = float(panel.end[mine].max())
    a, b = frame.across(panel.x, [end, panel.tail]).tolist()
    parts = []
    for i in mine[panel.end[mine] == end].tolist():
        top = float(lanes.top[panel.lane[i]])
        tall = float(lanes.end[panel.lane[i] + panel.lanes[i] - 1]) - top
        parts.append(rect(a, top + 0.5, max(b - a, 0.5), max(tall - 1.0, 0.5), "tail"))
    return "".join(parts)
