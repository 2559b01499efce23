"""Gavel's objectives by name: from a problem to X.

Each fair objective (max-min, finish-time, makespan) is a path (`solvers.water_filling`), raised by
`PriceSharing` without pairs or by `PackedSharing` with pairs. The sums are one search for prices.
Of several optima one is always chosen in the same way: the leximin one where the objective is a
minimum over jobs; then the one with the fewest changes; then the one that prefers the older job
(smaller id) on its faster type. Equal input thus gives equal X.

Heterogeneity-agnostic variants assume that all types are equal (`indifferent`), or know only the
throughput on one reference type. They do not prefer any type, so the time of every job is divided
over the types in proportion to their GPUs, as an interior-point solver would do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.policies.scheduling.gavel.objectives.formulas import (
    bisected,
    deadline_target,
    entity_path,
    fair_path,
    fairness_value,
    finish_time_path,
    indifferent,
    makespan_path,
    makespan_value,
    worst_rho,
)
from dlsched.policies.scheduling.gavel.problem import (
    Problem,
    Shares,
    isolated_share,
    no_pairs,
    rates,
)
from dlsched.policies.scheduling.gavel.solvers.analytic_centre import centre, middle_of_best
from dlsched.policies.scheduling.gavel.solvers.column_generation import PackedSharing
from dlsched.policies.scheduling.gavel.solvers.linear_program import NO_DEADLINE, Deadline
from dlsched.policies.scheduling.gavel.solvers.price_search import PriceSharing, Tariff
from dlsched.policies.scheduling.gavel.solvers.water_filling import (
    InversePath,
    LinearPath,
    Path,
    highest,
    water_fill,
)

ADDS_NOTHING = 1e-7  # part of a job's throughput
NOTHING = 1e-5  # time of a job that is entitled to none
HOME = 10.0  # weight of staying on the same type, against age and speed
FITS = 1e-8  # deadlines can be met if the use of the cluster is at most 1 plus this

Objective = Callable[[Problem, Deadline], Shares]
Value = Callable[[Problem, Floats], float]


def isolated(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
    """Every job gets an equal slice of every type, x_ij = N_j / (m s_i)."""
    return Shares(isolated_share(problem), no_pairs(problem))


def undivided(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
    """Every job gets the same time, whatever its gang: x_ij = N_j / m."""
    x = np.broadcast_to(problem.workers / max(problem.size, 1), problem.throughput.shape)
    return Shares(x / np.maximum(x.sum(axis=1, keepdims=True), 1.0), no_pairs(problem))


def reference_only(problem: Problem, reference: int) -> Problem:
    """The problem of an objective that knows throughputs on one type only, T_ij := T_i,reference.

    Raises:
        BadInput: a job cannot run there.
    """
    speed = problem.throughput[:, [reference]] if problem.size else problem.throughput
    return problem.with_throughput(np.broadcast_to(speed, problem.throughput.shape))


def _raised(path_of: Callable[[Problem], Path], value: Value) -> Objective:
    """Raise all jobs along a path, without sharing of GPUs."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        sharing = PriceSharing(problem, deadline)
        raised = water_fill(sharing, path_of(problem))
        tariffs = [Tariff(proof.price) for proof in raised.certificates]
        x = sharing.choose(raised.target, tariffs, _tie_breakers(problem).T, sharing.x)
        return _with_value(without_rounding(problem, x.T, None, raised.target > 0), problem, value)

    return solve


def _centred(path_of: Callable[[Problem], LinearPath | InversePath], value: Value) -> Objective:
    """The middle of all X that reach the highest level that all jobs can reach."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        sharing, path = PriceSharing(problem, deadline), path_of(problem)
        target = path.at(highest(sharing, path))
        return _with_value(_middle(problem, sharing, target), problem, value)

    return solve


def _middle(problem: Problem, sharing: PriceSharing, target: Floats) -> Shares:
    sharing.scale(target)
    x = without_rounding(problem, sharing.x.T, None, target > 0).x
    return Shares(centre(problem, x, target), no_pairs(problem))


def _bisected(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
    """The middle of all X that reach the makespan at which Gavel's bisection stops."""
    sharing, path = PriceSharing(problem, deadline), makespan_path(problem)
    level = highest(sharing, path)
    if level <= 0:
        return _raised(makespan_path, makespan_value)(problem, deadline)
    target = path.at(1.0 / bisected(1.0 / level))
    return _with_value(_middle(problem, sharing, target), problem, makespan_value)


def _packed(path_of: Callable[[Problem], Path], value: Value) -> Objective:
    """Raise all jobs along a path; pairs of jobs may share GPUs."""
    alone = _raised(path_of, value)

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        if problem.pairs is None or not len(problem.pairs):
            return alone(problem, deadline)
        sharing = PackedSharing(problem, problem.pairs, deadline)
        raised = water_fill(sharing, path_of(problem))
        x = sharing.choose(raised.target, _tie_breakers(problem))
        return _with_value(without_rounding(problem, *x, raised.target > 0), problem, value)

    return solve


