"""Gavel's objectives by name: from a problem to X.

The fair ones (max-min, finish-time, makespan) are a path each (`rising`), raised without pairs by
`PriceSharing` or with pairs by `PackedSharing`. The sums are one search for prices. What an
objective leaves open is settled always in the same way: leximin where it is a minimum over jobs; of
what is still equal, what changes least; then the older job (smaller id) is preferred on its faster
type. Equal input thus gives equal X.

Heterogeneity-agnostic variants take all types for equal (`indifferent`) or know only the speed on
one reference type. To them no type is better than another, so every job's time is spread over the
types as the GPUs are, as an interior-point solver would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.gavel.central_path import middle_of_best
from dlsched.policies.scheduling.gavel.centre import centre
from dlsched.policies.scheduling.gavel.deadline import NO_DEADLINE, Deadline
from dlsched.policies.scheduling.gavel.fairness import (
    entity_line,
    fair_line,
    fairness_value,
    indifferent,
)
from dlsched.policies.scheduling.gavel.finish_time import finish_time_path, worst_rho
from dlsched.policies.scheduling.gavel.measures import isolated_share, no_pairs, rates
from dlsched.policies.scheduling.gavel.packed import PackedSharing
from dlsched.policies.scheduling.gavel.prices import PriceSharing, Tariff
from dlsched.policies.scheduling.gavel.problem import Problem, Shares
from dlsched.policies.scheduling.gavel.rising import Inverse, Line, Path, highest, raise_all
from dlsched.policies.scheduling.gavel.rounding import without_rounding
from dlsched.policies.scheduling.gavel.throughput import (
    bisected,
    deadline_pace,
    makespan_line,
    makespan_value,
)

__all__ = ["CENTRED", "OPTIMISED", "Objective", "isolated", "reference_only"]

HOME = 10.0  # staying where one is counts so many times as much as being old on a fast type
FITS = 1e-8  # deadlines are met when the cluster suffices up to this part

Objective = Callable[[Problem, Deadline], Shares]
Value = Callable[[Problem, Floats], float]


def isolated(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
    """Everybody a slice of everything, x_ij = N_j / (m s_i)."""
    return Shares(isolated_share(problem), no_pairs(problem))


def undivided(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
    """Everybody as much time as everybody else, whatever its gang: x_ij = N_j / m."""
    x = np.broadcast_to(problem.workers / max(problem.size, 1), problem.throughput.shape)
    return Shares(x / np.maximum(x.sum(axis=1, keepdims=True), 1.0), no_pairs(problem))


def reference_only(problem: Problem, reference: int) -> Problem:
    """The problem as a policy sees it that knows speeds on one type only, T_ij := T_i,reference.

    Raises:
        BadInput: a job cannot run there.
    """
    speed = problem.throughput[:, [reference]] if problem.size else problem.throughput
    return problem.with_throughput(np.broadcast_to(speed, problem.throughput.shape))


def _raised(path_of: Callable[[Problem], Path], value: Value) -> Objective:
    """Raise all along a path, each job on GPUs of its own."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        sharing = PriceSharing(problem, deadline)
        risen = raise_all(sharing, path_of(problem))
        tariffs = [Tariff(proof.price) for proof in risen.certificates]
        x = sharing.choose(risen.pace, tariffs, _wishes(problem).T, sharing.x)
        return _judged(without_rounding(problem, x.T, None, risen.pace > 0), problem, value)

    return solve


def _centred(path_of: Callable[[Problem], Line | Inverse], value: Value) -> Objective:
    """The value of the highest level that all can reach; what is left open, in the middle."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        sharing, path = PriceSharing(problem, deadline), path_of(problem)
        pace = path.at(highest(sharing, path))
        return _judged(_middle(problem, sharing, pace), problem, value)

    return solve


def _middle(problem: Problem, sharing: PriceSharing, pace: Floats) -> Shares:
    sharing.scale(pace)
    x = without_rounding(problem, sharing.x.T, None, pace > 0).x
    return Shares(centre(problem, x, pace), no_pairs(problem))


def _bisected(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
    """The makespan at which the published search stops, in the middle."""
    sharing, path = PriceSharing(problem, deadline), makespan_line(problem)
    level = highest(sharing, path)
    if level <= 0:
        return _raised(makespan_line, makespan_value)(problem, deadline)
    pace = path.at(1.0 / bisected(1.0 / level))
    return _judged(_middle(problem, sharing, pace), problem, makespan_value)


def _packed(path_of: Callable[[Problem], Path], value: Value) -> Objective:
    """Raise all along a path, jobs also in pairs."""
    alone = _raised(path_of, value)

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        if problem.pairs is None or not len(problem.pairs):
            return alone(problem, deadline)
        sharing = PackedSharing(problem, problem.pairs, deadline)
        risen = raise_all(sharing, path_of(problem))
        x = sharing.choose(risen.pace, _wishes(problem))
        return _judged(without_rounding(problem, *x, risen.pace > 0), problem, value)

    return solve


def _spread(raised: Objective) -> Objective:
    """Where types do not differ, time is spread as the GPUs are."""

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


def _earning(worth_of: Callable[[Problem], Floats], *, deadlines: bool = False) -> Objective:
    """Maximise Σ worth_ij x_ij."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        sharing = PriceSharing(problem, deadline)
        pace = deadline_pace(problem) if deadlines else None
        if pace is not None and pace.any() and sharing.scale(pace).use > 1 + FITS:
            pace, sharing = None, PriceSharing(problem, deadline)
        if pace is None:
            pace = np.zeros(problem.size)  # nobody has a deadline, or not all can be met
        worth = worth_of(problem).T
        x, tariff = sharing.earn(worth / worth.max(initial=0.0), pace)
        x = sharing.choose(pace, [tariff], _wishes(problem).T, x)
        shares = without_rounding(problem, x.T, None, pace > 0)
        return replace(shares, objective=float((worth.T * shares.x).sum()))

    return solve


