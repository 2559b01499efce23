"""What one job may do by itself: the corners of {x ≥ 0, Σ_j x_j ≤ 1, Σ_j T_j x_j ≥ pace}.

At a corner a job uses one type just as long as it must, or one type all the time, or two types in
the one mix that fills its time and meets its pace. Corners are arrays [type, corner, job], so that
the cheapest corner of every job under given prices takes a few vector operations.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows

__all__ = ["Corners"]

ROUNDING = 1e-12  # a pace that was computed as the job's best may exceed it by this much


class Corners:
    """The corners of every job.

    Attributes:
        open: which corners may be used, [corner, job]; those that do not exist may not.
    """

    def __init__(
        self, speed: Floats, hold: Floats, pace: Floats, *, full_time: bool = False
    ) -> None:
        """Find them.

        Args:
            speed: T relative to the job's best, [type, job].
            hold: part of a type's capacity that a job holds while it runs there, [type, job].
            pace: what each job must get, from 0 to 1 of its best.
            full_time: also the corners at which a job gets more than it must.
        """
        kinds, count = speed.shape
        fast, slow = np.triu_indices(kinds, 1)
        singles, mixes = np.arange(kinds), kinds + np.arange(len(fast))
        fulls = kinds + len(fast) + singles
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = pace / speed
            mix = (pace - speed[slow]) / (speed[fast] - speed[slow])
        runs = (speed > 0) & (alone <= 1 + ROUNDING)
        meets = (speed[fast] > 0) & (speed[slow] > 0) & (mix > 0) & (mix < 1)
        self._time = np.zeros((kinds, kinds * (1 + full_time) + len(fast), count))
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
        """Cost of every corner, [corner, job]: what it uses at these prices, less a gain."""
        found: Floats = self._closed.copy() if gain is None else self._closed - gain
        for cost, use in zip(price.tolist(), self._use, strict=True):
            if cost:
                found += cost * use
        return found

    def cheapest(self, price: Floats, gain: Floats | None = None) -> tuple[Rows, float]:
        """Each job's cheapest corner (the first of several), and what all of them cost."""
        costs = self.costs(price, gain)
        corner = costs.argmin(axis=0)
        return corner, float(costs[corner, self._jobs].sum())

    def gains(self, worth: Floats) -> Floats:
        """Σ_j worth_j x_j of every corner, [corner, job], for a worth of time [type, job]."""
        gain: Floats = (self._time * worth[:, None, :]).sum(axis=0)
        return gain

    def of(self, jobs: Rows) -> Corners:
        """The corners of some jobs only."""
        some = copy(self)
        some._time, some._use = self._time[:, :, jobs], self._use[:, :, jobs]
        some.open, some._closed = self.open[:, jobs], self._closed[:, jobs]
        some._jobs = np.arange(len(jobs))
        return some

    def close(self, corners: Bools) -> None:
        """Use these no more."""
        self.open &= ~corners
        self._closed = np.where(self.open, 0.0, np.inf)

    def use(self, corner: Rows) -> Floats:
        """Part of each type's capacity that one corner per job uses together."""
        used: Floats = self._use[:, corner, self._jobs].sum(axis=1)
        return used

    def gained(self, gain: Floats, corner: Rows) -> float:
        """What one corner per job gains together."""
        return float(gain[corner, self._jobs].sum())

    def mixed(self, answers: list[Rows], parts: Floats) -> Floats:
        """X [type, job]: each answer (one corner per job) for its part of the time."""
        x = np.zeros((len(self._time), len(self._jobs)))
        for corner, part in zip(answers, parts.tolist(), strict=True):
            if part > 0:
                x += part * self._time[:, corner, self._jobs]
        return x