def _spread(raised: Objective) -> Objective:
    """Divide each job's time over the types in proportion to their GPUs."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        usable = problem.throughput[:, problem.workers > 0] > 0
        found = raised(problem, deadline)
        if not usable.all():
            return found
        time = found.x.sum(axis=1, keepdims=True)
        return replace(found, x=time * problem.workers / problem.workers.sum())

    return solve


def _indifferent(objective: Objective) -> Objective:
    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        return objective(indifferent(problem), deadline)

    return solve


def _maximise_sum(worth_of: Callable[[Problem], Floats], *, deadlines: bool = False) -> Objective:
    """Maximise Σ worth_ij x_ij."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        sharing = PriceSharing(problem, deadline)
        target = deadline_target(problem) if deadlines else None
        if target is not None and target.any() and sharing.scale(target).use > 1 + FITS:
            target, sharing = None, PriceSharing(problem, deadline)
        if target is None:
            target = np.zeros(problem.size)  # no job has a deadline, or not all can be met
        worth = worth_of(problem).T
        x, tariff = sharing.maximise(worth / worth.max(initial=0.0), target)
        x = sharing.choose(target, [tariff], _tie_breakers(problem).T, x)
        shares = without_rounding(problem, x.T, None, target > 0)
        return replace(shares, objective=float((worth.T * shares.x).sum()))

    return solve


def _maximise_sum_centred(worth_of: Callable[[Problem], Floats]) -> Objective:
    """Maximise Σ worth_ij x_ij, in the middle of all X that do."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        free = (problem.throughput > 0) & (problem.workers > 0)
        worth = np.where(free, worth_of(problem), 0.0)
        x = middle_of_best(worth / worth.max(), problem.scale, problem.workers, free)
        shares = without_rounding(problem, x, None, np.zeros(problem.size, np.bool_))
        return replace(shares, objective=float((worth * shares.x).sum()))

    return solve


def _tie_breakers(problem: Problem) -> Floats:
    """Weights that break ties, [job, type]: first stay, then older jobs on their faster types."""
    home, count, type_count = problem.home, problem.size, len(problem.workers)
    most = home.max(axis=1, initial=0.0, keepdims=True)
    stay = np.divide(home, most, out=np.zeros(home.shape), where=most > 0)
    seniority = 1.0 - np.arange(count)[:, None] / max(count, 1)
    # squared, since time × speed is the same on all types of an optimum; the types' order is last
    faster = (problem.throughput / problem.best[:, None]) ** 2 + 0.1 * (
        1.0 - np.arange(type_count) / type_count
    )
    wish: Floats = HOME * stay + seniority * faster
    return wish


def _with_value(shares: Shares, problem: Problem, value: Value) -> Shares:
    return replace(shares, objective=value(problem, rates(problem, shares)))


def _throughput(problem: Problem) -> Floats:
    return problem.throughput


def _throughput_per_dollar(problem: Problem) -> Floats:
    return problem.throughput / problem.price


OPTIMISED: Mapping[str, Objective] = MappingProxyType(
    {
        "isolated": isolated,
        "isolated-plus": undivided,
        "max-min": _raised(fair_path, fairness_value),
        "max-min-agnostic": _indifferent(_spread(_raised(fair_path, fairness_value))),
        "max-min-packed": _packed(fair_path, fairness_value),
        "water-filling": _raised(fair_path, fairness_value),
        "water-filling-agnostic": _indifferent(_spread(_raised(fair_path, fairness_value))),
        "water-filling-packed": _packed(fair_path, fairness_value),
        "hierarchical": _raised(entity_path, fairness_value),
        "hierarchical-agnostic": _indifferent(_spread(_raised(entity_path, fairness_value))),
        "hierarchical-packed": _packed(entity_path, fairness_value),
        "ftf": _raised(finish_time_path, worst_rho),
        "ftf-agnostic": _spread(_raised(finish_time_path, worst_rho)),
        "ftf-packed": _packed(finish_time_path, worst_rho),
        "makespan": _raised(makespan_path, makespan_value),
        "makespan-agnostic": _spread(_raised(makespan_path, makespan_value)),
        "makespan-packed": _packed(makespan_path, makespan_value),
        "max-throughput": _maximise_sum(_throughput),
        "cost": _maximise_sum(_throughput_per_dollar),
        "max-throughput-slo": _maximise_sum(_throughput, deadlines=True),
        "cost-slo": _maximise_sum(_throughput_per_dollar, deadlines=True),
    }
)
# the objectives that can also take the middle of several optima
CENTRED: Mapping[str, Objective] = MappingProxyType(
    {
        "max-min": _centred(fair_path, fairness_value),
        "max-min-agnostic": _indifferent(_centred(fair_path, fairness_value)),
        "ftf": _centred(finish_time_path, worst_rho),
        "ftf-agnostic": _centred(finish_time_path, worst_rho),
        "makespan": _bisected,
        "makespan-agnostic": _bisected,
        "max-throughput": _maximise_sum_centred(_throughput),
        "cost": _maximise_sum_centred(_throughput_per_dollar),
    }
)


def without_rounding(problem: Problem, x: Floats, pair_x: Floats | None, entitled: Bools) -> Shares:
    """The solver's X without shares that come from rounding, scaled down to be feasible.

    A round mechanism moves a job for a share of any size. So a share that adds nothing to the
    throughput of its job is dropped, and so is a tiny share of a job that is entitled to none.

    Args:
        problem: the jobs.
        x: the solver's X, [job, type].
        pair_x: time in pairs, [pair, type]; None for none.
        entitled: jobs that must get a share, which is kept however small it is.
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
