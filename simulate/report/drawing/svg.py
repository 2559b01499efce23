"""SVG written as text: elements with escaped attributes, short coordinates, and paths."""

from __future__ import annotations

from html import escape

import numpy as np

from simulate.report.drawing.palette import marker_of
from simulate.report.wording import clean
from simulate.results.tables import Floats


def number(value: float) -> str:
    """A coordinate to a tenth of a pixel, without a trailing zero."""
    text = f"{value:.1f}"
    text = text[:-2] if text.endswith(".0") else text
    return "0" if text == "-0" else text


def element(name: str, content: str = "", **attributes: object) -> str:
    """An element; `class_` means `class` and other underscores are dashes; None leaves one out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{spell(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def spell(value: object) -> str:
    """An attribute's value."""
    return number(value) if isinstance(value, float) else escape(clean(value), quote=True)


def label(x: float, y: float, text: str, class_: str, anchor: str = "start") -> str:
    """A text.

    Args:
        x: where its anchor is.
        y: its baseline.
        text: what it says.
        class_: its class in the style sheet.
        anchor: start, middle or end.
    """
    return element(
        "text",
        escape(clean(text)),
        x=float(x),
        y=float(y),
        class_=class_,
        text_anchor=None if anchor == "start" else anchor,
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line.

    Args:
        x1: where it begins.
        y1: where it begins.
        x2: where it ends.
        y2: where it ends.
        class_: its class in the style sheet.
    """
    return f'<path class="{class_}" d="M{number(x1)},{number(y1)}L{number(x2)},{number(y2)}"/>'


def rect(x: float, y: float, width: float, height: float, class_: str) -> str:
    """A rectangle; a negative size counts as 0.

    Args:
        x: its left edge.
        y: its upper edge.
        width: to the right.
        height: downwards.
        class_: its class in the style sheet.
    """
    return element(
        "rect",
        x=float(x),
        y=float(y),
        width=float(max(width, 0.0)),
        height=float(max(height, 0.0)),
        class_=class_,
    )


def path(d: str, class_: str, *, dash: str = "") -> str:
    """A path of drawing commands."""
    return element("path", class_=class_, d=d, stroke_dasharray=dash)


def polyline(x: Floats, y: Floats, *, step: bool) -> str:
    """Drawing commands through known points; NaN breaks the line, repeats are dropped.

    A step keeps each y until the next x.
    """
    commands: list[str] = []
    px = py = ""
    pen_up = True
    xs, ys = np.round(x, 1).tolist(), np.round(y, 1).tolist()
    for at, height in zip(xs, ys, strict=True):
        if at != at or height != height:  # noqa: PLR0124  NaN
            pen_up = True
            continue
        nx, ny = number(at), number(height)
        if pen_up:
            commands.append(f"M{nx},{ny}")
            pen_up = False
        elif step:
            if nx != px:
                commands.append(f"H{nx}")
            if ny != py:
                commands.append(f"V{ny}")
        elif nx != px or ny != py:
            commands.append(f"L{nx},{ny}")
        px, py = nx, ny
    return "".join(commands)


SHAPES = {
    "circle": "M{l},{y}a{r},{r} 0 1 0 {d},0a{r},{r} 0 1 0 -{d},0z",
    "square": "M{l},{t}h{d}v{d}h-{d}z",
    "triangle": "M{x},{t}L{rt},{b}H{l}z",
    "diamond": "M{x},{t}L{rt},{y}L{x},{b}L{l},{y}z",
    "down": "M{x},{b}L{rt},{t}H{l}z",
    "cross": "M{l},{t}L{rt},{b}M{rt},{t}L{l},{b}",
}


def marker(x: float, y: float, series: int, radius: float = 4.0) -> str:
    """Drawing commands of a series' marker.

    Args:
        x: of its centre.
        y: of its centre.
        series: decides its shape.
        radius: half of its size.
    """
    places = {
        "x": x,
        "y": y,
        "l": x - radius,
        "rt": x + radius,
        "t": y - radius,
        "b": y + radius,
        "r": radius,
        "d": 2 * radius,
    }
    return SHAPES[marker_of(series)].format(**{k: number(v) for k, v in places.items()})
