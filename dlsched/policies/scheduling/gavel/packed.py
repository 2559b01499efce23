"""Space sharing: jobs in pairs on the same GPUs, by column generation.

Gavel, section 4.4. Beside its time alone, x_ij, a job has time in pairs, x_cj for c = {i, k}:

    Σ_j T_ij x_ij + Σ_{c∋i} Σ_j T_i[c, j] x_cj ≥ what job i must get
    Σ_j x_ij      + Σ_{c∋i} Σ_j x_cj          ≤ 1
    Σ_i s_i x_ij  + Σ_c s_c x_cj              ≤ u N_j

Of the m²/2 pairs very few are used. The program begins without pairs; as long as the worth of jobs'
steps exceeds what a pair's GPUs and time cost, the best such pairs enter. A pair that is slower
than two jobs in turn never needs to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.gavel.deadline import NO_DEADLINE, Deadline
from dlsched.policies.scheduling.gavel.linear_program import DUAL, PRIMAL, LinearProgram
from dlsched.policies.scheduling.gavel.prices import PriceSharing
from dlsched.policies.scheduling.gavel.problem import Pairs, Problem
from dlsched.policies.scheduling.gavel.rising import Path, raise_all

__all__ = ["PackedCertificate", "PackedSharing"]

GAINS = 1e-9  # a pair enters when it would save more than this part of the cluster
ENTER = 2  # pairs that enter at once, per job
PLAY = 2e-9  # how exactly the cluster must be kept to when wishes are fulfilled


@dataclass(frozen=True, slots=True)
class PackedCertificate:
    """Worth of a pace, and of a job's time, to each job.

    Attributes:
        use: of the cluster, at the paces for which they were found.
        worth: of a unit of pace, by job.
        time: what all jobs' time is worth together.
    """

    use: float
    worth: Floats
    time: float

    def cost(self, pace: Floats) -> float:
        """At least so much of the cluster is needed."""
        return float((self.worth * pace).sum()) - self.time

    def marginal(self, pace: Floats) -> Floats:
        """The worth of a pace."""
        return self.worth


class PackedSharing:
    """Jobs alone and in pairs."""

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
        count, kinds = self._speed.shape
        self._size, self._kinds = count, kinds
        low = np.concatenate([np.zeros(count), np.full(count + kinds, -np.inf)])
        high = np.concatenate([np.full(count, np.inf), np.ones(count), np.zeros(kinds)])
        self._program = LinearProgram(low, high, deadline)
        self._program.add(1.0, 2 * count + np.arange(kinds), np.full(kinds, -1.0))
        self._alone = np.argwhere(self._speed > 0)
        job, kind = self._alone.T
        self._program.add_many(
            np.zeros(len(job)),
            np.stack([job, count + job, 2 * count + kind], axis=1),
            np.stack([self._speed[job, kind], np.ones(len(job)), self._hold[job, kind]], axis=1),
        )
        self._x = np.zeros(0)

    def _worth_trying(self, problem: Problem) -> Bools:
        """Pairs on types where both halves together are faster than the two jobs in turn."""
        pairs = self._pairs
        one, other = problem.throughput[pairs.first], problem.throughput[pairs.second]
        with np.errstate(divide="ignore", invalid="ignore"):
            together = pairs.throughput[:, :, 0] / one + pairs.throughput[:, :, 1] / other
        faster: Bools = (one > 0) & (other > 0) & (together > 1.0)
        return faster

    def guess(self, path: Path) -> PackedCertificate:
        """The worth of paces where jobs without pairs would end."""
        if not self._entered:
            alone = raise_all(PriceSharing(self._problem), path)
            return self.scale(alone.pace)
        return self.scale(path.at(0.0))

    def scale(self, pace: Floats) -> PackedCertificate:
        """Smallest u with paces kept and every type used up to u times its capacity."""
        count = self._size
        self._program.bound_rows(np.arange(count), pace, np.full(count, np.inf))
        use, self._x, worth = self._program.solve(DUAL)
        while self._enter_pairs(worth):
            use, self._x, worth = self._program.solve(PRIMAL)
        pace_worth, time_worth = np.maximum(-worth[:count], 0.0), worth[count : 2 * count]
        return PackedCertificate(use, pace_worth, float(time_worth.sum()))

    def choose(self, pace: Floats, wish: Floats) -> tuple[Floats, Floats]:
        """Of all X that keep these paces, the one that fulfils most of the wishes.

        Args:
            pace: by job; it fits.
            wish: worth of time, [job, type]; time in a pair is worth both halves' wishes.

        Returns:
            X of jobs alone [job, type] and of pairs [pair, type].
        """
        use = self.scale(pace).use
        job, kind = self._alone.T
        pair, pair_kind = np.divmod(self._columns(), self._kinds)
        first, second = self._pairs.first[pair], self._pairs.second[pair]
        worth = wish[job, kind], wish[first, pair_kind] + wish[second, pair_kind]
        self._program.bound_column(0, 0.0, max(use, 1.0) + PLAY)
        self._program.price_columns(-np.concatenate([np.zeros(1), *worth]))
        x = np.maximum(self._program.solve(PRIMAL)[1], 0.0)
        alone = np.zeros((self._size, self._kinds))
        alone[job, kind] = x[1 : 1 + len(job)]
        together = np.zeros((len(self._pairs), self._kinds))
        together[pair, pair_kind] = x[1 + len(job) :]
        return alone, together

    def _columns(self) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *self._entered])

    def _enter_pairs(self, worth: Floats) -> bool:
        """Add the pairs that would save most; False when none would save anything."""
        pairs, count = self._pairs, self._size
        pace, time, price = worth[:count], worth[count : 2 * count], worth[2 * count :]
        # `worth` of a throughput row is negative: a higher pace costs
        saves = -(pace[pairs.first, None] * self._halves[0])
        saves -= pace[pairs.second, None] * self._halves[1]
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
        pair, kind = np.divmod(chosen, self._kinds)
        first, second, one = pairs.first[pair], pairs.second[pair], np.ones(len(pair))
        rows = np.stack([first, second, count + first, count + second, 2 * count + kind], axis=1)
        halves = self._halves[0][pair, kind], self._halves[1][pair, kind]
        values = np.stack([*halves, one, one, self._pair_hold[pair, kind]], axis=1)
        self._program.add_many(np.zeros(len(pair)), rows, values)
        return True
