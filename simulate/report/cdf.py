"""Empirical distributions, thinned for drawing to points that lie exactly on the curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulate.results.tables import Floats, Ints

# Where a curve carries its marker: the percentiles that people compare.
MARKED = (0.5, 0.9, 0.99)


class StepCdf(NamedTuple):
    """`share[k]` of the values are at most `value[k]`; ascending, on the exact curve."""

    value: Floats
    share: Floats
    known: int  # how many values were known


def cdf(values: Floats, points: int = 400) -> StepCdf:
    """The share of values at or below each; all distinct values when they are at most `points`.

    Thinning keeps the ends, even steps in share, and even steps in the logarithm of the value, so
    that neither the body nor the tail loses its shape. NaN is left out.
    """
    known = np.sort(values[np.isfinite(values)])
    n = known.shape[0]
    if n == 0:
        return StepCdf(np.empty(0), np.empty(0), 0)
    last = np.flatnonzero(np.append(known[1:] != known[:-1], True))  # last row of each value
    if last.shape[0] > points:
        last = np.unique(np.concatenate([last[thin(known[last], last, points)], last[[0, -1]]]))
    return StepCdf(known[last], (last + 1) / n, n)


def thin(distinct: Floats, rank: Ints, points: int) -> Ints:
    """Which of the distinct values to keep, about `points` of them."""
    half = points // 2
    by_share = np.searchsorted(rank, np.linspace(0, rank[-1], half))
    positive = distinct[distinct > 0]
    if not positive.size:
        return np.unique(by_share)
    grid = np.geomspace(positive[0], positive[-1], half)
    by_value = np.minimum(np.searchsorted(distinct, grid), distinct.shape[0] - 1)
    return np.unique(np.concatenate([by_share, by_value]))


def marker_places(curve: StepCdf, marked: tuple[float, ...] = MARKED) -> Ints:
    """Points at which the curve first reaches the marked shares."""
    if curve.known < 2:
        return np.zeros(min(curve.known, 1), dtype=np.int64)
    found = np.searchsorted(curve.share, np.asarray(marked) - 1e-12)
    return np.unique(np.minimum(found, curve.share.shape[0] - 1))


def at_least(counts: Floats) -> StepCdf:
    """The share of jobs with at least k of something, for each k from 1 that changes it."""
    known = np.sort(counts[np.isfinite(counts)])
    n = known.shape[0]
    if n == 0:
        return StepCdf(np.empty(0), np.empty(0), 0)
    ks = np.unique(known[known >= 1])
    if not ks.size:
        return StepCdf(np.array([1.0]), np.array([0.0]), n)
    share = (n - np.searchsorted(known, ks, side="left")) / n
    # The tail ends at zero just past the largest count.
    return StepCdf(np.append(ks, ks[-1] + 1), np.append(share, 0.0), n)
