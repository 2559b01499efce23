"""Two rules with which dominant resource fairness is compared, each without one of its properties.

- Asset fairness: all accounts hold the same sum of shares. An account can get less than from an
  equal division of all resources.
- CEEI, competitive equilibrium from equal incomes: max Σ_i log x_i under the capacities. An account
  can gain by misstating its demand.

Source: DRF (NSDI 2011), sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dlsched.core.arrays import Floats

BARRIERS = tuple(10.0**-k for k in range(1, 11))  # with smaller ones the equations are singular


def asset_fair(
    capacity: Sequence[Fraction], demands: Sequence[Sequence[Fraction]]
) -> list[Fraction]:
    """The most tasks x for which x_i · Σ_j D_ij / R_j is equal for all accounts i."""
    assets = [
        sum((d / r for d, r in zip(demand, capacity, strict=True)), Fraction(0))
        for demand in demands
    ]
    most = max(
        sum((demand[j] / a for demand, a in zip(demands, assets, strict=True)), Fraction(0)) / r
        for j, r in enumerate(capacity)
    )
    return [1 / (most * a) for a in assets]


def competitive(capacity: Floats, demands: Floats) -> Floats:
    """Tasks that maximise Σ log x, by Newton steps behind a barrier at the capacities."""
    scaled = demands / capacity
    x = np.full(len(demands), 0.5 / scaled.sum(axis=0).max())
    for barrier in BARRIERS:
        for _ in range(50):
            slack = 1.0 - x @ scaled
            gradient = 1.0 / x - barrier * (scaled / slack).sum(axis=1)
            curve = np.diag(1.0 / x**2) + barrier * (scaled / slack**2) @ scaled.T
            step = np.linalg.solve(curve, gradient)
            length = 1.0
            while (x + length * step <= 0).any() or ((x + length * step) @ scaled >= 1).any():
                length /= 2
            x = x + length * step
            if np.abs(step / x).max() < 1e-12:
                break
    return np.asarray(x, np.float64)
