"""The middle of all X of the largest sum: where the central path of the linear program ends.

Of jobs that are alike, a sum does not say which should have the time. A simplex solver answers with
a corner, which gives it all to one of them; an interior-point solver follows the path on which
every share times its reduced cost is the same μ, and ends in the middle of all optima. There jobs
that are alike have alike shares.

    max Σ worth_ij x_ij       Σ_j x_ij + u_i = 1       Σ_i s_i x_ij + v_j = N_j       x, u, v ≥ 0
    z_ij = λ_i + s_i π_j − worth_ij ≥ 0,  λ, π ≥ 0     x z = u λ = v π = μ  → 0

Jobs meet only at the types' capacities, so a Newton step costs a few numbers a job and one small
matrix of the types.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Bools, Floats

__all__ = ["middle_of_best"]

LAST = 1e-9  # μ, where the largest worth is 1: shares are then exact to some six decimals
SHRINK = 0.1  # of μ, once the path is near
NEAR = 0.5  # distance from the path, relative, at which μ shrinks
ON_PATH = 1e-6  # the same for the last μ, if numbers are exact enough for it
STEPS = 60
SINGULAR = 1e-13  # relative
TO_THE_WALL = 0.95  # part of the way to where something would become 0


def middle_of_best(worth: Floats, scale: Floats, workers: Floats, free: Bools) -> Floats:
    """The X in the middle of those that maximise Σ worth · x.

    Args:
        worth: of a job's whole time on a type, [job, type], at most 1.
        scale: GPUs of each job, s.
        workers: GPUs of each type, N; above 0 wherever something is free.
        free: shares that may be more than 0.
    """
    size = scale[:, None]
    workers = np.maximum(workers, 1.0)
    # in the middle of everything that is feasible, and at prices above all worth
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
        # where no job cares about types, prices may rise as wages fall: any such pair will do
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
    """How far one may go in a direction, where all must stay above 0; at most 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shrinks = np.where(step < 0, -step / now, 0.0).max(initial=0.0)
    return min(1.0, TO_THE_WALL / float(shrinks)) if shrinks > 0 else 1.0
