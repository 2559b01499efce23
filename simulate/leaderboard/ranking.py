"""Ranks that say only what chance does not explain.

An entry is better than another if the mean of their differences, paired by trace, differs from zero
at 95 % (Student's t) after Holm's correction over all pairs of the table. Its rank runs from one
after those that are better to one before those that are worse.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.05


class Rank(NamedTuple):
    """The first and the last place that an entry may have."""

    first: int
    last: int

    def __str__(self) -> str:
        """`3`, or `3-7`."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


def ranks(values: Mapping[str, Sequence[float]]) -> dict[str, Rank]:
    """Ranks of entries in a figure of which less is better.

    Args:
        values: by entry; the same traces in the same order.

    Returns:
        those that know the figure on every trace; where a run is missing, there is no rank.
    """
    most = max((len(each) for each in values.values()), default=0)
    known = {
        name: np.array(each)
        for name, each in values.items()
        if len(each) == most and np.isfinite(each).all()
    }
    better = dict.fromkeys(known, 0)
    worse = dict.fromkeys(known, 0)
    for one, other in _told_apart(known):
        better[other] += 1
        worse[one] += 1
    return {name: Rank(1 + better[name], len(known) - worse[name]) for name in known}


def _told_apart(known: Mapping[str, np.ndarray]) -> list[tuple[str, str]]:
    """Pairs of which the first is better, by Holm's step-down procedure."""
    pairs = [(*pair, _chance(known[pair[0]], known[pair[1]])) for pair in _pairs(known)]
    pairs.sort(key=lambda pair: pair[2])
    found = []
    for place, (one, other, chance) in enumerate(pairs):
        if chance > LEVEL / (len(pairs) - place):
            break
        found.append((one, other) if known[one].mean() < known[other].mean() else (other, one))
    return found


def _pairs(known: Mapping[str, np.ndarray]) -> list[tuple[str, str]]:
    return list(itertools.combinations(known, 2))


def _chance(one: np.ndarray, other: np.ndarray) -> float:
    """How likely such a mean difference is if there is none: a paired t test; 1 for one trace."""
    gaps = one - other
    if len(gaps) < 2 or not gaps.any():
        return 1.0
    spread = gaps.std(ddof=1) / math.sqrt(len(gaps))
    if not spread:
        return 0.0
    from scipy.stats import t  # noqa: PLC0415  # 0.5 s to load

    return float(2 * t.sf(abs(gaps.mean()) / spread, len(gaps) - 1))
