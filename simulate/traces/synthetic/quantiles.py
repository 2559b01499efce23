"""Inverse distribution functions, by tables: lognormal mixtures and the gamma distribution.

Samples are drawn in strata: `stratified` turns any latent order into one uniform number for every
n-th part of (0, 1). So a sample follows its distribution closely even when it is small, and how
the values follow each other is left to the latent order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlsched.core.sums import ordered_sum
from simulate.traces.synthetic.profiles import Lognormal
from simulate.traces.trace import FloatColumn

SHORTEST_S, LONGEST_S = 1.0, 5.2e6
_TABLE_POINTS = 8_192


def stratified(latent: FloatColumn, rng: np.random.Generator) -> FloatColumn:
    """Return uniform numbers in (0, 1), one in each of n equal parts, in the order of `latent`."""
    count = len(latent)
    rank = np.empty(count)
    rank[np.argsort(latent, kind="stable")] = np.arange(count)
    return (rank + rng.random(count)) / max(count, 1)


def mixture_seconds(uniform: FloatColumn, mixture: Sequence[Lognormal]) -> FloatColumn:
    """Map uniform numbers on durations: whole seconds, at least 1 and at most 5.2e6."""
    log_s = np.linspace(math.log(SHORTEST_S / 4), math.log(LONGEST_S), _TABLE_POINTS)
    total = ordered_sum(part.weight for part in mixture)
    below = np.array(
        [
            ordered_sum(
                part.weight * math.erfc((part.mu - at) / (part.sigma * math.sqrt(2)))
                for part in mixture
            )
            / (2 * total)
            for at in log_s.tolist()
        ]
    )
    seconds = np.exp(np.interp(uniform, below, log_s))
    return np.clip(np.rint(seconds), SHORTEST_S, LONGEST_S)


def gamma_values(uniform: FloatColumn, shape: float) -> FloatColumn:
    """Map uniform numbers on a gamma distribution of this shape and mean 1."""
    # A table over y = x^power: there the density is finite at 0 also for shapes below 1.
    power = min(shape, 1.0)
    y = np.linspace(0.0, (shape + 10 * math.sqrt(shape) + 30) ** power, 16 * _TABLE_POINTS)
    x = y ** (1 / power)
    density = x ** (shape - power) * np.exp(-x)
    below = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    values: FloatColumn = np.interp(uniform, below / below[-1], y) ** (1 / power) / shape
    return values
