"""X without rounding: shares that only rounding made are dropped, and nobody gets too much.

A share however small makes a round mechanism move a job. So what adds nothing to a job's throughput
goes, and what nobody asked for (a solver may use a billionth of a GPU more or less) as well.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.policies.scheduling.gavel.measures import no_pairs, rates
from dlsched.policies.scheduling.gavel.problem import Problem, Shares

__all__ = ["without_rounding"]

ADDS_NOTHING = 1e-7  # part of a job's throughput
NOTHING = 1e-5  # time of a job that is entitled to none


def without_rounding(problem: Problem, x: Floats, pair_x: Floats | None, entitled: Bools) -> Shares:
    """A feasible X that differs from a solver's by rounding only.

    Args:
        problem: the jobs.
        x: [job, type].
        pair_x: [pair, type]; None for no time in pairs.
        entitled: jobs whose share, however small, was asked for.
    """
    pairs = problem.pairs
    together = no_pairs(problem) if pair_x is None else pair_x
    rate = rates(problem, Shares(x, together))
    little = np.where(entitled, ADDS_NOTHING * rate, np.inf)[:, None]
    least = np.where(entitled, 0.0, NOTHING)[:, None]
    x = np.where((problem.throughput * x < little) & ((least == 0) | (x < least)), 0.0, x)
    used, time = (problem.scale[:, None] * x).sum(axis=0), x.sum(axis=1)
    if pairs is not None and pair_x is not None:
        steps = pairs.throughput * together[:, :, None]
        adds = (steps[:, :, 0] >= little[pairs.first]) | (steps[:, :, 1] >= little[pairs.second])
        together = np.where(adds, together, 0.0)
        used += (problem.scale[pairs.first, None] * together).sum(axis=0)
        for jobs in (pairs.first, pairs.second):
            np.add.at(time, jobs, together.sum(axis=1))
    over = np.maximum(np.divide(used, problem.workers, where=problem.workers > 0, out=used), 1.0)
    late = np.maximum(time, 1.0)
    if pairs is not None:
        together = together / over / np.maximum(late[pairs.first], late[pairs.second])[:, None]
    return Shares(x / over / late[:, None], together)
