"""Raise every job together until nobody can be raised without lowering another.

Gavel's fair objectives ask for the same thing in different units. Each says what pace every job
must have at a *level*: a path. Max-min fairness raises normalised throughputs, finish-time fairness
lowers ρ, makespan lowers the common finish time. The best level is the highest whose paces fit the
cluster; to be fair to the rest as well, jobs that cannot go on are frozen there and the others are
raised further. This is the paper's water filling (section 4.3) and gives the leximin solution.

A *pace* is a throughput as a fraction of the job's own best, from 0 to 1.

The search comes from above. Prices of GPUs prove what a pace must at least cost, as a share of the
cluster; the level at which that bound reaches 1 cannot be exceeded. Either its paces fit, or
solving for them yields better prices and a lower level. That takes a handful of solves where
bisection takes forty, and ends exactly on the level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows

__all__ = [
    "Certificate", "EntityLine", "Inverse", "Line", "Path", "Risen", "Sharing", "highest",
    "raise_all",
]  # fmt: skip

SLACK = 1e-9  # a stage may use this much more than the whole cluster; shares are cut to fit
NO_GAIN = 1e-14  # levels closer than this, relative, are one
FLAT = 1e-9  # a price per pace below this, against the dearest, is taken for 0


class Certificate(Protocol):
    """Prices that prove how much of the cluster a pace needs at least."""

    @property
    def use(self) -> float:
        """Use of the cluster at the paces for which the prices were found; 1 is all of it."""
        ...

    def cost(self, pace: Floats) -> float:
        """At least so much of the cluster is needed for these paces."""
        ...

    def marginal(self, pace: Floats) -> Floats:
        """What one more unit of each job's pace costs at least; more than 0 means: not for free."""
        ...


C = TypeVar("C", bound=Certificate)
C_co = TypeVar("C_co", bound=Certificate, covariant=True)


class Sharing(Protocol[C_co]):
    """A cluster and its jobs: how much of it do some paces need?"""

    def guess(self, path: Path) -> C_co:
        """Any certificate to begin with."""
        ...

    def scale(self, pace: Floats) -> C_co:
        """The least use of the cluster with which every job has its pace.

        When that is well above 1, a proof that is nearly as high will do.
        """
        ...


class Path(Protocol):
    """What every job must have at a level; paces never fall as the level rises.

    Attributes:
        top: from this level on no pace rises any more.
    """

    @property
    def top(self) -> float:
        """See the class."""
        ...

    def at(self, level: float) -> Floats:
        """Paces at a level."""
        ...

    def resume(self, level: float, frozen: Bools) -> Path:
        """Go on from a level (the new path's own level may begin at 0) without the frozen ones."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """pace = min(start + slope · level, 1): max-min fairness and makespan."""

    start: Floats
    slope: Floats

    @property
    def top(self) -> float:
        """When the last one runs all the time at its best."""
        rising = self.slope > 0
        return float(((1.0 - self.start[rising]) / self.slope[rising]).max(initial=0.0))

    @property
    def first_at_best(self) -> float:
        """When the first one runs all the time at its best: nobody's level is lower from there."""
        rising = self.slope > 0
        return float(((1.0 - self.start[rising]) / self.slope[rising]).min(initial=np.inf))

    def at(self, level: float) -> Floats:
        """Paces at a level."""
        return np.minimum(self.start + self.slope * level, 1.0)

    def resume(self, level: float, frozen: Bools) -> Line:
        """From here, level 0 again."""
        return Line(self.at(level), np.where(frozen, 0.0, self.slope))


