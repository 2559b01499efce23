"""Sharing without pairs: a search for one price a GPU type (Dantzig-Wolfe decomposition).

Problems without pairs have the constraints of Gavel, section 4: the time of each job adds up to at
most 1, the GPUs of each type to at most N_j. Only the few capacity rows couple the jobs. So instead
of one linear program with two rows a job, we search for one price a GPU type. Under given prices
every job by itself takes its cheapest vertex (`Vertices`, vector operations over all jobs). HiGHS
solves a master program with one row a type, which mixes the answers so far and returns better
prices. When no job changes its answer, the mix is optimal. The sum of the cheapest vertices' costs
is a lower bound that proves it, and serves as the certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.policies.scheduling.gavel.problem import Problem
from dlsched.policies.scheduling.gavel.solvers.linear_program import (
    NO_DEADLINE,
    Deadline,
    LinearProgram,
)
from dlsched.policies.scheduling.gavel.solvers.vertices import Vertices
from dlsched.policies.scheduling.gavel.solvers.water_filling import Path

SHARP = 1e4  # cost of one unit of use in the master, to lessen the effect of its tolerance
GAP = 1e-13  # relative, between a solution and its proof
ENOUGH = 0.1  # the proof of a use above 1 may miss this part of the excess
NEAR = 1.0 + 1e-7  # below this use, the exact prices are needed
PLAY = 2e-9  # tolerance of capacities, so that rounding does not make the master infeasible
TIED = 1e-7  # vertices whose costs differ by less, relatively, are equally good


@dataclass(frozen=True, slots=True)
class Tariff:
    """The prices of an optimum: an X is optimal only if it uses their cheapest vertices.

    Attributes:
        price: of each type's whole capacity.
        worth: value of a job's time, [type, job]; None for 0.
    """

    price: Floats
    worth: Floats | None = None


class PriceCertificate:
    """Prices of the GPU types, and the cost of each job's target under them.

    The least cost of a target is a convex, piecewise linear function of the target: the lower hull
    of (0, 0) and (speed_j, cost_j). It is stored as its supporting lines.
    """

    def __init__(self, use: float, price: Floats, hold: Floats, speed: Floats) -> None:
        self.use = use
        self.price = price
        self._slope, self._offset = _supports(speed, hold * price[:, None])

    def cost(self, target: Floats) -> float:
        """The sum over jobs of the least cost of their targets."""
        return float((self._slope * target + self._offset).max(axis=0).sum())

    def marginal(self, target: Floats) -> Floats:
        """The slope to the right of each target: the steepest of the lines that touch there."""
        lines = self._slope * target + self._offset
        touches = lines >= lines.max(axis=0) - TIED * self._slope
        slope: Floats = np.where(touches, self._slope, 0.0).max(axis=0)
        return slope


class PriceSharing:
    """Jobs on GPU types, without pairs."""

    def __init__(self, problem: Problem, deadline: Deadline = NO_DEADLINE) -> None:
        self._speed = np.ascontiguousarray((problem.throughput / problem.best[:, None]).T)
        with np.errstate(divide="ignore"):
            hold = problem.scale / problem.workers[:, None]
        self._hold = np.where(problem.workers[:, None] > 0, hold, 0.0)
        self._type_count = len(problem.workers)
        self._deadline = deadline
        self._begin = [np.full(self._type_count, 1.0 / self._type_count)]
        self._mix: tuple[Vertices, list[Rows], Floats] | None = None

    def guess(self, path: Path) -> PriceCertificate:
        """Equal prices for all types."""
        return PriceCertificate(np.inf, self._begin[0], self._hold, self._speed)

    @property
    def x(self) -> Floats:
        """X [type, job] of the last `scale`."""
        if self._mix is None:
            return np.zeros(self._speed.shape)
        vertices, answers, parts = self._mix
        return vertices.mixed(answers, parts)

    def scale(self, target: Floats) -> PriceCertificate:
        """The smallest u at which all targets are met and each type is used up to u N_j."""
        vertices, type_count = Vertices(self._speed, self._hold, target), self._type_count
        low, high = np.full(type_count + 1, -np.inf), np.zeros(type_count + 1)
        low[type_count] = high[type_count] = 1.0  # the parts of the answers add up to 1
        master = LinearProgram(low, high, self._deadline)
        master.add(SHARP, np.arange(type_count), np.full(type_count, -1.0))
        answers: list[Rows] = []
        asked: list[Floats] = []
        seen: set[bytes] = set()
        proven, best = -np.inf, self._begin[0]

        def try_prices(price: Floats) -> bool:
            nonlocal proven, best
            vertex, cost = vertices.cheapest(price)
            if cost > proven:
                proven, best = cost, price
            if (answer := vertex.tobytes()) in seen:
                return False
            seen.add(answer)
            answers.append(vertex)
            asked.append(price)
            master.add_dense(0.0, np.append(vertices.use(vertex), 1.0))
            return True

        for price in self._begin:
            try_prices(price)
        while True:
            value, parts, worth = master.solve()
            use = value / SHARP
            missing = use - proven
            if missing <= GAP * max(use, 1.0) or missing <= ENOUGH * (proven - NEAR):
                break
            price = np.maximum(worth[:type_count], 0.0)
            if not try_prices(price / price.sum()):
                break  # no new answer: optimal up to rounding
        self._mix = vertices, answers, parts[1:]
        # the next search has similar targets and starts from these prices
        active = [p for p, part in zip(asked, parts[1:].tolist(), strict=True) if part > 0]
        self._begin = [best, *active]
        return PriceCertificate(use, best, self._hold, self._speed)

    def maximise(self, worth: Floats, target: Floats) -> tuple[Floats, Tariff]:
        """Meet the targets and maximise Σ worth · x.

        `worth` is the value of time, [type, job]; the targets must fit, and the last call of
        `scale` must have been for them.

        Returns:
            X [type, job], and the prices that prove it.
        """
        vertices = Vertices(self._speed, self._hold, target, full_time=True)
        none = np.zeros(self._type_count)
        x, price = self._maximise(vertices, worth, self.x, self._hold, none, none > 0)
        return x, Tariff(price, worth)

    def choose(
        self, target: Floats, tariffs: Sequence[Tariff], wish: Floats, start: Floats
    ) -> Floats:
        """The optimal X with the largest Σ wish · x.

        Args:
            target: the targets that all optimal X meet.
            tariffs: prices of the optimum; an X is optimal if it uses only cheapest vertices and
                fills every type that has a price.
            wish: the weights that break ties, [type, job].
            start: one optimal X.
        """
        gains = any(tariff.worth is not None for tariff in tariffs)
        vertices = Vertices(self._speed, self._hold, target, full_time=gains)
        full = np.zeros(self._type_count, np.bool_)
        for tariff in tariffs:
            costs = paid = vertices.costs(tariff.price)
            if tariff.worth is not None:
                costs = paid - vertices.gains(tariff.worth)
            size = np.where(vertices.open, np.maximum(paid, np.abs(costs)), 0.0).max(axis=0)
            vertices.close(costs > costs.min(axis=0) + TIED * size)
            full |= tariff.price > 0
        x = vertices.mixed([vertices.open.argmax(axis=0)], np.ones(1))
        tied = np.flatnonzero(vertices.open.sum(axis=0) > 1)
        if not len(tied):
            return x
        settled = np.delete(self._hold * x, tied, axis=1).sum(axis=1)
        x[:, tied] = self._maximise(
            vertices.of(tied), wish[:, tied], start[:, tied], self._hold[:, tied], settled, full
        )[0]
        return x

    def _maximise(
        self,
        vertices: Vertices,
        worth: Floats,
        start: Floats,
        hold: Floats,
        settled: Floats,
        full: Bools,
    ) -> tuple[Floats, Floats]:
        """Maximise Σ worth · x over the vertices of some jobs.

        `worth` and a feasible `start` are [type, job]; `hold` is the part of a type's capacity that
        each job holds while it runs, [type, job], `settled` the use of each type by the other jobs.
        The use of `full` types must be as in `start`, not less. Returns their X, and the prices
        that prove it.

        Returns:
            their X, and the prices that prove it.
        """
        used = (hold * start).sum(axis=1)
        high = np.maximum(used, 1.0 - settled) + PLAY
        low = np.where(full, used - PLAY, -np.inf)
        master = LinearProgram(np.append(low, 1.0), np.append(high, 1.0), self._deadline)
        master.add_dense(-float((worth * start).sum()), np.append(used, 1.0))
        gain = vertices.gains(worth)
        answers: list[Rows] = []
        seen: set[bytes] = set()
        proven, best, parts = np.inf, np.zeros(self._type_count), np.ones(1)
        price = best
        while True:
            vertex, cost = vertices.cheapest(price, gain)
            bound = float((price * high).sum()) - cost
            if bound < proven:
                proven, best = bound, price
            if (answer := vertex.tobytes()) in seen:
                break  # no new answer: optimal up to rounding
            seen.add(answer)
            answers.append(vertex)
            master.add_dense(-vertices.gained(gain, vertex), np.append(vertices.use(vertex), 1.0))
            value, parts, dual = master.solve()
            if proven + value <= GAP * max(abs(value), 1.0):
                break
            price = np.where(full, dual[:-1], np.maximum(dual[:-1], 0.0))
        return parts[0] * start + vertices.mixed(answers, parts[1:]), best


def _supports(speed: Floats, cost: Floats) -> tuple[Floats, Floats]:
    """The lines below the points (speed_j, cost_j) and the origin that form their lower hull.

    Both are [type, job]; the cost is of running there all the time. Returns slopes and offsets,
    [line, job]; lines that are not supports are 0.

    Returns:
        slopes and offsets, [line, job]; lines that are not supports are 0.
    """
    fast, slow = np.triu_indices(len(speed), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        from_origin = np.where(speed > 0, cost / speed, np.inf).min(axis=0)
        slope = (cost[fast] - cost[slow]) / (speed[fast] - speed[slow])
        offset = cost[slow] - slope * speed[slow]
    below = np.isfinite(slope) & (slope > 0) & (offset <= 0)
    slope, offset = np.where(below, slope, 0.0), np.where(below, offset, 0.0)
    for points, heights in zip(speed, cost, strict=True):
        above = slope * points + offset > heights * (1 + GAP) + 1e-15
        slope, offset = np.where(above, 0.0, slope), np.where(above, 0.0, offset)
    return (
        np.concatenate([from_origin[None], slope]),
        np.concatenate([np.zeros((1, speed.shape[1])), offset]),
    )
