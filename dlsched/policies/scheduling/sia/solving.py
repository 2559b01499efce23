"""The integer program, solved: by HiGHS, and where it is large, on what can matter of it only.

Prices of GPUs (the duals of the linear relaxation) say what each configuration gains beyond what
its GPUs are worth to others. All but as many jobs as there are types get one whole configuration
in the relaxation; rounding the others gives a first choice, and its distance from the bound says
which configurations cannot be in a better one. HiGHS decides among the rest, which is little.

One thread, no randomness: the same program gives the same choice. In a live cluster a time limit
may strike; then the best choice so far counts, which is never worse than leaving all as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import highspy
import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.sia.configurations import NONE
from dlsched.policies.scheduling.sia.program import STEP, Program
from dlsched.policies.scheduling.sia.table import best_of_table, table_size

__all__ = ["Limits", "Solution", "solve"]

SMALL = 1500  # choices; up to there the optimum itself is found, ties and all
EXACT = 1e-9
TABLE = 1_500_000  # steps; a table of so many is quicker than a solver
CORES = (50, 200, 800)  # choices beside the relaxation's own, tried before all that may matter
TIE = 1e-6  # what staying is worth where values are not rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the program is solved well enough.

    Attributes:
        gap: distance from the optimum, relative to the objective.
        nodes: of the branch-and-bound tree.
        seconds: of the clock; infinite in a replay, which must not depend on the machine.
    """

    gap: float = 1e-4
    nodes: int = 20_000
    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Solution:
    """What was chosen.

    Attributes:
        choice: by job a configuration, NONE for nothing.
        objective: its value, without what ties were broken by.
        bound: no choice has a better value than this (but for ties and reservations).
    """

    choice: Ints
    objective: float
    bound: float


@dataclass(frozen=True, slots=True)
class _Columns:
    """Choices that may matter: job, configuration, gain; by job, then by configuration."""

    job: Ints
    config: Ints
    gain: Floats

    def only(self, keep: Bools) -> _Columns:
        return _Columns(self.job[keep], self.config[keep], self.gain[keep])


def solve(program: Program, limits: Limits) -> Solution:
    """The best choice; ties go to what jobs have, then to fewer GPUs, then to later types."""
    jobs = len(program.now)
    if not jobs:
        return Solution(np.zeros(0, np.int64), 0.0, 0.0)
    return _Solver(program, limits).run()


