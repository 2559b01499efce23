"""Colours, markers and dashes of series: told apart without colour vision and in grey print.

Series colours follow Okabe and Ito's colour-blind-safe set, darkened where it is too pale for lines
on white; blocks of jobs use pale tints that carry dark text, after Tol's light scheme.
"""

from __future__ import annotations

LIGHT = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#b3578f",
    "#c98a00",
    "#3aa0d8",
    "#5f5f5f",
    "#8a4b12",
)
DARK = (
    "#4fa8e0",
    "#f0894a",
    "#3cc79d",
    "#dd8fbe",
    "#e6b43c",
    "#8bd0f5",
    "#b5b5b5",
    "#c9935c",
)
MARKERS = ("circle", "square", "triangle", "diamond", "down", "cross")
DASHES = ("", "6 3", "2 3", "8 3 2 3")

JOBS = (
    "#77aadd",
    "#ee8866",
    "#44bb99",
    "#eedd88",
    "#ffaabb",
    "#99ddff",
    "#bbcc33",
    "#c4a3d6",
    "#e0a96d",
    "#9fc9a0",
    "#d98fa6",
    "#8fb3c9",
    "#cfc06a",
    "#b7a08c",
)


def colour_of(series: int) -> int:
    """The number of a series' colour."""
    return series % len(LIGHT)


def dash_of(series: int) -> str:
    """Solid for the first series; dashes when colours come round again."""
    return DASHES[(series // len(LIGHT)) % len(DASHES)]


def marker_of(series: int) -> str:
    """The shape of a series' marker."""
    return MARKERS[(series + series // len(LIGHT)) % len(MARKERS)]
