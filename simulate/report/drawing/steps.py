"""Step series over time made short enough to draw, without changing their time-weighted mean."""

from __future__ import annotations

import numpy as np

from simulate.results.tables import Floats, Ints, Timeline


def last_time(timeline: Timeline) -> float:
    """When the series ends, 0 when it is empty."""
    return float(timeline.time[-1]) if timeline.time.shape[0] else 0.0


def bin_edges(start: float, end: float, bins: int) -> Floats:
    """Even bins from `start` to `end` seconds."""
    return np.linspace(start, end, bins + 1)


def area(time: Floats, value: Floats, at: Floats) -> Floats:
    """The integral of a step series from its start to each of `at`; it is zero outside."""
    grown = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(time))])
    found: Floats = np.interp(at, time, grown)
    return found


def bin_means(time: Floats, value: Floats | Ints, edges: Floats) -> Floats:
    """Time-weighted mean of a step series in each bin, over the part of the bin that it covers.

    NaN where the bin lies outside the series. Means times covered widths add up to the integral.
    """
    if time.shape[0] < 2:
        return np.full(edges.shape[0] - 1, np.nan)
    inside = np.clip(edges, time[0], time[-1])
    width = np.diff(inside)
    whole = np.diff(area(time, np.asarray(value, dtype=np.float64), edges))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(width > 0, whole / width, np.nan)


def utilization(timeline: Timeline, edges: Floats) -> Floats:
    """Allocated GPU-time over GPU-time in service, per bin; NaN where none was in service."""
    used = bin_means(timeline.time, timeline.allocated_gpus, edges)
    total = bin_means(timeline.time, timeline.total_gpus, edges)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, used / total, np.nan)


def time_weighted_mean(time: Floats, value: Floats | Ints) -> float:
    """Mean of a step series over its whole span, NaN when it has none."""
    if time.shape[0] < 2 or not time[-1] > time[0]:
        return float("nan")
    return float(np.sum(value[:-1] * np.diff(time)) / (time[-1] - time[0]))
