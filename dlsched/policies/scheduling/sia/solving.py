"""The solution of the integer program, by HiGHS; of a large program only the core is solved.

Prices of GPUs (the duals of the linear relaxation) tell what each configuration gains beyond the
value of its GPUs to other jobs. In the relaxation, all jobs except as many as there are types have
one whole configuration. Rounding the others gives a first choice, and its distance from the bound
tells which configurations cannot be in a better one. HiGHS decides among the few that remain, the
core. A very small core is solved by dynamic programming over the free GPUs of each type (a knapsack
with one dimension a type), which takes less time than to set up a solver.

One thread, no randomness: the same program gives the same choice. In a live cluster there may be a
time limit; then the best choice so far is used, which is never worse than no change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import highspy
import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.highs import Limits, best_found, new_solver
from dlsched.policies.scheduling.sia.configurations import NONE
from dlsched.policies.scheduling.sia.integer_program import Program

SMALL = 1500  # choices; up to this number the exact optimum is found, including ties
EXACT = 1e-9
TABLE = 1_500_000  # steps; up to this number dynamic programming is faster than HiGHS
CORES = (50, 200, 800)  # sizes of cores to try first, beyond the choices of the relaxation
TIE = 1e-6  # bonus for keeping a configuration where values are not rounded


def table_size(room: Ints, choices: int) -> int:
    """Steps of dynamic programming for so many choices."""
    return int(np.prod(room + 1)) * choices


def best_of_table(job: Ints, gpu_type: Ints, gpus: Ints, gain: Floats, room: Ints) -> Ints:
    """The optimum by dynamic programming: for each job the position of its choice, or NONE.

    Args:
        job: the job of each choice, 0, 1, … in order.
        gpu_type: the GPU type of each choice.
        gpus: its number of GPUs.
        gain: its gain.
        room: GPUs of each type.
    """
    jobs = int(job[-1]) + 1 if len(job) else 0
    shape = tuple((room + 1).tolist())
    value = np.zeros(shape)
    chosen = np.full((jobs, *shape), NONE, np.int32)
    axes = len(shape)
    for at, (which, where, need, worth) in enumerate(
        zip(job.tolist(), gpu_type.tolist(), gpus.tolist(), gain.tolist(), strict=True)
    ):
        if at == 0 or which != job[at - 1]:
            before = value
            value = before.copy()
        if need > room[where]:
            continue
        after = tuple(slice(need, None) if axis == where else slice(None) for axis in range(axes))
        ahead = tuple(
            slice(None, shape[where] - need) if axis == where else slice(None)
            for axis in range(axes)
        )
        offer = before[ahead] + worth
        better = offer > value[after]
        np.copyto(value[after], offer, where=better)
        chosen[which][after][better] = at
    left = room.copy()
    answer = np.full(jobs, NONE, np.int64)
    for which in range(jobs - 1, -1, -1):
        at = int(chosen[(which, *left.tolist())])
        answer[which] = at
        if at != NONE:
            left[gpu_type[at]] -= gpus[at]
    return answer


@dataclass(frozen=True, slots=True)
class Solution:
    """The choice for all jobs.

    Attributes:
        choice: by job, a configuration or NONE.
        objective: its value, without the bonuses that break ties.
        bound: no choice has a better value than this (without bonuses and reservations).
    """

    choice: Ints
    objective: float
    bound: float


@dataclass(frozen=True, slots=True)
class _Columns:
    """Choices that may be in an optimum: job, configuration, gain; sorted by job."""

    job: Ints
    config: Ints
    gain: Floats

    def only(self, keep: Bools) -> _Columns:
        return _Columns(self.job[keep], self.config[keep], self.gain[keep])


def solve(program: Program, limits: Limits) -> Solution:
    """The best choice; of equals, present configurations, then fewer GPUs, then later types."""
    jobs = len(program.now)
    if not jobs:
        return Solution(np.zeros(0, np.int64), 0.0, 0.0)
    return _Solver(program, limits).run()


class _Solver:
    """The solution of one program."""

    def __init__(self, program: Program, limits: Limits) -> None:
        self.program, self.limits = program, limits
        self.jobs = len(program.now)
        room = program.configurations
        self.gpu_type, self.gpus = room.gpu_type, room.gpus
        step = program.terms.step
        tie = step / (2 * (self.jobs + 1)) if step else TIE
        self.gains = program.gains
        self.gains -= tie / 4 * self.gpus / max(int(self.gpus.max(initial=1)), 1)
        self.gains += tie / 1000 * self.gpu_type
        stay = np.flatnonzero(program.now != NONE)
        self.gains[stay, program.now[stay]] += tie
        pinned = program.pinned & (program.now != NONE)
        self.room = room.capacity - program.uses(np.where(pinned, program.now, NONE))
        self.pinned = pinned

    def run(self) -> Solution:
        program = self.program
        columns = self._columns()
        start = self._staying()
        choice, bound = self._by_prices(columns, start)
        if start is not None and self._gain(start) > self._gain(choice):
            choice = start
        nothing = math.copysign(program.penalty, -program.power)
        weight = self.jobs if program.weight is None else float(program.weight.sum())
        sign = -1.0 if program.power < 0 else 1.0
        return Solution(choice, program.objective(choice), nothing * weight + sign * bound)

    def _columns(self) -> _Columns:
        """Choices that fit and are better than nothing and than fewer GPUs of the same type."""
        gains = self.gains.copy()
        gains[self.pinned] = -np.inf
        gains[:, self.gpus > self.room[self.gpu_type]] = -np.inf
        for gpu_type in range(len(self.room)):
            at = np.flatnonzero(self.gpu_type == gpu_type)
            at = at[np.argsort(self.gpus[at], kind="stable")]
            if len(at) > 1:
                best = np.maximum.accumulate(gains[:, at], axis=1)
                gains[:, at[1:]] = np.where(
                    gains[:, at[1:]] > best[:, :-1], gains[:, at[1:]], -np.inf
                )
        job, config = np.nonzero(gains > 0)
        return _Columns(job, config, gains[job, config])

    def _staying(self) -> Ints | None:
        """The choice in which all jobs keep their configurations, if it is feasible."""
        program = self.program
        now = program.now
        some = np.flatnonzero(now != NONE)
        possible = self.pinned[some] | (self.gains[some, now[some]] > 0)
        stays = np.full(self.jobs, NONE, np.int64)
        stays[some[possible]] = now[some[possible]]
        if (program.uses(stays) > program.configurations.capacity).any():
            return None
        return stays

    def _gain(self, choice: Ints) -> float:
        some = np.flatnonzero(choice != NONE)
        return float(self.gains[some, choice[some]].sum())

    def _fixed(self) -> Ints:
        return np.where(self.pinned, self.program.now, NONE)

    # -- large programs ---------------------------------------------------------------------------

    def _by_prices(self, columns: _Columns, start: Ints | None) -> tuple[Ints, float]:
        """Relax, round, and let HiGHS decide among the choices that may be in an optimum."""
        taken, prices = self._relax(columns)
        surplus = columns.gain - prices[self.gpu_type[columns.config]] * self.gpus[columns.config]
        best = np.zeros(self.jobs)
        np.maximum.at(best, columns.job, surplus)
        base = self._gain(self._fixed())
        bound = float(best.sum() + (prices * self.room).sum()) + base
        choice = self._rounded(columns, taken, surplus)
        if start is not None and self._gain(start) > self._gain(choice):
            choice = self._filled(columns, start)
        reach = self._allowed(choice)
        if bound - self._gain(choice) <= reach:
            return choice, bound
        loss = best[columns.job] - surplus
        order = np.sort(loss)
        for size in CORES if reach > EXACT else ():
            worst = order[min(self.jobs + size, len(order) - 1)]
            if worst > bound - self._gain(choice):
                break
            better, _ = self._decide(
                columns.only(loss <= worst), choice, gap=reach / 2, target=bound - reach
            )
            choice = self._filled(columns, better)
            if bound - self._gain(choice) <= reach:
                return choice, bound
        open_gap = bound - self._gain(choice) + EXACT
        core = columns.only(loss <= open_gap)
        if (exact := self._by_table(core, best > open_gap)) is not None:
            return exact, min(self._gain(exact), bound)
        better, sure = self._decide(core, choice, gap=reach, target=bound - reach)
        return better, min(sure, bound)

    def _by_table(self, core: _Columns, must: Bools) -> Ints | None:
        """The optimum of a core by dynamic programming, if small; `must` are in every optimum."""
        count = np.bincount(core.job, minlength=self.jobs)
        sure = (count == 1) & must
        settled, rest = core.only(sure[core.job]), core.only(~sure[core.job])
        choice = self._fixed()
        choice[settled.job] = settled.config
        room = self.program.configurations.capacity - self.program.uses(choice)
        if (room < 0).any() or table_size(room, len(rest.job)) > TABLE:
            return None
        jobs, job = np.unique(rest.job, return_inverse=True)
        at = best_of_table(job, self.gpu_type[rest.config], self.gpus[rest.config], rest.gain, room)
        some = at != NONE
        choice[jobs[some]] = rest.config[at[some]]
        return choice

    def _allowed(self, choice: Ints) -> float:
        """The distance from the bound that is accepted."""
        if len(self.gpu_type) * self.jobs <= SMALL:
            return EXACT
        return self.limits.gap * abs(self.program.objective(choice))

    def _relax(self, columns: _Columns) -> tuple[Floats, Floats]:
        """The linear relaxation: the part of each choice, and the price of a GPU of each type."""
        solver = new_solver(seconds=self.limits.seconds)
        solver.passModel(self._model(columns, whole=False))
        solver.run()
        answer = solver.getSolution()
        prices = np.maximum(np.array(answer.row_dual)[-len(self.room) :], 0.0)
        return np.array(answer.col_value), prices

    def _rounded(self, columns: _Columns, taken: Floats, surplus: Floats) -> Ints:
        """The whole choices of the relaxation, then others that fit."""
        choice = self._fixed()
        whole = taken > 1 - 1e-7
        choice[columns.job[whole]] = columns.config[whole]
        return self._filled(columns, choice)

    def _filled(self, columns: _Columns, choice: Ints) -> Ints:
        """Give GPUs that are left to the job that gains most, until no job gains."""
        choice = choice.copy()
        have = np.zeros(self.jobs)
        some = np.flatnonzero(choice != NONE)
        have[some] = self.gains[some, choice[some]]
        room = self.program.configurations.capacity - self.program.uses(choice)
        gpu_type, need = self.gpu_type[columns.config], self.gpus[columns.config]
        while True:
            back = np.zeros(self.jobs, np.int64)
            some = np.flatnonzero(choice != NONE)
            back[some] = self.gpus[choice[some]]
            own = np.full(self.jobs, NONE)
            own[some] = self.gpu_type[choice[some]]
            fits = need <= room[gpu_type] + np.where(
                own[columns.job] == gpu_type, back[columns.job], 0
            )
            gain = np.where(fits, columns.gain - have[columns.job], 0.0)
            at = int(gain.argmax()) if len(gain) else 0
            if not len(gain) or gain[at] <= 1e-12:
                return choice
            job, config = int(columns.job[at]), int(columns.config[at])
            if choice[job] != NONE:
                room[self.gpu_type[choice[job]]] += self.gpus[choice[job]]
            room[self.gpu_type[config]] -= self.gpus[config]
            choice[job], have[job] = config, columns.gain[at]

    # -- HiGHS ------------------------------------------------------------------------------------

    def _model(self, columns: _Columns, *, whole: bool) -> highspy.HighsLp:
        """The model: one row for each job with a choice, then one row for each type."""
        count = len(columns.job)
        jobs, row = np.unique(columns.job, return_inverse=True)
        type_count = len(self.room)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = count, len(jobs) + type_count
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = columns.gain
        model.col_lower_, model.col_upper_ = np.zeros(count), np.ones(count)
        model.row_lower_ = np.full(len(jobs) + type_count, -highspy.kHighsInf)
        model.row_upper_ = np.concatenate([np.ones(len(jobs)), self.room.astype(np.float64)])
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kColwise
        matrix.start_ = np.arange(0, 2 * count + 1, 2, dtype=np.int32)
        index = np.empty(2 * count, np.int32)
        index[::2], index[1::2] = row, len(jobs) + self.gpu_type[columns.config]
        value = np.ones(2 * count)
        value[1::2] = self.gpus[columns.config]
        matrix.index_, matrix.value_ = index, value
        if whole:
            model.integrality_ = [highspy.HighsVarType.kInteger] * count
        return model

    def _decide(
        self, columns: _Columns, start: Ints, *, gap: float, target: float
    ) -> tuple[Ints, float]:
        """The best of these choices, and an upper bound of the gain.

        The search stops at an absolute gap, or at a choice that gains as much as a target.
        """
        choice = self._fixed()
        base = self._gain(choice)
        if not len(columns.job):
            return choice, base
        solver = new_solver(
            seconds=self.limits.seconds,
            mip_rel_gap=0.0,
            mip_abs_gap=gap,
            objective_target=target - base,
            mip_max_nodes=self.limits.nodes,
        )
        guess = (start[columns.job] == columns.config).astype(np.float64)
        x = best_found(solver, self._model(columns, whole=True), guess)
        if x is None:
            return start, np.inf
        taken = x > 0.5
        choice[columns.job[taken]] = columns.config[taken]
        return choice, base + float(solver.getInfo().mip_dual_bound)
