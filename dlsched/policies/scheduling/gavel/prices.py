"""Sharing GPUs among jobs that meet only at the types' capacities: a search for prices.

Un-packed problems have the constraints B of Gavel (section 4): each job's time adds up to at most
1, each type's GPUs to at most N_j. Jobs have nothing to do with each other except through the few
capacity rows. So instead of one linear program with two rows a job, we look for one price a GPU
type (the decomposition of Dantzig and Wolfe): under prices every job by itself takes its cheapest
corner (`Corners`, vector operations over all jobs); HiGHS solves a master program of as many rows
as there are types, which mixes the answers so far and returns better prices. When no job would
answer otherwise, the mix is optimal. The bound Σ cost of cheapest corners proves it, and serves as
certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.policies.scheduling.gavel.corners import Corners
from dlsched.policies.scheduling.gavel.deadline import NO_DEADLINE, Deadline
from dlsched.policies.scheduling.gavel.linear_program import LinearProgram
from dlsched.policies.scheduling.gavel.problem import Problem
from dlsched.policies.scheduling.gavel.rising import Path

__all__ = ["PriceCertificate", "PriceSharing", "Tariff"]

SHARP = 1e4  # one unit of use in the master's costs, so that its tolerance means little
GAP = 1e-13  # between a solution and its proof, relative
ENOUGH = 0.1  # a proof of too high a use may be short of it by this part of the excess
NEAR = 1.0 + 1e-7  # below this use, prices are wanted exactly
PLAY = 2e-9  # how exactly a type must be filled; a corner's rounding must not close the only way
TIED = 1e-7  # corners whose cost differs by less, relative, are equally good


@dataclass(frozen=True, slots=True)
class Tariff:
    """What an optimum costs and earns: only its cheapest corners may be used.

    Attributes:
        price: of each type's whole capacity.
        worth: what time earns a job, [type, job]; None for nothing.
    """

    price: Floats
    worth: Floats | None = None


class PriceCertificate:
    """Prices of the types, and what a pace costs each job under them.

    The cheapest way to a pace costs a convex, piecewise linear function of the pace: the lower hull
    of (0, 0) and (speed_j, cost_j). It is kept as its supporting lines.
    """

    def __init__(self, use: float, price: Floats, hold: Floats, speed: Floats) -> None:
        self.use = use
        self.price = price
        self._slope, self._offset = _supports(speed, hold * price[:, None])

    def cost(self, pace: Floats) -> float:
        """Σ over jobs of the cheapest way to their paces."""
        return float((self._slope * pace + self._offset).max(axis=0).sum())

    def marginal(self, pace: Floats) -> Floats:
        """The slope to the right: the steepest of the lines that touch."""
        lines = self._slope * pace + self._offset
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
        self._kinds = len(problem.workers)
        self._deadline = deadline
        self._begin = [np.full(self._kinds, 1.0 / self._kinds)]
        self._mix: tuple[Corners, list[Rows], Floats] | None = None

    def guess(self, path: Path) -> PriceCertificate:
        """All types at one price."""
        return PriceCertificate(np.inf, self._begin[0], self._hold, self._speed)

    @property
    def x(self) -> Floats:
        """X [type, job] of the last `scale`."""
        if self._mix is None:
            return np.zeros(self._speed.shape)
        corners, answers, parts = self._mix
        return corners.mixed(answers, parts)

    def scale(self, pace: Floats) -> PriceCertificate:
        """Smallest u with paces kept and every type used up to u times its capacity."""
        corners, kinds = Corners(self._speed, self._hold, pace), self._kinds
        low, high = np.full(kinds + 1, -np.inf), np.zeros(kinds + 1)
        low[kinds] = high[kinds] = 1.0  # the answers are mixed: parts that add up to 1
        master = LinearProgram(low, high, self._deadline)
        master.add(SHARP, np.arange(kinds), np.full(kinds, -1.0))
        answers: list[Rows] = []
        asked: list[Floats] = []
        heard: set[bytes] = set()
        proven, best = -np.inf, self._begin[0]

        def ask(price: Floats) -> bool:
            nonlocal proven, best
            corner, cost = corners.cheapest(price)
            if cost > proven:
                proven, best = cost, price
            if (answer := corner.tobytes()) in heard:
                return False
            heard.add(answer)
            answers.append(corner)
            asked.append(price)
            master.add_dense(0.0, np.append(corners.use(corner), 1.0))
            return True

        for price in self._begin:
            ask(price)
        while True:
            value, parts, worth = master.solve()
            use = value / SHARP
            missing = use - proven
            if missing <= GAP * max(use, 1.0) or missing <= ENOUGH * (proven - NEAR):
                break
            price = np.maximum(worth[:kinds], 0.0)
            if not ask(price / price.sum()):
                break  # an answer heard before teaches nothing
        self._mix = corners, answers, parts[1:]
        # the next search is for similar paces: it begins around where this one ended
        active = [p for p, part in zip(asked, parts[1:].tolist(), strict=True) if part > 0]
        self._begin = [best, *active]
        return PriceCertificate(use, best, self._hold, self._speed)

    def earn(self, worth: Floats, pace: Floats) -> tuple[Floats, Tariff]:
        """Keep the paces and maximise Σ worth · x.

        Args:
            worth: of time, [type, job].
            pace: by job; they must fit, and `scale` must have been asked about them last.

        Returns:
            X [type, job], and the prices that prove it.
        """
        corners = Corners(self._speed, self._hold, pace, full_time=True)
        none = np.zeros(self._kinds)
        x, price = self._earn(corners, worth, self.x, self._hold, none, none > 0)
        return x, Tariff(price, worth)

    def choose(
        self, pace: Floats, tariffs: Sequence[Tariff], wish: Floats, start: Floats
    ) -> Floats:
        """Of all optimal X the one that fulfils most of the wishes.

        Args:
            pace: what every job has in all of them.
            tariffs: of the optimum; an X is optimal if it uses nobody's dearer corners and fills
                every type that has a price.
            wish: worth of time, [type, job].
            start: one optimal X.
        """
        gains = any(tariff.worth is not None for tariff in tariffs)
        corners = Corners(self._speed, self._hold, pace, full_time=gains)
        full = np.zeros(self._kinds, np.bool_)
        for tariff in tariffs:
            costs = paid = corners.costs(tariff.price)
            if tariff.worth is not None:
                costs = paid - corners.gains(tariff.worth)
            size = np.where(corners.open, np.maximum(paid, np.abs(costs)), 0.0).max(axis=0)
            corners.close(costs > costs.min(axis=0) + TIED * size)
            full |= tariff.price > 0
        x = corners.mixed([corners.open.argmax(axis=0)], np.ones(1))
        torn = np.flatnonzero(corners.open.sum(axis=0) > 1)
        if not len(torn):
            return x
        settled = np.delete(self._hold * x, torn, axis=1).sum(axis=1)
        x[:, torn] = self._earn(
            corners.of(torn), wish[:, torn], start[:, torn], self._hold[:, torn], settled, full
        )[0]
        return x

    def _earn(
        self,
        corners: Corners,
        worth: Floats,
        start: Floats,
        hold: Floats,
        settled: Floats,
        full: Bools,
    ) -> tuple[Floats, Floats]:
        """Maximise Σ worth · x over the corners of some jobs.

        Args:
            corners: theirs.
            worth: of their time, [type, job].
            start: an X of theirs that is feasible, [type, job].
            hold: part of a type that each holds, [type, job].
            settled: use of each type by the other jobs.
            full: types that must be used as in `start`, not less.

        Returns:
            their X, and the prices that prove it.
        """
        used = (hold * start).sum(axis=1)
        high = np.maximum(used, 1.0 - settled) + PLAY
        low = np.where(full, used - PLAY, -np.inf)
        master = LinearProgram(np.append(low, 1.0), np.append(high, 1.0), self._deadline)
        master.add_dense(-float((worth * start).sum()), np.append(used, 1.0))
        gain = corners.gains(worth)
        answers: list[Rows] = []
        heard: set[bytes] = set()
        proven, best, parts = np.inf, np.zeros(self._kinds), np.ones(1)
        price = best
        while True:
            corner, cost = corners.cheapest(price, gain)
            bound = float((price * high).sum()) - cost
            if bound < proven:
                proven, best = bound, price
            if (answer := corner.tobytes()) in heard:
                break  # an answer heard before teaches nothing
            heard.add(answer)
            answers.append(corner)
            master.add_dense(-corners.gained(gain, corner), np.append(corners.use(corner), 1.0))
            value, parts, dual = master.solve()
            if proven + value <= GAP * max(abs(value), 1.0):
                break
            price = np.where(full, dual[:-1], np.maximum(dual[:-1], 0.0))
        return parts[0] * start + corners.mixed(answers, parts[1:]), best


def _supports(speed: Floats, cost: Floats) -> tuple[Floats, Floats]:
    """Lines below the points (speed_j, cost_j) and the origin whose maximum is their lower hull.

    Args:
        speed: [type, job].
        cost: [type, job], of running there all the time.

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