class _Solver:
    """One program on its way."""

    def __init__(self, program: Program, limits: Limits) -> None:
        self.program, self.limits = program, limits
        self.jobs = len(program.now)
        room = program.configurations
        self.kind, self.gpus = room.kind, room.gpus
        tie = STEP / (2 * (self.jobs + 1)) if program.rounding == "artifact" else TIE
        self.gains = program.gains
        self.gains -= tie / 4 * self.gpus / max(int(self.gpus.max(initial=1)), 1)
        self.gains += tie / 1000 * self.kind
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
        """What could be chosen: fits, is better than nothing and than fewer GPUs of the type."""
        gains = self.gains.copy()
        gains[self.pinned] = -np.inf
        gains[:, self.gpus > self.room[self.kind]] = -np.inf
        for kind in range(len(self.room)):
            at = np.flatnonzero(self.kind == kind)
            at = at[np.argsort(self.gpus[at], kind="stable")]
            if len(at) > 1:
                best = np.maximum.accumulate(gains[:, at], axis=1)
                gains[:, at[1:]] = np.where(
                    gains[:, at[1:]] > best[:, :-1], gains[:, at[1:]], -np.inf
                )
        job, config = np.nonzero(gains > 0)
        return _Columns(job, config, gains[job, config])

    def _staying(self) -> Ints | None:
        """Everybody keeps what it has, if that can be."""
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
        """Relax, round, and decide only about what may still matter."""
        taken, prices = self._relax(columns)
        surplus = columns.gain - prices[self.kind[columns.config]] * self.gpus[columns.config]
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
        """The optimum of a core, where a table of it is small.

        Args:
            core: every choice that may be in an optimum.
            must: jobs that have something in every optimum.
        """
        count = np.bincount(core.job, minlength=self.jobs)
        sure = (count == 1) & must
        settled, rest = core.only(sure[core.job]), core.only(~sure[core.job])
        choice = self._fixed()
        choice[settled.job] = settled.config
        room = self.program.configurations.capacity - self.program.uses(choice)
        if (room < 0).any() or table_size(room, len(rest.job)) > TABLE:
            return None
        jobs, job = np.unique(rest.job, return_inverse=True)
        at = best_of_table(job, self.kind[rest.config], self.gpus[rest.config], rest.gain, room)
        some = at != NONE
        choice[jobs[some]] = rest.config[at[some]]
        return choice

    def _allowed(self, choice: Ints) -> float:
        """How far from the bound is near enough."""
        if len(self.kind) * self.jobs <= SMALL:
            return EXACT
        return self.limits.gap * abs(self.program.objective(choice))

    def _relax(self, columns: _Columns) -> tuple[Floats, Floats]:
        """The linear relaxation: which part of each column, and a price for a GPU of each type."""
        solver = _highs(self.limits)
        solver.passModel(self._model(columns, whole=False))
        solver.run()
        answer = solver.getSolution()
        prices = np.maximum(np.array(answer.row_dual)[-len(self.room) :], 0.0)
        return np.array(answer.col_value), prices

    def _rounded(self, columns: _Columns, taken: Floats, surplus: Floats) -> Ints:
        """Whole choices of the relaxation, then whatever fits of the others."""
        choice = self._fixed()
        whole = taken > 1 - 1e-7
        choice[columns.job[whole]] = columns.config[whole]
        return self._filled(columns, choice)

    def _filled(self, columns: _Columns, choice: Ints) -> Ints:
        """Give what is left to whom it helps most, until nothing helps."""
        choice = choice.copy()
        have = np.zeros(self.jobs)
        some = np.flatnonzero(choice != NONE)
        have[some] = self.gains[some, choice[some]]
        room = self.program.configurations.capacity - self.program.uses(choice)
        kind, need = self.kind[columns.config], self.gpus[columns.config]
        while True:
            back = np.zeros(self.jobs, np.int64)
            some = np.flatnonzero(choice != NONE)
            back[some] = self.gpus[choice[some]]
            own = np.full(self.jobs, NONE)
            own[some] = self.kind[choice[some]]
            fits = need <= room[kind] + np.where(own[columns.job] == kind, back[columns.job], 0)
            gain = np.where(fits, columns.gain - have[columns.job], 0.0)
            at = int(gain.argmax()) if len(gain) else 0
            if not len(gain) or gain[at] <= 1e-12:
                return choice
            job, config = int(columns.job[at]), int(columns.config[at])
            if choice[job] != NONE:
                room[self.kind[choice[job]]] += self.gpus[choice[job]]
            room[self.kind[config]] -= self.gpus[config]
            choice[job], have[job] = config, columns.gain[at]

    # -- HiGHS ------------------------------------------------------------------------------------

    def _model(self, columns: _Columns, *, whole: bool) -> highspy.HighsLp:
        """A row a job that has a choice, then a row a type."""
        count = len(columns.job)
        jobs, row = np.unique(columns.job, return_inverse=True)
        kinds = len(self.room)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = count, len(jobs) + kinds
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = columns.gain
        model.col_lower_, model.col_upper_ = np.zeros(count), np.ones(count)
        model.row_lower_ = np.full(len(jobs) + kinds, -highspy.kHighsInf)
        model.row_upper_ = np.concatenate([np.ones(len(jobs)), self.room.astype(np.float64)])
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kColwise
        matrix.start_ = np.arange(0, 2 * count + 1, 2, dtype=np.int32)
        index = np.empty(2 * count, np.int32)
        index[::2], index[1::2] = row, len(jobs) + self.kind[columns.config]
        value = np.ones(2 * count)
        value[1::2] = self.gpus[columns.config]
        matrix.index_, matrix.value_ = index, value
        if whole:
            model.integrality_ = [highspy.HighsVarType.kInteger] * count
        return model

    def _decide(
        self, columns: _Columns, start: Ints, *, gap: float, target: float
    ) -> tuple[Ints, float]:
        """The best of these columns, and what no choice of them exceeds.

        Near enough is an absolute gap, or a choice that gains as much as a target.
        """
        choice = self._fixed()
        base = self._gain(choice)
        if not len(columns.job):
            return choice, base
        solver = _highs(self.limits)
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.setOptionValue("mip_abs_gap", gap)
        solver.setOptionValue("objective_target", target - base)
        solver.setOptionValue("mip_max_nodes", self.limits.nodes)
        solver.passModel(self._model(columns, whole=True))
        guess = highspy.HighsSolution()
        guess.col_value = (start[columns.job] == columns.config).astype(float).tolist()
        solver.setSolution(guess)
        solver.run()
        info = solver.getInfo()
        if info.primal_solution_status != 2:  # HiGHS' number for a feasible one
            return start, np.inf
        taken = np.array(solver.getSolution().col_value) > 0.5
        choice[columns.job[taken]] = columns.config[taken]
        return choice, base + float(info.mip_dual_bound)


def _highs(limits: Limits) -> highspy.Highs:
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # not annotated there
    for name, value in (("output_flag", False), ("threads", 1), ("random_seed", 0)):
        solver.setOptionValue(name, value)
    if math.isfinite(limits.seconds):
        solver.setOptionValue("time_limit", max(limits.seconds, 0.01))
    return solver
