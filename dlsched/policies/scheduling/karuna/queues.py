"""Queues by size, and the limits between them that make the mean response time least.

A job or flow of known size is in queue 1 + #{limits ≤ size} for life; one of unknown size in queue
1 + #{limits ≤ what it has had}, and sinks. Limits for known sizes follow from a queueing model:
Poisson arrivals at rate λ, service of size S at capacity 1, classes by size, preemptive. With the
class k between two limits, p its probability, m₁ = E[S; k], m₂ = E[S²; k] and σₖ the load of the
classes up to k,

    Tₖ = (m₁/p) / (1 − σₖ₋₁) + (λ/2) Σᵢ≤ₖ m₂ᵢ / ((1 − σₖ₋₁)(1 − σₖ)),     mean = Σ pₖ Tₖ

The paper solves a related program for both lists at once; this is the standard result, exact for
its model.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.blas import one_thread

EVALUATIONS = 4000  # of the mean, from each start
AGAIN = 2  # begun anew where it ended, so that a flat simplex does not stop it
ENDS = (0.001, 0.9999)  # shares of the sizes between which limits are tried first


def queues_of(values: Floats, limits: Sequence[float]) -> Ints:
    """The queue of each value, from 1: one more than the limits at or below it."""
    return 1 + np.searchsorted(np.asarray(limits, np.float64), values, side="right")


class Sizes(ABC):
    """A distribution of sizes."""

    @abstractmethod
    def moments(self, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
        """Probability, E[S; low ≤ S < high] and E[S²; …] of each class."""

    @abstractmethod
    def quantile(self, share: Floats) -> Floats:
        """Sizes below which these shares lie."""


class Sample(Sizes):
    """The sizes of past jobs."""

    def __init__(self, sizes: Sequence[float] | Floats) -> None:
        """Take a sample, which must not be empty."""
        self._sizes: Floats = np.sort(np.asarray(sizes, np.float64))
        powers = np.stack([self._sizes**power for power in range(3)])
        self._sums = np.concatenate([np.zeros((3, 1)), np.cumsum(powers, axis=1)], axis=1)

    def moments(self, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
        """Sums over the sample."""
        first, last = (np.searchsorted(self._sizes, end, side="left") for end in (low, high))
        part = (self._sums[:, last] - self._sums[:, first]) / len(self._sizes)
        return part[0], part[1], part[2]

    def quantile(self, share: Floats) -> Floats:
        """Of the sample."""
        found: Floats = np.quantile(self._sizes, share)
        return found


def mean_response(sizes: Sizes, rate: float, limits: Sequence[float] | Floats) -> float:
    """The mean time from arrival to end; infinite where the capacity is too small.

    Args:
        sizes: their distribution, in seconds of the whole capacity.
        rate: arrivals per second.
        limits: between the classes, in any order; none is first come, first served.
    """
    inner = np.sort(np.asarray(limits, np.float64))
    ends = np.concatenate([[0.0], inner, [math.inf]])
    probability, first, second = sizes.moments(ends[:-1], ends[1:])
    upto = rate * np.cumsum(first)
    before = np.concatenate([[0.0], upto[:-1]])
    if upto[-1] >= 1 or (ends < 0).any():
        return math.inf
    waits = rate / 2 * np.cumsum(second) / ((1 - before) * (1 - upto))
    # Σ p (m₁/p)/(1−σ) has no p, so that an empty class counts for nothing
    return float((first / (1 - before) + probability * waits).sum())


def best_limits(sizes: Sizes, rate: float, queues: int) -> tuple[tuple[float, ...], float]:
    """The limits of so many queues that make the mean response time least, and that mean.

    By Nelder and Mead, from the best limits of one queue less with one more in each gap. The
    optimum is flat, so that limits are less sure than the mean.
    """
    with one_thread():
        from scipy.optimize import minimize  # noqa: PLC0415 - heavy, and only used here

    best, least = np.zeros(0), mean_response(sizes, rate, ())
    ends = sizes.quantile(np.array(ENDS))
    for _ in range(queues - 1):
        before = np.concatenate([ends[:1], best, ends[1:]])
        starts = [np.sort(np.append(best, one)) for one in np.sqrt(before[:-1] * before[1:])]
        least = math.inf
        for start in starts:
            point = start
            for _ in range(AGAIN):
                found = minimize(
                    lambda limits: mean_response(sizes, rate, limits),
                    point,
                    method="Nelder-Mead",
                    options={"xatol": 1e-10, "fatol": 1e-13, "maxfev": EVALUATIONS},
                )
                point = found.x
            if found.fun < least:
                best, least = np.sort(found.x), float(found.fun)
    return tuple(best.tolist()), least
