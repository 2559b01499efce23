"""The middle of all X that are good enough: what an interior-point solver leaves one with.

Once an objective has its value, many X may reach it. A simplex solver answers with a corner of
them, an interior-point solver with the middle: the X that maximises the sum of the logarithms of
all slacks (the analytic centre),

    Σ log x_ij + Σ_j log(N_j − Σ_i s_i x_ij) + Σ_i log(1 − Σ_j x_ij) + Σ_i log(Σ_j T_ij x_ij − p_i)

Corners leave most shares at 0 and the middle none, which rounds of leases notice. Newton's method
finds it in a few steps: jobs are coupled by the GPUs of each type only, so a step costs one small
matrix a job and one for all types together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.policies.scheduling.gavel.problem import Problem

__all__ = ["centre"]

GIVES_WAY = 1e-3  # paces may be this much less, so that there is an inside
STEPS = 60
SETTLED = 1e-5  # half of Newton's decrement squared


def centre(problem: Problem, x: Floats, pace: Floats) -> Floats:
    """The middle of all X in which every job has its pace, as a part of its best throughput.

    Args:
        problem: jobs and GPUs.
        x: some X with these paces, [job, type].
        pace: what each job has at least.
    """
    body = _Body.of(problem, pace * (1.0 - GIVES_WAY))
    count, kinds = x.shape
    workers = np.maximum(problem.workers, 1e-12)
    inside = np.minimum(workers / (2.0 * problem.scale.sum()), 0.5 / kinds)
    little = 0.5 * GIVES_WAY
    point = np.where(body.free, (1.0 - little) * np.clip(x, 0.0, 1.0) + little * inside, 0.0)
    if not count or not body.contains(point):
        return x
    value = body.barrier(point)
    for _ in range(STEPS):
        step, decrement = body.newton(point)
        if decrement / 2 < SETTLED:
            break
        length = min(1.0, 0.95 * body.room(point, step))
        while True:
            further = point + length * step
            after = body.barrier(further) if body.contains(further) else np.inf
            if after <= value - 0.1 * length * decrement:
                break
            length /= 2
            if length < 1e-6:
                return point
        point, value = further, after
    return point


@dataclass(frozen=True, slots=True)
class _Body:
    """All X that are good enough.

    Attributes:
        free: shares that may be more than 0.
        speed: throughput as a part of a job's best.
        pace: what each job has at least.
    """

    free: Bools
    speed: Floats
    pace: Floats
    scale: Floats
    workers: Floats

    @staticmethod
    def of(problem: Problem, pace: Floats) -> _Body:
        free = (problem.throughput > 0) & (problem.workers > 0)
        speed = problem.throughput / problem.best[:, None]
        return _Body(free, speed, pace, problem.scale, problem.workers)

    def _slacks(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Of the GPUs of each type, of each job's time, of each job's pace."""
        idle = self.workers - self.scale @ x
        return (
            np.where(self.workers > 0, idle, 1.0),
            1.0 - x.sum(axis=1),
            (self.speed * x).sum(axis=1) - self.pace,
        )

    def contains(self, x: Floats) -> bool:
        least = min(slack.min(initial=1.0) for slack in self._slacks(x))
        return bool(least > 0 and (x[self.free] > 0).all())

    def barrier(self, x: Floats) -> float:
        return -float(
            np.log(x[self.free]).sum() + sum(np.log(slack).sum() for slack in self._slacks(x))
        )

    def room(self, x: Floats, step: Floats) -> float:
        """How far one may go in a direction."""
        now, then = self._slacks(x), self._slacks(x + step)
        shrink = [(a - b) / a for a, b in zip(now, then, strict=True)]
        shrink.append(-step[self.free] / x[self.free])
        most = max(part.max(initial=0.0) for part in shrink)
        return np.inf if most <= 0 else 1.0 / float(most)

    def newton(self, x: Floats) -> tuple[Floats, float]:
        """Newton's step, and its decrement squared."""
        idle, rest, ahead = self._slacks(x)
        inverse = np.divide(1.0, x, out=np.zeros(x.shape), where=self.free)
        gradient = (
            -inverse
            + self.scale[:, None] / idle
            + 1.0 / rest[:, None]
            - self.speed / ahead[:, None]
        )
        gradient = np.where(self.free, gradient, 0.0)
        kinds = x.shape[1]
        toward = self.speed / ahead[:, None]
        curve = toward[:, :, None] * toward[:, None, :] + (1.0 / rest**2)[:, None, None]
        diagonal = np.arange(kinds)
        curve[:, diagonal, diagonal] += np.where(self.free, inverse**2, 1e30)
        solved = np.linalg.inv(curve)
        alone = (solved @ gradient[:, :, None])[:, :, 0]
        # all types together: (C⁻¹ + Σ s² D⁻¹) z = Σ s D⁻¹ g
        joint = (self.scale[:, None, None] ** 2 * solved).sum(axis=0) + np.diag(idle**2)
        shared = np.linalg.solve(joint, self.scale @ alone)
        step = -(alone - self.scale[:, None] * (solved @ shared))
        step = np.where(self.free, step, 0.0)
        return step, -float((gradient * step).sum())
