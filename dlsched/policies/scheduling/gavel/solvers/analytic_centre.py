"""The middle of all optimal X, which is where an interior-point solver ends.

Many X may reach the optimal value of an objective. A simplex solver returns a vertex of them, at
which most shares are 0. An interior-point solver returns the middle, at which none is, and rounds
of leases then differ.

`centre` is for targets, with p_i the target of job i: the X that maximises the sum of the
logarithms of all slacks (the analytic centre),

    Σ log x_ij + Σ_j log(N_j − Σ_i s_i x_ij) + Σ_i log(1 − Σ_j x_ij) + Σ_i log(Σ_j T_ij x_ij − p_i)

`middle_of_best` is for a largest sum, at the end of the central path of its linear program:

    max Σ worth_ij x_ij       Σ_j x_ij + u_i = 1       Σ_i s_i x_ij + v_j = N_j       x, u, v ≥ 0
    z_ij = λ_i + s_i π_j − worth_ij ≥ 0,  λ, π ≥ 0     x z = u λ = v π = μ  → 0

Both use Newton's method. Only the GPUs of each type couple the jobs, so a step costs one small
matrix or a few numbers a job, and one small matrix for all types.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.policies.scheduling.gavel.problem import Problem

LAST = 1e-9  # the last μ: shares are then exact to about six decimals
SHRINK = 0.1  # factor by which μ shrinks once the path is near
NEAR = 0.5  # relative distance from the path at which μ shrinks
ON_PATH = 1e-6  # the same for the last μ
STEPS = 60
SINGULAR = 1e-13  # relative
TO_THE_WALL = 0.95  # part of the longest step that keeps all variables above 0
GIVES_WAY = 1e-3  # targets are lowered by this part, so that there is an interior
SETTLED = 1e-5  # Newton's method stops at this half of its squared decrement


def centre(problem: Problem, x: Floats, target: Floats) -> Floats:
    """The analytic centre of all X in which every job has its target.

    `x` is some X that meets the targets, [job, type]; a target is the least throughput of a job, as
    a fraction of its best.
    """
    body = _Body.of(problem, target * (1.0 - GIVES_WAY))
    count, type_count = x.shape
    workers = np.maximum(problem.workers, 1e-12)
    inside = np.minimum(workers / (2.0 * problem.scale.sum()), 0.5 / type_count)
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
    """The polytope of all X that meet the targets.

    Attributes:
        free: shares that may be more than 0.
        speed: throughput as a fraction of the job's best.
        target: least throughput of each job, as a fraction of its best.
    """

    free: Bools
    speed: Floats
    target: Floats
    scale: Floats
    workers: Floats

    @staticmethod
    def of(problem: Problem, target: Floats) -> _Body:
        free = (problem.throughput > 0) & (problem.workers > 0)
        speed = problem.throughput / problem.best[:, None]
        return _Body(free, speed, target, problem.scale, problem.workers)

    def _slacks(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Slacks of the GPUs of each type, of each job's time, and of each job's target."""
        idle = self.workers - self.scale @ x
        return (
            np.where(self.workers > 0, idle, 1.0),
            1.0 - x.sum(axis=1),
            (self.speed * x).sum(axis=1) - self.target,
        )

    def contains(self, x: Floats) -> bool:
        least = min(slack.min(initial=1.0) for slack in self._slacks(x))
        return bool(least > 0 and (x[self.free] > 0).all())

    def barrier(self, x: Floats) -> float:
        return -float(
            np.log(x[self.free]).sum() + sum(np.log(slack).sum() for slack in self._slacks(x))
        )

    def room(self, x: Floats, step: Floats) -> float:
        """The largest multiple of a step that stays inside."""
        now, then = self._slacks(x), self._slacks(x + step)
        shrink = [(a - b) / a for a, b in zip(now, then, strict=True)]
        shrink.append(-step[self.free] / x[self.free])
        most = max(part.max(initial=0.0) for part in shrink)
        return np.inf if most <= 0 else 1.0 / float(most)

    def newton(self, x: Floats) -> tuple[Floats, float]:
        """The Newton step, and its squared decrement."""
        idle, rest, ahead = self._slacks(x)
        inverse = np.divide(1.0, x, out=np.zeros(x.shape), where=self.free)
        gradient = (
            -inverse
            + self.scale[:, None] / idle
            + 1.0 / rest[:, None]
            - self.speed / ahead[:, None]
        )
        gradient = np.where(self.free, gradient, 0.0)
        type_count = x.shape[1]
        toward = self.speed / ahead[:, None]
        curve = toward[:, :, None] * toward[:, None, :] + (1.0 / rest**2)[:, None, None]
        diagonal = np.arange(type_count)
        curve[:, diagonal, diagonal] += np.where(self.free, inverse**2, 1e30)
        solved = np.linalg.inv(curve)
        alone = (solved @ gradient[:, :, None])[:, :, 0]
        # all types together: (C⁻¹ + Σ s² D⁻¹) z = Σ s D⁻¹ g
        joint = (self.scale[:, None, None] ** 2 * solved).sum(axis=0) + np.diag(idle**2)
        shared = np.linalg.solve(joint, self.scale @ alone)
        step = -(alone - self.scale[:, None] * (solved @ shared))
        step = np.where(self.free, step, 0.0)
        return step, -float((gradient * step).sum())