@dataclass(frozen=True, slots=True)
class Inverse:
    """Steps that end in time: pace = n / (D/level − t), at most 1; the level is 1/ρ.

    Attributes:
        work: n over the job's best throughput, seconds.
        allowed: D, seconds that the job would take by itself in all.
        elapsed: t, seconds since submission.
        still: jobs that keep a pace, and which.
    """

    work: Floats
    allowed: Floats
    elapsed: Floats
    still: Floats

    @property
    def top(self) -> float:
        """Beyond 1/ρ = D/(t + n) a job's best is not enough."""
        rising = np.isnan(self.still) & (self.work > 0)
        reach = self.allowed[rising] / (self.elapsed[rising] + self.work[rising])
        return float(reach.max(initial=0.0))

    @property
    def first_at_best(self) -> float:
        """As in `Line`."""
        rising = np.isnan(self.still) & (self.work > 0)
        reach = self.allowed[rising] / (self.elapsed[rising] + self.work[rising])
        return float(reach.min(initial=np.inf))

    def at(self, level: float) -> Floats:
        """Paces at a level."""
        time = self.allowed - level * self.elapsed
        with np.errstate(divide="ignore", invalid="ignore"):
            pace = np.where(time > 0, np.minimum(level * self.work / time, 1.0), 1.0)
        pace = np.where(self.work > 0, pace, 0.0)
        return np.where(np.isnan(self.still), pace, self.still)

    def resume(self, level: float, frozen: Bools) -> Inverse:
        """The same levels; the frozen keep what they have."""
        still = np.where(np.isnan(self.still) & frozen, self.at(level), self.still)
        return Inverse(self.work, self.allowed, self.elapsed, still)


