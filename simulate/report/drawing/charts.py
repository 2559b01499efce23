"""What a picture shows, as data: the one layer that the page and the plot files both draw.

A `Figure` has panels; a panel is curves, strips, ranges, bars or a Gantt chart over `Axis` scales.
Nothing here knows about SVG, HTML or matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from simulate.report.drawing.scale import Axis
from simulate.results.tables import Floats, Ints


class Key(NamedTuple):
    """One entry of a legend: a name and the number of its colour, marker and dash."""

    label: str
    series: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line; `step` keeps each y until the next x; `spread_*` are ends of intervals per point."""

    label: str
    series: int
    x: Floats
    y: Floats
    step: bool = False
    markers: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # indices into x
    spread_low: Floats | None = None
    spread_high: Floats | None = None
    aside: float = 0.0  # moved sideways by so many marker widths, where points share their x


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A line across a panel at one value of its x axis, with a word on it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Lines over two axes; with `direct` each is named at its right end."""

    title: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    references: tuple[Reference, ...] = ()
    direct: bool = False
    wide: bool = False
    height: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One series in a band of its own, filled down to zero, with a figure at its right."""

    label: str
    series: int
    x: Floats
    y: Floats
    figure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """Bands above each other over one x axis, each with the same y axis."""

    title: str
    x: Axis
    y: Axis
    strips: tuple[Strip, ...]
    references: tuple[Reference, ...] = ()
    figure_title: str = ""
    wide: bool = True


class Range(NamedTuple):
    """Five percentiles of one series: 5, 25, 50, 75 and 95; NaN when it has no values."""

    series: int
    label: str
    jobs: int
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


class RangeRow(NamedTuple):
    """One category with a range per series."""

    label: str
    detail: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Categories from top to bottom, in each a range per series."""

    title: str
    x: Axis
    rows: tuple[RangeRow, ...]
    wide: bool = False


class Bar(NamedTuple):
    """A bar from zero with an interval (NaN ends: none) and the figure written beside it."""

    label: str
    series: int
    value: float
    low: float
    high: float
    text: str
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars over an axis that starts at zero."""

    title: str
    x: Axis
    bars: tuple[Bar, ...]
    reference: Reference | None = None
    note: str = ""
    wide: bool = False


class NodeRow(NamedTuple):
    """A node's band: its name, GPUs, first lane in the picture and how many lanes it takes."""

    name: str
    gpus: int
    top: int
    lanes: int


class Link(NamedTuple):
    """A moment at which a gang over several nodes starts, and where it is: ascending lanes."""

    job: int
    time: float
    lanes: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gantt:
    """Placements over time: blocks of lanes × time. Arrays have one entry for each block.

    `job` indexes `job_name`, `job_detail` and `job_colour`. One lane is one GPU's worth, so that an
    area is GPU-time; which of a node's GPUs a job held is not recorded, so the lane is only a place
    to draw. The job `chosen` has a frame, and a dashed one from its end until `tail`, if given;
    `marks` are moments.
    """

    title: str
    x: Axis
    nodes: tuple[NodeRow, ...]
    job: Ints
    lane: Ints
    lanes: Ints
    start: Floats
    end: Floats
    job_name: tuple[str, ...]
    job_detail: tuple[str, ...]
    job_colour: tuple[int, ...]
    links: tuple[Link, ...]
    note: str = ""
    wide: bool = True
    marks: tuple[Reference, ...] = ()
    chosen: int = -1
    tail: float | None = None

    @property
    def total_lanes(self) -> int:
        """Lanes of all nodes together."""
        return sum(node.lanes for node in self.nodes)


Panel = Curves | Strips | Ranges | Bars | Gantt


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under a heading; the first column names the row. `best` marks (row, column)."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()  # heading and number of rows, in order
    best: frozenset[tuple[int, int]] = frozenset()
    near: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One numbered picture: panels, a legend, and a caption. `absent` says why it has no panels.

    With `choice` the panels are alternatives (one a run) instead of parts; the names are theirs.
    """

    key: str
    title: str
    caption: str = ""
    panels: tuple[Panel, ...] = ()
    legend: tuple[Key, ...] = ()
    choice: tuple[str, ...] = ()
    stacked: bool = False  # the first panel at the left, the others under each other at its right
    absent: str = ""
    table: Table | None = None

    @property
    def is_absent(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.panels


def legend_of(keys: Sequence[Key]) -> tuple[Key, ...]:
    """A legend, which a single series does not need."""
    return tuple(keys) if len(keys) > 1 else ()