def middle_of_best(worth: Floats, scale: Floats, workers: Floats, free: Bools) -> Floats:
    """The X in the middle of all X that maximise Σ worth · x.

    Args:
        worth: value of a job's whole time on a type, [job, type], at most 1.
        scale: GPUs of each job, s.
        workers: GPUs of each type, N; above 0 wherever something is free.
        free: shares that may be more than 0.
    """
    size = scale[:, None]
    workers = np.maximum(workers, 1.0)
    # start inside the feasible region, and at prices above all values
    x = np.where(free, np.minimum(workers / scale.sum(), 1.0 / len(workers)) / 2.0, 0.0)
    u, v = 1.0 - x.sum(axis=1), workers - scale @ x
    prices, wages = 1.0 / workers, np.full(len(scale), 2.0)
    z = np.where(free, wages[:, None] + size * prices - worth, 1.0)
    target = 1.0
    for _ in range(STEPS):
        short = np.where(free, target - x * z, 0.0), target - u * wages, target - v * prices
        off = max(np.abs(part).max(initial=0.0) for part in short) / target
        if off < ON_PATH and target <= LAST:
            break
        if off < NEAR and target > LAST:
            target = max(target * SHRINK, LAST)
            continue
        give = np.where(free, x / z, 0.0)  # share lost by a rise of its reduced cost
        moved = short[0] / z
        time = u / wages + give.sum(axis=1)
        wanted = short[1] / wages + moved.sum(axis=1)
        held = size * give
        joint = np.diag(v / prices + (size * held).sum(axis=0)) - held.T @ (held / time[:, None])
        asked = short[2] / prices + (size * moved).sum(axis=0) - held.T @ (wanted / time)
        # where jobs do not prefer a type, the dual solution is not unique: any of them will do
        d_prices = np.linalg.lstsq(joint, asked, rcond=SINGULAR)[0]
        d_wages = (wanted - held @ d_prices) / time
        d_z = np.where(free, d_wages[:, None] + size * d_prices, 0.0)
        d_x = moved - give * d_z
        d_u, d_v = -d_x.sum(axis=1), -(scale @ d_x)
        ahead = min(_room(x, d_x), _room(u, d_u), _room(v, d_v))
        x, u, v = x + ahead * d_x, u + ahead * d_u, v + ahead * d_v
        ahead = min(_room(z, d_z), _room(wages, d_wages), _room(prices, d_prices))
        z, wages, prices = z + ahead * d_z, wages + ahead * d_wages, prices + ahead * d_prices
    return x


def _room(now: Floats, step: Floats) -> float:
    """The part of a step, at most 1, that keeps all variables above 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shrinks = np.where(step < 0, -step / now, 0.0).max(initial=0.0)
    return min(1.0, TO_THE_WALL / float(shrinks)) if shrinks > 0 else 1.0
