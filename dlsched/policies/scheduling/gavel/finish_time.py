"""Finish-time fairness: nobody should end much later than on a slice of their own.

Gavel, section 4.2 (after Themis, NSDI 2020); variant `gavel-policy`:

    ρ_i = (t_i + n_i / Σ_j T_ij x_ij) / D_i,   D_i = C_i + n_i / I_i,   min_X max_i ρ_i

with I_i the throughput under an isolated share now, and C_i what such shares would have needed for
the steps done so far. A bound on ρ is a bound on throughputs, Σ_j T_ij x_ij ≥ n_i / (ρ D_i − t_i),
so the conic program of the paper is a search over ρ. A job that waited long pins the worst ρ; the
others go on below it (leximin), which the paper leaves open.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.policies.scheduling.gavel.measures import isolated_rate
from dlsched.policies.scheduling.gavel.problem import Problem
from dlsched.policies.scheduling.gavel.rising import Inverse

__all__ = ["IsolatedTime", "finish_time_path", "isolated_finish", "worst_rho"]


def finish_time_path(problem: Problem) -> Inverse:
    """Paces at level 1/ρ."""
    problem.require_remaining()
    return Inverse(
        work=problem.remaining / problem.best,
        allowed=isolated_finish(problem),
        elapsed=problem.elapsed,
        still=np.full(problem.size, np.nan),
    )


def worst_rho(problem: Problem, rate: Floats) -> float:
    """max_i ρ_i for throughputs in steps/s; jobs with nothing left do not count."""
    works = problem.remaining > 0
    with np.errstate(divide="ignore"):
        finish = problem.elapsed[works] + problem.remaining[works] / rate[works]
    return float((finish / isolated_finish(problem)[works]).max(initial=-np.inf))


def isolated_finish(problem: Problem) -> Floats:
    """D_i, seconds that a job would take in all with an isolated share."""
    finish: Floats = problem.isolated_s + problem.remaining / isolated_rate(problem)
    return finish


class IsolatedTime:
    """C_i: seconds that isolated shares would have needed for the steps done, summed over solves.

    At every solve C_i += (n_i before − n_i now) / I_i before. The shares change with the number of
    jobs, so this must be accumulated.
    """

    def __init__(self) -> None:
        self.before: dict[int, tuple[float, float, float]] = {}  # id -> (C, n, I)

    def at(self, ids: Rows, remaining: Floats) -> Floats:
        """C of these jobs now, in seconds."""
        found = np.zeros(len(ids))
        for place, (job, left) in enumerate(zip(ids.tolist(), remaining.tolist(), strict=True)):
            if job in self.before:
                so_far, steps, rate = self.before[job]
                found[place] = so_far + (steps - left) / rate
        return found

    def remember(self, problem: Problem) -> None:
        """What the next solve needs to know; jobs that are gone are forgotten."""
        columns = (problem.isolated_s, problem.remaining, isolated_rate(problem))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self.before = dict(zip(problem.ids.tolist(), rows, strict=True))
