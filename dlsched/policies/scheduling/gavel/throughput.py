"""Makespan, and sums of throughputs: minimum makespan, maximum throughput, least cost, with SLOs.

Gavel, section 4.2.

- makespan:    min T  with  Σ_j T_ij x_ij ≥ n_i / T for all i
- throughput:  max Σ_ij T_ij x_ij          (raw steps/s, as the artifact has it)
- cost:        max Σ_ij T_ij x_ij / c_j
- SLO:         these with  Σ_j T_ij x_ij ≥ n_i / (D_i − now) for jobs that have a deadline
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.gavel.problem import Problem
from dlsched.policies.scheduling.gavel.rising import Line

__all__ = ["bisected", "deadline_pace", "makespan_line", "makespan_value"]


def makespan_line(problem: Problem) -> Line:
    """At level 1/T every job gets n_i / T steps/s."""
    problem.require_remaining()
    return Line(np.zeros(problem.size), problem.remaining / problem.best)


def bisected(least_s: float) -> float:
    """Where the published search for the makespan stops: up to 5 % above the least that fits.

    It halves between 100 s and 1e6 s (then ten times that, …) until the ends are within 5 %, and
    what is less than 100 s counts as 100 s.
    """
    low, high = 100.0, 1e6
    best = np.inf
    while not np.isfinite(best):
        last = high
        while 1.05 * low < high:
            middle = (low + high) / 2
            if middle >= least_s:
                best = high = middle
            else:
                low = middle
        low, high = last, 10 * last
    return best


def makespan_value(problem: Problem, rate: Floats) -> float:
    """Seconds until the last job ends, for throughputs in steps/s."""
    works = problem.remaining > 0
    with np.errstate(divide="ignore"):
        return float((problem.remaining[works] / rate[works]).max(initial=0.0))


def deadline_pace(problem: Problem) -> Floats | None:
    """Paces that meet all deadlines; None when some job cannot meet its own even alone.

    A deadline that has passed asks for nothing any more.
    """
    due = np.isfinite(problem.time_left) & (problem.time_left > 0)
    if due.any():
        problem.require_remaining()
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = problem.remaining / (problem.time_left * problem.best)
    pace = np.where(due, needed, 0.0)
    return pace if (pace <= 1.0).all() else None
