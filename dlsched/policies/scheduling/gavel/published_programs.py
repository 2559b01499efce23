"""Gavel's objectives as the programs that the published simulator hands its solver, and their X.

Not only the optimum is that of the published programs but, of many optima, also the one at which
their solver ends: `interior_point` takes its way from the same beginning. For this, programs are
written down as they are there, with rows and columns that change nothing about the optimum.

- the makespan is a question without an objective, asked again and again: is there an X with
  Σ_j T_ij x_ij ≥ n_i / T? The last T for which there was is up to 5 % above the least.
- pairs that do not fit together have time too. It is dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.gavel.deadline import Deadline
from dlsched.policies.scheduling.gavel.fairness import fairness_value, indifferent
from dlsched.policies.scheduling.gavel.finish_time import isolated_finish, worst_rho
from dlsched.policies.scheduling.gavel.interior_point import Unsolved, solved
from dlsched.policies.scheduling.gavel.job_program import JobMatrix
from dlsched.policies.scheduling.gavel.measures import no_pairs, proportional_rate, rates
from dlsched.policies.scheduling.gavel.packed import PackedSharing
from dlsched.policies.scheduling.gavel.prices import PriceSharing
from dlsched.policies.scheduling.gavel.problem import Problem, Shares
from dlsched.policies.scheduling.gavel.rising import highest
from dlsched.policies.scheduling.gavel.throughput import bisected, makespan_line, makespan_value

__all__ = ["AS_PUBLISHED"]

MOST = 20_000_000  # numbers in a table of all pairs, 160 MB; that is some 180 jobs of equal gangs

Objective = Callable[[Problem, Deadline], Shares]
Value = Callable[[Problem, Floats], float]


class _Program:
    """What all programs share: columns of X, and the rows that every X must keep to."""

    def __init__(self, problem: Problem, deadline: Deadline, *, paired: bool = False) -> None:
        """Look at a problem.

        Args:
            problem: jobs and GPUs; types without GPUs are left out.
            deadline: after which it stops.
            paired: with columns of all pairs of jobs of equal scale.

        Raises:
            Unsolved: there would be too many.
        """
        self._problem, self._deadline = problem, deadline
        self._kinds = np.flatnonzero(problem.workers > 0)
        self._count, kinds = problem.size, len(self._kinds)
        self._first = self._second = np.zeros(0, np.int64)
        if paired:
            first, second = np.triu_indices(problem.size, 1)
            alike = problem.scale[first] == problem.scale[second]
            self._first, self._second = first[alike], second[alike]
        rows = problem.size + len(self._first)
        self.columns = rows * kinds
        if paired and self.columns * (kinds + 2 * problem.size) > MOST:
            raise Unsolved("too many pairs")
        of = np.arange(self.columns) // kinds
        self._kind: Ints = np.arange(self.columns) % kinds
        owner = np.concatenate([np.arange(problem.size), self._first])
        self._hold: Floats = problem.scale[owner][of]
        halves = np.arange(problem.size * kinds, self.columns)
        self._job = np.concatenate([owner[of], self._second[of[halves] - problem.size]])
        self._column = np.concatenate([np.arange(self.columns), halves])
        alone = problem.throughput[:, self._kinds]
        together = np.zeros((len(self._first), kinds, 2))
        self._places = self._known()
        if problem.pairs is not None and paired:
            together[self._places] = problem.pairs.throughput[:, self._kinds]
        self.speed: Floats = np.concatenate(
            [alone.ravel(), together[:, :, 0].ravel(), together[:, :, 1].ravel()]
        )

    def _known(self) -> Ints:
        """Where the pairs of the problem are among all pairs."""
        pairs = self._problem.pairs
        if pairs is None or not len(self._first):
            return np.zeros(0, np.int64)
        keys = self._first * self._count + self._second
        found: Ints = np.searchsorted(keys, pairs.first * self._count + pairs.second)
        return found

    def gets(self, worth: Floats) -> Floats:
        """Throughput in every entry, times what it is worth to the job."""
        found: Floats = self.speed * worth[self._job]
        return found

    def earns(self, gets: Floats) -> Floats:
        """The same by column."""
        sums: Floats = np.bincount(self._column, gets, self.columns).astype(np.float64)
        return sums

    def matrix(
        self,
        gets: Floats,
        paced: Bools,
        *,
        level: Floats | None = None,
        late: Floats | None = None,
        inverse: Floats | None = None,
    ) -> JobMatrix:
        """G; see `JobMatrix` for what the columns are."""
        none = np.zeros(0)
        return JobMatrix(
            jobs=self._count,
            kinds=len(self._kinds),
            kind=self._kind,
            job=self._job,
            column=self._column,
            bound=np.ones(self.columns),
            hold=self._hold,
            time=np.ones(len(self._job)),
            gets=gets if late is not None else np.where(paced[self._job], gets, 0.0),
            paced=paced,
            level=none if level is None else level,
            late=none if late is None else late,
            inverse=none if inverse is None else inverse,
        )

    def shares(
        self, matrix: JobMatrix, c: Floats, right: Floats, value: Value, *, cones: int = 0
    ) -> Shares:
        """Solve, and read X.

        Args:
            matrix: G.
            c: what columns cost.
            right: right-hand sides of paces and cones.
            value: what of it is the objective.
            cones: how many.

        Raises:
            Unsolved: there is no X.
        """
        problem, kinds = self._problem, len(self._kinds)
        base = np.zeros(self.columns), problem.workers[self._kinds], np.ones(self._count)
        h = np.concatenate([*base, right])
        v = solved(matrix, c, h, cones, check=self._deadline.check)
        x = np.clip(v[: self.columns].reshape(-1, kinds), 0.0, 1.0)
        alone, together = np.zeros(problem.throughput.shape), no_pairs(problem)
        alone[:, self._kinds] = x[: self._count]
        if len(together):
            together[:, self._kinds] = x[self._count :][self._places]
        found = Shares(alone, together)
        return Shares(alone, together, value(problem, rates(problem, found)))


def _max_min(problem: Problem, deadline: Deadline, *, paired: bool = False) -> Shares:
    """Max min_i s_i / (w_i P_i) Σ_j T_ij x_ij."""
    entitled = problem.weight > 0
    if not entitled.any():
        raise Unsolved("nobody is entitled to anything")
    fair = problem.weight * proportional_rate(problem)
    worth = np.divide(problem.scale, fair, out=np.zeros(problem.size), where=entitled)
    program = _Program(problem, deadline, paired=paired)
    gets = -program.gets(worth)
    if paired and problem.size == 1:
        matrix = program.matrix(gets, np.zeros(1, np.bool_))
        return program.shares(matrix, program.earns(gets), np.zeros(0), fairness_value)
    matrix = program.matrix(gets, entitled, level=entitled.astype(np.float64))
    c = np.concatenate([np.zeros(program.columns), [-1.0]])
    return program.shares(matrix, c, np.zeros(int(entitled.sum())), fairness_value)


def _finish_time(problem: Problem, deadline: Deadline, *, paired: bool = False) -> Shares:
    """Min max_i (t_i + n_i y_i) / D_i, with y_i at least 1 / Σ_j T_ij x_ij."""
    problem.require_remaining()
    allowed, count = isolated_finish(problem), problem.size
    if not (allowed > 0).all():
        raise Unsolved("a job has nothing to do, and never had")
    late, ones = problem.remaining / allowed, np.ones(problem.size)
    program = _Program(problem, deadline, paired=paired)
    gets, sides = program.gets(ones), np.tile([0.0, 0.0, 2.0], count)
    if count == 1:
        matrix = program.matrix(gets, np.zeros(1, np.bool_), late=late, inverse=ones)
        c = np.concatenate([np.zeros(program.columns), late])
        return program.shares(matrix, c, sides, worst_rho, cones=count)
    everybody = np.ones(count, np.bool_)
    matrix = program.matrix(gets, everybody, level=-ones, late=late, inverse=ones)
    c = np.concatenate([np.zeros(program.columns), [1.0], np.zeros(count)])
    right = np.concatenate([-problem.elapsed / allowed, sides])
    return program.shares(matrix, c, right, worst_rho, cones=count)


def _makespan(problem: Problem, deadline: Deadline, *, paired: bool = False) -> Shares:
    """Is there an X with Σ_j T_ij x_ij ≥ n_i / T?"""
    problem.require_remaining()
    path = makespan_line(problem)
    if paired and problem.pairs is not None:
        level = highest(PackedSharing(problem, problem.pairs, deadline), path)
    else:
        level = highest(PriceSharing(problem, deadline), path)
    if level <= 0:
        raise Unsolved("nobody has anything left")
    program = _Program(problem, deadline, paired=paired)
    matrix = program.matrix(-program.speed, np.ones(problem.size, np.bool_))
    right = -problem.remaining / bisected(1.0 / level)
    return program.shares(matrix, np.zeros(matrix.width), right, makespan_value)


def _sum(problem: Problem, deadline: Deadline, price: Floats, needs: Floats) -> Shares:
    """Max Σ_ij T_ij x_ij / price_j, where some need so many steps/s (0: nothing)."""
    program = _Program(problem, deadline)
    earns = program.earns(program.speed) / np.tile(price[problem.workers > 0], problem.size)
    paced = needs > 0
    matrix = program.matrix(-program.speed, paced)

    def value(problem: Problem, rate: Floats) -> float:
        return float("nan")

    found = program.shares(matrix, -earns, -needs[paced], value)
    return Shares(found.x, found.pair_x, float((problem.throughput / price * found.x).sum()))


def _total(problem: Problem, deadline: Deadline) -> Shares:
    return _sum(problem, deadline, np.ones(len(problem.workers)), np.zeros(problem.size))


def _per_dollar(problem: Problem, deadline: Deadline) -> Shares:
    return _sum(problem, deadline, problem.price, np.zeros(problem.size))


def _with_deadlines(price_of: Callable[[Problem], Floats]) -> Objective:
    """All deadlines, or none of them where not all can be met; those that have passed are gone."""

    def solve(problem: Problem, deadline: Deadline) -> Shares:
        due = np.isfinite(problem.time_left) & (problem.time_left > 0)
        if due.any():
            problem.require_remaining()
        needs = np.divide(
            problem.remaining, problem.time_left, out=np.zeros(problem.size), where=due
        )
        try:
            return _sum(problem, deadline, price_of(problem), needs)
        except Unsolved:
            return _sum(problem, deadline, price_of(problem), np.zeros(problem.size))

    return solve


def _indifferent(objective: Objective) -> Objective:
    def solve(problem: Problem, deadline: Deadline) -> Shares:
        return objective(indifferent(problem), deadline)

    return solve


def _paired(objective: Callable[..., Shares]) -> Objective:
    def solve(problem: Problem, deadline: Deadline) -> Shares:
        return objective(problem, deadline, paired=problem.pairs is not None)

    return solve


def _ones(problem: Problem) -> Floats:
    return np.ones(len(problem.workers))


def _price(problem: Problem) -> Floats:
    return problem.price


AS_PUBLISHED: Mapping[str, Objective] = MappingProxyType(
    {
        "max-min": _max_min,
        "max-min-agnostic": _indifferent(_max_min),
        "max-min-packed": _paired(_max_min),
        "ftf": _finish_time,
        "ftf-agnostic": _finish_time,
        "ftf-packed": _paired(_finish_time),
        "makespan": _makespan,
        "makespan-agnostic": _makespan,
        "makespan-packed": _paired(_makespan),
        "max-throughput": _total,
        "cost": _per_dollar,
        "max-throughput-slo": _with_deadlines(_ones),
        "cost-slo": _with_deadlines(_price),
    }
)
