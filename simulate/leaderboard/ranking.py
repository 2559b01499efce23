"""Ranks that say only what chance does not explain.

An entry is better than another if its values are, trace by trace, a smaller part of the other's
than chance explains: a paired t test on logarithms (on differences where a value is 0), at 95 %
over all comparisons of the entry (Holm). Its rank runs from one after those that are better to one
before those that are worse. So each rank, by itself, is right in 95 of 100 cases (Mogstad, Romano,
Shaikh, Wilhelm, "Inference for Ranks", Review of Economic Studies 2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dlsched.policies.blas import one_thread
from simulate.results.tables import Floats

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
        values: by entry, 0 or more; the same traces in the same order.

    Returns:
        those that know the figure on every trace; where a run is missing, there is no rank.
    """
    most = max((len(each) for each in values.values()), default=0)
    known = {
        name: np.array(each)
        for name, each in values.items()
        if len(each) == most and np.isfinite(each).all()
    }
    found = {}
    for name, own in known.items():
        better, worse = _told_apart(own, [each for other, each in known.items() if other != name])
        found[name] = Rank(1 + better, len(known) - worse)
    return found


def _told_apart(own: Floats, others: Sequence[Floats]) -> tuple[int, int]:
    """How many others are better, and how many worse, by Holm's step-down procedure."""
    tests = sorted((_test(own, other) for other in others), key=lambda test: test[0])
    better = worse = 0
    for place, (chance, behind) in enumerate(tests):
        if chance > LEVEL / (len(tests) - place):
            break
        better += behind > 0
        worse += behind < 0
    return better, worse


def _test(own: Floats, other: Floats) -> tuple[float, float]:
    """How likely such a mean difference is if there is none, and how far `own` is behind."""
    if (own > 0).all() and (other > 0).all():
        own, other = np.log(own), np.log(other)
    gaps = own - other
    behind = float(gaps.mean())
    if len(gaps) < 2 or not gaps.any():  # one trace tells nothing
        return 1.0, behind
    spread = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    if not spread:
        return 0.0, behind
    with one_thread():
        from scipy.stats import t  # noqa: PLC0415  # 0.5 s to load

    return float(2 * t.sf(abs(behind) / spread, len(gaps) - 1)), behind
