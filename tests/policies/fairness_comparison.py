"""What dominant resource fairness is compared with, and its discrete form.

- Asset fairness: all accounts hold the same sum of shares. An account can get less than from an
  equal division of all resources.
- CEEI, competitive equilibrium from equal incomes: max Σ_i log x_i under the capacities. An account
  can gain by misstating its demand.
- Algorithm 1 of the paper: whole tasks, one at a time.

Source: DRF (NSDI 2011), sections 4, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.policies.fairness.drf import Cap, Vector, dominant_share, eligible, shares

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


def precedence(used: Vector, capacity: Vector, weight: Fraction | int = 1) -> tuple[Fraction, ...]:
    """The sort key of accounts: dominant share, then the next largest shares."""
    return tuple(sorted(shares(used, capacity, weight), reverse=True))


@dataclass(frozen=True, slots=True)
class Served:
    """The result of Algorithm 1.

    Attributes:
        tasks: whole tasks by account.
        sequence: accounts in the order in which they were served.
    """

    tasks: list[int]
    sequence: list[int]


def served(
    capacity: Vector,
    demands: Sequence[Vector],
    weights: Sequence[Fraction | int],
    caps: Sequence[Cap],
    *,
    misfit: Literal["skip", "stop"] = "skip",
) -> Served:
    """Serve the account with the least dominant share, one task at a time.

    Of equal shares, the account served less often is next, then the one listed first.

    Args:
        capacity: R.
        demands: D of one task, by account.
        weights: of each account, above 0.
        caps: tasks that an account has; None for any number.
        misfit: after a task that does not fit, its account waits (`skip`) or all accounts (`stop`).
    """
    free = list(capacity)
    tasks, sequence = [0] * len(demands), list[int]()
    waiting = {
        a for a, d in enumerate(demands) if eligible(d, capacity) and any(d) and caps[a] != 0
    }

    def urgency(a: int) -> tuple[Fraction, int, int]:
        return dominant_share([d * tasks[a] for d in demands[a]], capacity, weights[a]), tasks[a], a

    while waiting:
        a = min(waiting, key=urgency)
        if any(d > f for d, f in zip(demands[a], free, strict=True)):
            if misfit == "stop":
                break
            waiting.discard(a)
            continue
        free = [f - d for d, f in zip(demands[a], free, strict=True)]
        tasks[a] += 1
        sequence.append(a)
        if tasks[a] == caps[a]:
            waiting.discard(a)
    return Served(tasks, sequence)


def progress(demand: Sequence[Fraction], given: Sequence[Fraction]) -> Fraction:
    """The least ratio of allocation to demand over the links that a tenant needs; 0 without any."""
    return min((a / d for a, d in zip(given, demand, strict=True) if d > 0), default=Fraction(0))