def _earning_alike(worth_of: Callable[[Problem], Floats]) -> Objective:
    """Maximise Σ worth_ij x_ij, in the middle of all X that do."""

    def solve(problem: Problem, deadline: Deadline = NO_DEADLINE) -> Shares:
        free = (problem.throughput > 0) & (problem.workers > 0)
        worth = np.where(free, worth_of(problem), 0.0)
        x = middle_of_best(worth / worth.max(), problem.scale, problem.workers, free)
        shares = without_rounding(problem, x, None, np.zeros(problem.size, np.bool_))
        return replace(shares, objective=float((worth * shares.x).sum()))

    return solve


def _wishes(problem: Problem) -> Floats:
    """What breaks ties, [job, type]: stay where you are; then older jobs on their faster types."""
    home, count, kinds = problem.home, problem.size, len(problem.workers)
    most = home.max(axis=1, initial=0.0, keepdims=True)
    stay = np.divide(home, most, out=np.zeros(home.shape), where=most > 0)
    seniority = 1.0 - np.arange(count)[:, None] / max(count, 1)
    # squared, since time × speed is the same on all types of an optimum; the types' order is last
    faster = (problem.throughput / problem.best[:, None]) ** 2 + 0.1 * (
        1.0 - np.arange(kinds) / kinds
    )
    wish: Floats = HOME * stay + seniority * faster
    return wish


def _judged(shares: Shares, problem: Problem, value: Value) -> Shares:
    return replace(shares, objective=value(problem, rates(problem, shares)))


def _throughput(problem: Problem) -> Floats:
    return problem.throughput


def _throughput_per_dollar(problem: Problem) -> Floats:
    return problem.throughput / problem.price


OPTIMISED: Mapping[str, Objective] = MappingProxyType(
    {
        "isolated": isolated,
        "isolated-plus": undivided,
        "max-min": _raised(fair_line, fairness_value),
        "max-min-agnostic": _indifferent(_spread(_raised(fair_line, fairness_value))),
        "max-min-packed": _packed(fair_line, fairness_value),
        "water-filling": _raised(fair_line, fairness_value),
        "water-filling-agnostic": _indifferent(_spread(_raised(fair_line, fairness_value))),
        "water-filling-packed": _packed(fair_line, fairness_value),
        "hierarchical": _raised(entity_line, fairness_value),
        "hierarchical-agnostic": _indifferent(_spread(_raised(entity_line, fairness_value))),
        "hierarchical-packed": _packed(entity_line, fairness_value),
        "ftf": _raised(finish_time_path, worst_rho),
        "ftf-agnostic": _spread(_raised(finish_time_path, worst_rho)),
        "ftf-packed": _packed(finish_time_path, worst_rho),
        "makespan": _raised(makespan_line, makespan_value),
        "makespan-agnostic": _spread(_raised(makespan_line, makespan_value)),
        "makespan-packed": _packed(makespan_line, makespan_value),
        "max-throughput": _earning(_throughput),
        "cost": _earning(_throughput_per_dollar),
        "max-throughput-slo": _earning(_throughput, deadlines=True),
        "cost-slo": _earning(_throughput_per_dollar, deadlines=True),
    }
)
# those of them that have another way to settle what is left open
CENTRED: Mapping[str, Objective] = MappingProxyType(
    {
        "max-min": _centred(fair_line, fairness_value),
        "max-min-agnostic": _indifferent(_centred(fair_line, fairness_value)),
        "ftf": _centred(finish_time_path, worst_rho),
        "ftf-agnostic": _centred(finish_time_path, worst_rho),
        "makespan": _bisected,
        "makespan-agnostic": _bisected,
        "max-throughput": _earning_alike(_throughput),
        "cost": _earning_alike(_throughput_per_dollar),
    }
)
