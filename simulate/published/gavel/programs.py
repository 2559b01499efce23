"""Gavel's objectives as the programs that the published simulator passes to its solver.

The result is not only an optimum of the published programs but, of many optima, the one at which
their solver ends: `interior_point` follows the same path from the same start. So the programs are
stated exactly as in the artifact, with rows and columns that do not change the optimum.

- The makespan is a feasibility problem that is solved repeatedly: is there an X with
  Σ_j T_ij x_ij ≥ n_i / T? The last feasible T is up to 5 % above the least.
- Pairs that do not fit together get time too. It is dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.gavel.objectives.formulas import (
    bisected,
    fairness_value,
    indifferent,
    isolated_finish,
    makespan_path,
    makespan_value,
    worst_rho,
)
from dlsched.policies.scheduling.gavel.problem import (
    Problem,
    Shares,
    no_pairs,
    proportional_rate,
    rates,
)
from dlsched.policies.scheduling.gavel.solvers.column_generation import PackedSharing
from dlsched.policies.scheduling.gavel.solvers.linear_program import Deadline
from dlsched.policies.scheduling.gavel.solvers.price_search import PriceSharing
from dlsched.policies.scheduling.gavel.solvers.water_filling import highest
from simulate.published.gavel.interior_point import Unsolved, solved
from simulate.published.gavel.program_matrix import JobMatrix

MOST = 20_000_000  # numbers in a table of all pairs, 160 MB: about 180 jobs of equal gangs

Objective = Callable[[Problem, Deadline], Shares]
Value = Callable[[Problem, Floats], float]


class _Program:
    """What all programs share: the columns of X, and the constraints that every X must meet."""

    def __init__(self, problem: Problem, deadline: Deadline, *, paired: bool = False) -> None:
        """Lay out the columns; types without GPUs are left out.

        `paired` adds columns for all pairs of jobs of equal scale.

        Raises:
            Unsolved: there would be too many columns.
        """
        self._problem, self._deadline = problem, deadline
        self._gpu_types = np.flatnonzero(problem.workers > 0)
        self._count, type_count = problem.size, len(self._gpu_types)
        self._first = self._second = np.zeros(0, np.int64)
        if paired:
            first, second = np.triu_indices(problem.size, 1)
            alike = problem.scale[first] == problem.scale[second]
            self._first, self._second = first[alike], second[alike]
        rows = problem.size + len(self._first)
        self.columns = rows * type_count
        if paired and self.columns * (type_count + 2 * problem.size) > MOST:
            raise Unsolved("too many pairs")
        of = np.arange(self.columns) // type_count
        self._gpu_type: Ints = np.arange(self.columns) % type_count
        owner = np.concatenate([np.arange(problem.size), self._first])
        self._hold: Floats = problem.scale[owner][of]
        halves = np.arange(problem.size * type_count, self.columns)
        self._job = np.concatenate([owner[of], self._second[of[halves] - problem.size]])
        self._column = np.concatenate([np.arange(self.columns), halves])
        alone = problem.throughput[:, self._gpu_types]
        together = np.zeros((len(self._first), type_count, 2))
        self._places = self._known()
        if problem.pairs is not None and paired:
            together[self._places] = problem.pairs.throughput[:, self._gpu_types]
        self.speed: Floats = np.concatenate(
            [alone.ravel(), together[:, :, 0].ravel(), together[:, :, 1].ravel()]
        )

    def _known(self) -> Ints:
        """The positions of the problem's pairs among all pairs."""
        pairs = self._problem.pairs
        if pairs is None or not len(self._first):
            return np.zeros(0, np.int64)
        keys = self._first * self._count + self._second
        found: Ints = np.searchsorted(keys, pairs.first * self._count + pairs.second)
        return found

    def gets(self, worth: Floats) -> Floats:
        """Throughput of every entry, times a weight of its job."""
        found: Floats = self.speed * worth[self._job]
        return found

    def earns(self, gets: Floats) -> Floats:
        """Such values added up by column."""
        sums: Floats = np.bincount(self._column, gets, self.columns).astype(np.float64)
        return sums

    def matrix(
        self,
        gets: Floats,
        required: Bools,
        *,
        level: Floats | None = None,
        late: Floats | None = None,
        inverse: Floats | None = None,
    ) -> JobMatrix:
        """The matrix G.

        Args:
            gets: throughput of every entry, weighted.
            required: jobs that have a least throughput.
            level: coefficients of the common level, by job; None for no level.
            late: coefficients of the inverse throughput, by job; None for no such column.
            inverse: coefficients of it in the cones, by job.
        """
        none = np.zeros(0)
        return JobMatrix(
            jobs=self._count,
            type_count=len(self._gpu_types),
            gpu_type=self._gpu_type,
            job=self._job,
            column=self._column,
            bound=np.ones(self.columns),
            hold=self._hold,
            time=np.ones(len(self._job)),
            gets=gets if late is not None else np.where(required[self._job], gets, 0.0),
            required=required,
            level=none if level is None else level,
            late=none if late is None else late,
            inverse=none if inverse is None else inverse,
        )

    def shares(
        self, matrix: JobMatrix, c: Floats, right: Floats, value: Value, *, cones: int = 0
    ) -> Shares:
        """Solve the program, and read X.

        Args:
            matrix: G.
            c: costs of the columns.
            right: right-hand sides of the required throughputs and of the cones.
            value: computes the objective from the throughputs.
            cones: number of cones.

        Raises:
            Unsolved: there is no X.
        """
        problem, type_count = self._problem, len(self._gpu_types)
        base = np.zeros(self.columns), problem.workers[self._gpu_types], np.ones(self._count)
        h = np.concatenate([*base, right])
        v = solved(matrix, c, h, cones, check=self._deadline.check)
        x = np.clip(v[: self.columns].reshape(-1, type_count), 0.0, 1.0)
        alone, together = np.zeros(problem.throughput.shape), no_pairs(problem)
        alone[:, self._gpu_types] = x[: self._count]
        if len(together):
            together[:, self._gpu_types] = x[self._count :][self._places]
        found = Shares(alone, together)
        return Shares(alone, together, value(problem, rates(problem, found)))


