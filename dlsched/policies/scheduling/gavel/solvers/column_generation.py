"""Space sharing: jobs in pairs on the same GPUs, by column generation.

Gavel, section 4.4. A job has time alone, x_ij, and time in pairs, x_cj for c = {i, k}:

    Σ_j T_ij x_ij + Σ_{c∋i} Σ_j T_i[c, j] x_cj ≥ the target of job i
    Σ_j x_ij      + Σ_{c∋i} Σ_j x_cj          ≤ 1
    Σ_i s_i x_ij  + Σ_c s_c x_cj              ≤ u N_j

Of the m²/2 pairs very few are used. The program starts without pairs; as long as the value of the
steps of some pairs exceeds the cost of their GPUs and time, the best of these pairs enter. A pair
that is slower than its two jobs one after the other never needs to enter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.gavel.problem import Pairs, Problem
from dlsched.policies.scheduling.gavel.solvers.linear_program import (
    DUAL,
    NO_DEADLINE,
    PRIMAL,
    Deadline,
    LinearProgram,
)
from dlsched.policies.scheduling.gavel.solvers.price_search import PriceSharing
from dlsched.policies.scheduling.gavel.solvers.water_filling import Path, water_fill

GAINS = 1e-9  # a pair enters if it saves more than this part of the cluster
ENTER = 2  # the most pairs that enter at once, as a multiple of the jobs
PLAY = 2e-9  # tolerance of the use of the cluster while ties are broken


@dataclass(frozen=True, slots=True)
class PackedCertificate:
    """The dual values of an optimum: they bound the use of the cluster from below.

    Attributes:
        use: use of the cluster at the targets for which they were found.
        worth: value of one unit of each job's target.
        time: value of the time of all jobs together.
    """

    use: float
    worth: Floats
    time: float

    def cost(self, target: Floats) -> float:
        """A lower bound on the part of the cluster that these targets need."""
        return float((self.worth * target).sum()) - self.time

    def marginal(self, target: Floats) -> Floats:
        """The value of one unit of each job's target."""
        return self.worth


class PackedSharing:
    """Jobs on GPU types, alone and in pairs."""

    def __init__(self, problem: Problem, pairs: Pairs, deadline: Deadline = NO_DEADLINE) -> None:
        self._speed = problem.throughput / problem.best[:, None]
        self._problem, self._pairs = problem, pairs
        with np.errstate(divide="ignore"):
            hold = np.where(problem.workers > 0, problem.scale[:, None] / problem.workers, 0.0)
        self._hold: Floats = hold
        self._pair_hold: Floats = hold[pairs.first]
        self._halves = (
            pairs.throughput[:, :, 0] / problem.best[pairs.first, None],
            pairs.throughput[:, :, 1] / problem.best[pairs.second, None],
        )
        self._candidates = self._worth_trying(problem)
        self._entered: list[Ints] = []  # flat numbers (pair · types + type), in order of entry
        count, type_count = self._speed.shape
        self._size, self._type_count = count, type_count
        low = np.concatenate([np.zeros(count), np.full(count + type_count, -np.inf)])
        high = np.concatenate([np.full(count, np.inf), np.ones(count), np.zeros(type_count)])
        self._program = LinearProgram(low, high, deadline)
        self._program.add(1.0, 2 * count + np.arange(type_count), np.full(type_count, -1.0))
        self._alone = np.argwhere(self._speed > 0)
        job, gpu_type = self._alone.T
        self._program.add_many(
            np.zeros(len(job)),
            np.stack([job, count + job, 2 * count + gpu_type], axis=1),
            np.stack(
                [self._speed[job, gpu_type], np.ones(len(job)), self._hold[job, gpu_type]], axis=1
            ),
        )
        self._x = np.zeros(0)

    def _worth_trying(self, problem: Problem) -> Bools:
        """The pairs and types where a pair is faster than its two jobs one after the other."""
        pairs = self._pairs
        one, other = problem.throughput[pairs.first], problem.throughput[pairs.second]
        with np.errstate(divide="ignore", invalid="ignore"):
            together = pairs.throughput[:, :, 0] / one + pairs.throughput[:, :, 1] / other
        faster: Bools = (one > 0) & (other > 0) & (together > 1.0)
        return faster

    def guess(self, path: Path) -> PackedCertificate:
        """Dual values at the targets that jobs reach without pairs."""
        if not self._entered:
            alone = water_fill(PriceSharing(self._problem), path)
            return self.scale(alone.target)
        return self.scale(path.at(0.0))

    def scale(self, target: Floats) -> PackedCertificate:
        """The smallest u at which all targets are met and each type is used up to u N_j."""
        count = self._size
        self._program.bound_rows(np.arange(count), target, np.full(count, np.inf))
        use, self._x, worth = self._program.solve(DUAL)
        while self._enter_pairs(worth):
            use, self._x, worth = self._program.solve(PRIMAL)
        target_worth, time_worth = np.maximum(-worth[:count], 0.0), worth[count : 2 * count]
        return PackedCertificate(use, target_worth, float(time_worth.sum()))

    def choose(self, target: Floats, wish: Floats) -> tuple[Floats, Floats]:
        """The X that meets these targets with the largest Σ wish · x.

        The targets, by job, fit the cluster; `wish` is weights that break ties, [job, type], those
        of a pair's jobs added up.

        Returns:
            X of jobs alone [job, type] and of pairs [pair, type].
        """
        use = self.scale(target).use
        job, gpu_type = self._alone.T
        pair, pair_type = np.divmod(self._columns(), self._type_count)
        first, second = self._pairs.first[pair], self._pairs.second[pair]
        worth = wish[job, gpu_type], wish[first, pair_type] + wish[second, pair_type]
        self._program.bound_column(0, 0.0, max(use, 1.0) + PLAY)
        self._program.price_columns(-np.concatenate([np.zeros(1), *worth]))
        x = np.maximum(self._program.solve(PRIMAL)[1], 0.0)
        alone = np.zeros((self._size, self._type_count))
        alone[job, gpu_type] = x[1 : 1 + len(job)]
        together = np.zeros((len(self._pairs), self._type_count))
        together[pair, pair_type] = x[1 + len(job) :]
        return alone, together

    def _columns(self) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *self._entered])

    def _enter_pairs(self, worth: Floats) -> bool:
        """Add the pairs that save most; returns False when no pair saves anything."""
        pairs, count = self._pairs, self._size
        target, time, price = worth[:count], worth[count : 2 * count], worth[2 * count :]
        # the dual value of a target row is negative: a higher target costs
        saves = -(target[pairs.first, None] * self._halves[0])
        saves -= target[pairs.second, None] * self._halves[1]
        saves -= (time[pairs.first] + time[pairs.second])[:, None] + price * self._pair_hold
        saves[~self._candidates] = -np.inf
        flat = saves.ravel()
        gainful = np.flatnonzero(flat > GAINS)
        if not len(gainful):
            return False
        order = np.lexsort((gainful, -flat[gainful]))
        chosen = gainful[order[: ENTER * count]]
        self._candidates.ravel()[chosen] = False
        self._entered.append(chosen)
        pair, gpu_type = np.divmod(chosen, self._type_count)
        first, second, one = pairs.first[pair], pairs.second[pair], np.ones(len(pair))
        rows = np.stack(
            [first, second, count + first, count + second, 2 * count + gpu_type], axis=1
        )
        halves = self._halves[0][pair, gpu_type], self._halves[1][pair, gpu_type]
        values = np.stack([*halves, one, one, self._pair_hold[pair, gpu_type]], axis=1)
        self._program.add_many(np.zeros(len(pair)), rows, values)
        return True
