"""The vertices of each job's own polytope {x ≥ 0, Σ_j x_j ≤ 1, Σ_j T_j x_j ≥ target}.

At a vertex a job uses one type only as long as it must, or one type all the time, or the one mix of
two types that fills its time and meets its target. Vertices are arrays [type, vertex, job], so that
finding the cheapest vertex of every job under given prices takes a few vector operations.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows

ROUNDING = 1e-12  # a target computed as the job's best may exceed 1 by this much


class Vertices:
    """The vertices of every job.

    Attributes:
        open: which vertices exist and may be used, [vertex, job].
    """

    def __init__(
        self, speed: Floats, hold: Floats, target: Floats, *, full_time: bool = False
    ) -> None:
        """Enumerate them.

        Args:
            speed: T relative to the job's best, [type, job].
            hold: part of a type's capacity that a job holds while it runs there, [type, job].
            target: throughput that each job must get, from 0 to 1 of its best.
            full_time: also those at which a job runs all the time and gets more than its target.
        """
        type_count, count = speed.shape
        fast, slow = np.triu_indices(type_count, 1)
        singles, mixes = np.arange(type_count), type_count + np.arange(len(fast))
        fulls = type_count + len(fast) + singles
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = target / speed
            mix = (target - speed[slow]) / (speed[fast] - speed[slow])
        runs = (speed > 0) & (alone <= 1 + ROUNDING)
        meets = (speed[fast] > 0) & (speed[slow] > 0) & (mix > 0) & (mix < 1)
        self._time = np.zeros((type_count, type_count * (1 + full_time) + len(fast), count))
        self._time[singles, singles] = np.where(runs, np.minimum(alone, 1.0), 0.0)
        self._time[fast, mixes] = np.where(meets, mix, 0.0)
        self._time[slow, mixes] = np.where(meets, 1.0 - mix, 0.0)
        self.open: Bools = np.concatenate([runs, meets])
        if full_time:
            self._time[singles, fulls] = runs
            self.open = np.concatenate([self.open, runs])
        self._use = self._time * hold[:, None, :]
        self._closed = np.where(self.open, 0.0, np.inf)
        self._jobs = np.arange(count)

    def costs(self, price: Floats, gain: Floats | None = None) -> Floats:
        """Cost of every vertex, [vertex, job]: its use at these prices, minus its gain."""
        found: Floats = self._closed.copy() if gain is None else self._closed - gain
        for cost, use in zip(price.tolist(), self._use, strict=True):
            if cost:
                found += cost * use
        return found

    def cheapest(self, price: Floats, gain: Floats | None = None) -> tuple[Rows, float]:
        """Each job's cheapest vertex (the first of several), and the sum of their costs."""
        costs = self.costs(price, gain)
        vertex = costs.argmin(axis=0)
        return vertex, float(costs[vertex, self._jobs].sum())

    def gains(self, worth: Floats) -> Floats:
        """Σ_j worth_j x_j of every vertex, [vertex, job]; `worth` is [type, job]."""
        gain: Floats = (self._time * worth[:, None, :]).sum(axis=0)
        return gain

    def of(self, jobs: Rows) -> Vertices:
        """The vertices of some jobs only."""
        some = copy(self)
        some._time, some._use = self._time[:, :, jobs], self._use[:, :, jobs]
        some.open, some._closed = self.open[:, jobs], self._closed[:, jobs]
        some._jobs = np.arange(len(jobs))
        return some

    def close(self, vertices: Bools) -> None:
        """Exclude vertices, [vertex, job]."""
        self.open &= ~vertices
        self._closed = np.where(self.open, 0.0, np.inf)

    def use(self, vertex: Rows) -> Floats:
        """The part of each type's capacity that one vertex of every job uses in total."""
        used: Floats = self._use[:, vertex, self._jobs].sum(axis=1)
        return used

    def gained(self, gain: Floats, vertex: Rows) -> float:
        """The total gain of one vertex of every job."""
        return float(gain[vertex, self._jobs].sum())

    def mixed(self, answers: list[Rows], parts: Floats) -> Floats:
        """X [type, job]: the sum of answers (one vertex of every job) weighted by their parts."""
        x = np.zeros((len(self._time), len(self._jobs)))
        for vertex, part in zip(answers, parts.tolist(), strict=True):
            if part > 0:
                x += part * self._time[:, vertex, self._jobs]
        return x
