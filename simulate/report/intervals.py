"""Means over seeds with 95 % intervals (Student's t), and differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

# Two-sided 95 % quantiles of Student's t for 1 … 30 degrees of freedom.
T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Estimate(NamedTuple):
    """A mean and the half width of its 95 % interval (NaN with fewer than two values)."""

    mean: float
    half_width: float
    seeds: int

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half_width


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to three digits."""
    if freedom <= len(T95):
        return T95[freedom - 1]
    # Cornish-Fisher: good to three digits from 30 degrees of freedom on.
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def estimate(values: Mapping[int, float]) -> Estimate:
    """Mean over seeds; unknown values make the mean unknown rather than a mean of fewer seeds."""
    column = np.array([values[seed] for seed in sorted(values)], dtype=np.float64)
    if not column.size or not np.isfinite(column).all():
        return Estimate(math.nan, math.nan, 0)
    if column.size < 2:
        return Estimate(float(column[0]), math.nan, 1)
    spread = float(column.std(ddof=1)) / math.sqrt(column.size)
    return Estimate(float(column.mean()), t_quantile(column.size - 1) * spread, column.size)


def paired_difference(one: Mapping[int, float], other: Mapping[int, float]) -> Estimate:
    """`one` minus `other` over the seeds that both have."""
    return estimate({seed: one[seed] - other[seed] for seed in one if seed in other})
