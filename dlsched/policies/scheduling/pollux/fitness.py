"""What a state is worth: the power mean of the jobs' scaled speedups, and the cluster's utility.

    x_j     = speedup_j · share_j · nodes · (restart factor, if the row changes)
    fitness = (mean of (x_j + 0.001)^p)^(1/p)        p = -1 by default; p → 0: the geometric mean
    utility = Σ_j speedup_j / GPUs of the nodes that somebody uses

The fitness is a growing function of a sum over jobs, and `gains` are the terms of that sum. So a
search may look at single jobs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.pollux.problem import FLOOR, Problem

__all__ = ["fitness", "gains", "mean_of_gains", "utility"]


def gains(worths: Floats, exponent: float | None) -> Floats:
    """Terms whose sum grows with the fitness.

    Args:
        worths: x of jobs.
        exponent: p; None for the plain sum.
    """
    if exponent is None:
        return worths
    if exponent == 0:
        return np.log(np.maximum(worths, FLOOR))
    powers = np.power(worths + FLOOR, exponent)
    return np.asarray(powers if exponent > 0 else -powers)


def mean_of_gains(total: Floats | float, jobs: int, exponent: float | None) -> Floats:
    """The fitness that belongs to a sum of gains."""
    total = np.asarray(total, np.float64)
    if exponent is None or jobs == 0:
        return total
    if exponent == 0:
        return np.asarray(np.exp(total / jobs))
    return np.asarray(np.power(np.abs(total) / jobs, 1.0 / exponent))


def fitness(problem: Problem, states: NDArray[np.integer]) -> Floats:
    """Of states […, job, node]."""
    terms = gains(problem.worths(states), problem.exponent)
    return mean_of_gains(terms.sum(axis=-1), problem.jobs, problem.exponent)


def utility(problem: Problem, states: NDArray[np.integer]) -> Floats:
    """Speedup for each GPU of the nodes in use; 0 where nothing runs."""
    in_use = (states.sum(axis=-2) > 0) @ problem.capacity
    speedups = problem.speedups(states).sum(axis=-1)
    return np.asarray(speedups / np.where(in_use > 0, in_use, np.inf))