def _max_min(problem: Problem, deadline: Deadline, *, paired: bool = False) -> Shares:
    """Max min_i s_i / (w_i P_i) Σ_j T_ij x_ij."""
    entitled = problem.weight > 0
    if not entitled.any():
        raise Unsolved("no job is entitled to anything")
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
        raise Unsolved("a job has no steps at all")
    late, ones = problem.remaining / allowed, np.ones(problem.size)
    program = _Program(problem, deadline, paired=paired)
    gets, sides = program.gets(ones), np.tile([0.0, 0.0, 2.0], count)
    if count == 1:
        matrix = program.matrix(gets, np.zeros(1, np.bool_), late=late, inverse=ones)
        c = np.concatenate([np.zeros(program.columns), late])
        return program.shares(matrix, c, sides, worst_rho, cones=count)
    all_jobs = np.ones(count, np.bool_)
    matrix = program.matrix(gets, all_jobs, level=-ones, late=late, inverse=ones)
    c = np.concatenate([np.zeros(program.columns), [1.0], np.zeros(count)])
    right = np.concatenate([-problem.elapsed / allowed, sides])
    return program.shares(matrix, c, right, worst_rho, cones=count)


def _makespan(problem: Problem, deadline: Deadline, *, paired: bool = False) -> Shares:
    """Find an X with Σ_j T_ij x_ij ≥ n_i / T, for the T at which the published search stops."""
    problem.require_remaining()
    path = makespan_path(problem)
    if paired and problem.pairs is not None:
        level = highest(PackedSharing(problem, problem.pairs, deadline), path)
    else:
        level = highest(PriceSharing(problem, deadline), path)
    if level <= 0:
        raise Unsolved("no job has steps left")
    program = _Program(problem, deadline, paired=paired)
    matrix = program.matrix(-program.speed, np.ones(problem.size, np.bool_))
    right = -problem.remaining / bisected(1.0 / level)
    return program.shares(matrix, np.zeros(matrix.width), right, makespan_value)


def _sum(problem: Problem, deadline: Deadline, price: Floats, needs: Floats) -> Shares:
    """Max Σ_ij T_ij x_ij / price_j, where job i needs at least needs_i steps/s."""
    program = _Program(problem, deadline)
    earns = program.earns(program.speed) / np.tile(price[problem.workers > 0], problem.size)
    required = needs > 0
    matrix = program.matrix(-program.speed, required)

    def value(problem: Problem, rate: Floats) -> float:
        return float("nan")

    found = program.shares(matrix, -earns, -needs[required], value)
    return Shares(found.x, found.pair_x, float((problem.throughput / price * found.x).sum()))


def _total(problem: Problem, deadline: Deadline) -> Shares:
    return _sum(problem, deadline, np.ones(len(problem.workers)), np.zeros(problem.size))


def _per_dollar(problem: Problem, deadline: Deadline) -> Shares:
    return _sum(problem, deadline, problem.price, np.zeros(problem.size))


def _with_deadlines(price_of: Callable[[Problem], Floats]) -> Objective:
    """Meet all deadlines that have not passed, or none of them where not all can be met."""

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