@dataclass(frozen=True, slots=True)
class EntityLine:
    """Entities rise together; inside one, jobs share its rate by weight or come one by one.

    With ω_i = W_e w_i / Σ w over the entity's rising jobs, an entity's jobs have used up
    Σ_i (y_i − start_i) s_i = W_e · level, whoever of them has reached its best meanwhile. So each
    entity's own height is a piecewise linear function of the level, and no step need be simulated.

    Attributes:
        start: paces at level 0.
        need: level units that a job needs from `start` to its best, were its entity's weight 1.
        weight: w, 0 for the frozen.
        entity: number of each job's entity.
        entity_weight: W.
        in_turn: per entity, one job after the other (fifo) instead of all at once (fairness).
    """

    start: Floats
    need: Floats
    weight: Floats
    entity: Ints
    entity_weight: Floats
    in_turn: Bools

    @property
    def top(self) -> float:
        """When the last entity has all its jobs at their best."""
        rising = (self.weight > 0) & (self.entity_weight[self.entity] > 0)
        total = np.bincount(
            self.entity[rising], self.need[rising], minlength=len(self.entity_weight)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(total > 0, total / self.entity_weight, 0.0)
        return float(times.max(initial=0.0))

    def at(self, level: float) -> Floats:
        """Paces at a level."""
        done = np.zeros(len(self.start))
        for number, weight in enumerate(self.entity_weight.tolist()):
            jobs = np.flatnonzero((self.entity == number) & (self.weight > 0))
            if len(jobs) and weight > 0:
                given = weight * level
                share = self._turns if self.in_turn[number] else self._together
                done[jobs] = share(jobs, given)
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(self.need > 0, np.minimum(done / self.need, 1.0), 1.0)
        return np.where(self.weight > 0, self.start + part * (1.0 - self.start), self.start)

    def _turns(self, jobs: Rows, given: float) -> Floats:
        before = np.cumsum(self.need[jobs]) - self.need[jobs]
        done: Floats = np.clip(given - before, 0.0, self.need[jobs])
        return done

    def _together(self, jobs: Rows, given: float) -> Floats:
        """Σ_i min(w_i h, need_i) = given has one solution h; find it at the sorted breakpoints."""
        need, weight = self.need[jobs], self.weight[jobs]
        height = need / weight
        order = np.argsort(height, kind="stable")
        full = np.cumsum(need[order]) - need[order]
        left = np.cumsum(weight[order][::-1])[::-1]
        reached = full + left * height[order]  # given at which each one reaches its best
        place = min(int(np.searchsorted(reached, given)), len(jobs) - 1)
        h = (given - full[place]) / left[place]
        done: Floats = np.minimum(weight * h, need)
        return done

    def resume(self, level: float, frozen: Bools) -> EntityLine:
        """From here, level 0 again; the frozen leave their entity's weight to the others."""
        pace = self.at(level)
        with np.errstate(divide="ignore", invalid="ignore"):
            need = np.where(self.start < 1, self.need * (1.0 - pace) / (1.0 - self.start), 0.0)
        weight = np.where(frozen, 0.0, self.weight)
        return EntityLine(pace, need, weight, self.entity, self.entity_weight, self.in_turn)


@dataclass(frozen=True, slots=True)
class Risen(Generic[C]):
    """Where everybody ended.

    Attributes:
        pace: by job.
        certificates: one for each stage that ended because the cluster was full.
    """

    pace: Floats
    certificates: tuple[C, ...]


def raise_all(sharing: Sharing[C], path: Path) -> Risen[C]:
    """Raise, freeze those that cannot go on, raise the others, until all are frozen."""
    proof = sharing.guess(path)
    certificates: list[C] = []
    frozen = np.zeros(len(path.at(0.0)), np.bool_)
    while True:
        # each stage begins where the cluster is full to the last stage's rounding
        whole = 1.0 + SLACK * (len(certificates) + 1)
        level, proof = _highest(sharing, path, proof, whole)
        pace = path.at(level)
        if level >= path.top:  # nobody was held back, so nothing is proven
            return Risen(pace, tuple(certificates))
        certificates.append(proof)
        frozen |= _pays(proof, pace, rising=~frozen & (path.at(path.top) > pace)) | (pace >= 1.0)
        path = path.resume(level, frozen)


def highest(sharing: Sharing[C], path: Line | Inverse) -> float:
    """The highest level of the worst-off; whether others could go on is not asked."""
    level, _ = _highest(sharing, path, sharing.guess(path), 1.0 + SLACK)
    return min(level, path.first_at_best)


def _highest(sharing: Sharing[C], path: Path, proof: C, whole: float) -> tuple[float, C]:
    """The highest level whose paces fit, and the prices that prove it."""
    level = _reach(proof, path, path.top, whole)
    while True:
        found = sharing.scale(path.at(level))
        if found.use <= whole + 0.5 * SLACK:
            return level, proof
        lower = _reach(found, path, level, whole)
        if lower >= level * (1 - NO_GAIN):
            return level, proof  # what is too much is rounding
        level, proof = lower, found


def _pays(proof: Certificate, pace: Floats, rising: Bools) -> Bools:
    """Those of the rising for whom more pace is not free; at least the one who pays most."""
    price = np.where(rising, proof.marginal(pace), 0.0)
    pays: Bools = (price > FLAT * price.max()) | (rising & (price >= price.max()))
    return pays


def _reach(proof: Certificate, path: Path, high: float, whole: float) -> float:
    """The highest level up to `high` that the prices allow."""

    def excess(level: float) -> float:
        return proof.cost(path.at(level)) - whole

    at_low, at_high = excess(0.0), excess(high)
    if at_high <= 0:
        return high
    return _crossing(excess, high, at_low, at_high) if at_low < 0 else 0.0


def _crossing(
    excess: Callable[[float], float], high: float, at_low: float, at_high: float
) -> float:
    """Where a rising function crosses 0: false position, with halving where that is slow."""
    low = 0.0
    for turn in range(200):
        middle = low - at_low * (high - low) / (at_high - at_low)
        if turn % 3 == 2 or not low < middle < high:
            middle = 0.5 * (low + high)
        value = excess(middle)
        if value > 0:
            high, at_high = middle, value
        else:
            low, at_low = middle, value
        if high - low <= NO_GAIN * high or -1e-15 < value <= 0:
            break
    return low
