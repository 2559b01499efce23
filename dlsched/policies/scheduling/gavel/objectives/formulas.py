"""The objectives of Gavel as formulas: fairness, finish-time fairness, makespan, sums, deadlines.

Gavel, section 4. T_ij is the throughput of job i on GPU type j, x_ij its fraction of time there,
w_i its weight, s_i its scale factor, n_i its remaining steps, t_i the seconds since its submission.

Max-min fairness (sections 4.1 and 4.3), with y_i = Σ_j T_ij x_ij / P_i, the throughput of job i
relative to an equal split of the cluster:

- flat:         max_X min_i  s_i y_i / w_i
- hierarchical: entities of weight W_e share by weight; the jobs of one entity share by weight, or
                run one after the other. ω_i = W_e w_i / Σ w over the jobs of the entity that can
                still gain, or W_e for the first job that can.

Both are solved by water filling: the worst-off jobs gain as far as they can, then the next ones.
For the flat objective this is one of many optima, the leximin one. The heterogeneity-agnostic
variants set all T_ij = 1.

Finish-time fairness (section 4.2, after Themis, NSDI 2020), in the variant of Gavel's code:

    ρ_i = (t_i + n_i / Σ_j T_ij x_ij) / D_i,   D_i = C_i + n_i / I_i,   min_X max_i ρ_i

with I_i the throughput under an isolated share now, and C_i the seconds that such shares would have
needed for the steps done so far. A bound on ρ is a bound on throughputs,
Σ_j T_ij x_ij ≥ n_i / (ρ D_i − t_i), so the conic program of the paper is a search over ρ. A job
that has waited for long fixes the worst ρ; the other jobs reach a lower ρ (leximin), which the
paper leaves open.

Makespan and sums (section 4.2):

- makespan:    min T  with  Σ_j T_ij x_ij ≥ n_i / T for all i
- throughput:  max Σ_ij T_ij x_ij          (plain sums of steps/s, as in its code)
- cost:        max Σ_ij T_ij x_ij / c_j
- SLO:         these with  Σ_j T_ij x_ij ≥ n_i / (D_i − now) for jobs that have a deadline
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.policies.scheduling.gavel.problem import Problem, isolated_rate, proportional_rate
from dlsched.policies.scheduling.gavel.solvers.water_filling import (
    EntityPath,
    InversePath,
    LinearPath,
)


def indifferent(problem: Problem) -> Problem:
    """The problem with equal throughput on all usable types, for the agnostic variants."""
    return problem.with_throughput((problem.throughput > 0).astype(np.float64))


def fair_path(problem: Problem) -> LinearPath:
    """At level c, y_i = c w_i / s_i, so the target is c w_i P_i / (s_i max_j T_ij)."""
    slope = problem.weight * proportional_rate(problem) / (problem.scale * problem.best)
    return LinearPath(np.zeros(problem.size), slope)


def entity_path(problem: Problem) -> EntityPath:
    """At level c, the jobs of entity e have Σ_i s_i y_i = c W_e together."""
    number = {job: n for n, entity in enumerate(problem.entities) for job in entity.jobs}
    return EntityPath(
        start=np.zeros(problem.size),
        need=problem.scale * problem.best / proportional_rate(problem),
        weight=problem.weight,
        entity=np.array([number[job] for job in problem.ids.tolist()], np.int64),
        entity_weight=np.array([float(entity.weight) for entity in problem.entities]),
        in_turn=np.array([entity.policy == "fifo" for entity in problem.entities]),
    )


def fairness_value(problem: Problem, rate: Floats) -> float:
    """min_i s_i y_i / w_i over jobs with a weight above 0; `rate` is throughput in steps/s."""
    entitled = problem.weight > 0
    level = (problem.scale * rate)[entitled] / (problem.weight * proportional_rate(problem))[
        entitled
    ]
    return float(level.min(initial=np.inf))


def finish_time_path(problem: Problem) -> InversePath:
    """The targets of all jobs at level 1/ρ."""
    problem.require_remaining()
    return InversePath(
        work=problem.remaining / problem.best,
        allowed=isolated_finish(problem),
        elapsed=problem.elapsed,
        still=np.full(problem.size, np.nan),
    )


def worst_rho(problem: Problem, rate: Floats) -> float:
    """max_i ρ_i over jobs with steps left; `rate` is throughput in steps/s."""
    works = problem.remaining > 0
    with np.errstate(divide="ignore"):
        finish = problem.elapsed[works] + problem.remaining[works] / rate[works]
    return float((finish / isolated_finish(problem)[works]).max(initial=-np.inf))


def isolated_finish(problem: Problem) -> Floats:
    """D_i, the seconds from submission to completion with an isolated share."""
    finish: Floats = problem.isolated_s + problem.remaining / isolated_rate(problem)
    return finish


class IsolatedTime:
    """C_i: seconds that isolated shares would have needed for the steps done, summed over solves.

    At every solve C_i += (n_i before − n_i now) / I_i before. The isolated shares change with the
    number of jobs, so the sum must be kept.
    """

    def __init__(self) -> None:
        self.before: dict[int, tuple[float, float, float]] = {}  # id -> (C, n, I)

    def at(self, ids: Rows, remaining: Floats) -> Floats:
        """C of these jobs now, in seconds, from their steps left."""
        found = np.zeros(len(ids))
        for place, (job, left) in enumerate(zip(ids.tolist(), remaining.tolist(), strict=True)):
            if job in self.before:
                so_far, steps, rate = self.before[job]
                found[place] = so_far + (steps - left) / rate
        return found

    def remember(self, problem: Problem) -> None:
        """Keep what the next solve needs; jobs that are gone are forgotten."""
        columns = (problem.isolated_s, problem.remaining, isolated_rate(problem))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self.before = dict(zip(problem.ids.tolist(), rows, strict=True))


def makespan_path(problem: Problem) -> LinearPath:
    """At level 1/T, every job gets n_i / T steps/s."""
    problem.require_remaining()
    return LinearPath(np.zeros(problem.size), problem.remaining / problem.best)


def bisected(least_s: float) -> float:
    """The makespan at which Gavel's bisection stops: up to 5 % above the least that fits.

    It halves between 100 s and 1e6 s (then 1e7 s, …) until the ends are within 5 %. A makespan
    below 100 s counts as 100 s.
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
    """Seconds until the last job ends; `rate` is throughput in steps/s."""
    works = problem.remaining > 0
    with np.errstate(divide="ignore"):
        return float((problem.remaining[works] / rate[works]).max(initial=0.0))


def deadline_target(problem: Problem) -> Floats | None:
    """The targets that meet all deadlines; None when a job cannot meet its deadline even alone.

    A deadline that has passed is ignored.
    """
    due = np.isfinite(problem.time_left) & (problem.time_left > 0)
    if due.any():
        problem.require_remaining()
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = problem.remaining / (problem.time_left * problem.best)
    target = np.where(due, needed, 0.0)
    return target if (target <= 1.0).all() else None
