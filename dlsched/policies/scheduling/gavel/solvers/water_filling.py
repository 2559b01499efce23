"""Water filling: raise all jobs together until no job can be raised without lowering another.

The fair objectives of Gavel have one form in different units. Each is a *path*: it gives the target
of every job at a *level*. Max-min fairness raises normalised throughputs, finish-time fairness
lowers ρ, makespan lowers the common finish time. The best level is the highest one whose targets
fit the cluster. Then jobs that cannot go on are frozen there, and the others are raised further.
This is the paper's water filling (section 4.3) and gives the leximin solution.

A *target* is the throughput that a job must get, as a fraction of its own best, from 0 to 1.

The search comes from above. Prices of GPUs prove a lower bound on the cost of targets, as a share
of the cluster; the level at which this bound reaches 1 cannot be exceeded. Either the targets of
that level fit, or solving for them gives better prices and a lower level. This takes a handful of
solves where bisection takes forty, and ends exactly on the best level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows

SLACK = 1e-9  # a stage may use so much more than the whole cluster; X is cut to fit
NO_GAIN = 1e-14  # levels that differ by less, relatively, are equal
FLAT = 1e-9  # a marginal cost below this part of the largest one counts as 0


class Certificate(Protocol):
    """Prices that prove how much of the cluster some targets need at least."""

    @property
    def use(self) -> float:
        """Use of the cluster at the targets for which the prices were found; 1 is all of it."""
        ...

    def cost(self, target: Floats) -> float:
        """A lower bound on the part of the cluster that these targets need."""
        ...

    def marginal(self, target: Floats) -> Floats:
        """The least cost of one more unit of each job's target; 0 means that more is free."""
        ...


C = TypeVar("C", bound=Certificate)
C_co = TypeVar("C_co", bound=Certificate, covariant=True)


class Sharing(Protocol[C_co]):
    """A cluster and its jobs: tells how much of the cluster some targets need."""

    def guess(self, path: Path) -> C_co:
        """A first certificate, from which the search starts."""
        ...

    def scale(self, target: Floats) -> C_co:
        """The least use of the cluster at which every job meets its target, and its proof.

        When that use is well above 1, the proof may be for slightly less.
        """
        ...


class Path(Protocol):
    """The target of every job at a level; targets never fall as the level rises.

    Attributes:
        top: from this level on no target rises.
    """

    @property
    def top(self) -> float:
        """See the class."""
        ...

    def at(self, level: float) -> Floats:
        """The target of every job at a level."""
        ...

    def resume(self, level: float, frozen: Bools) -> Path:
        """The path from a level on, without the frozen jobs; its levels may start at 0 again."""
        ...


@dataclass(frozen=True, slots=True)
class LinearPath:
    """target = min(start + slope · level, 1): max-min fairness and makespan."""

    start: Floats
    slope: Floats

    @property
    def top(self) -> float:
        """The level at which the last job is at its best all the time."""
        rising = self.slope > 0
        return float(((1.0 - self.start[rising]) / self.slope[rising]).max(initial=0.0))

    @property
    def first_at_best(self) -> float:
        """The level at which the first job is at its best all the time."""
        rising = self.slope > 0
        return float(((1.0 - self.start[rising]) / self.slope[rising]).min(initial=np.inf))

    def at(self, level: float) -> Floats:
        """The target of every job at a level."""
        return np.minimum(self.start + self.slope * level, 1.0)

    def resume(self, level: float, frozen: Bools) -> LinearPath:
        """From here on, starting at level 0."""
        return LinearPath(self.at(level), np.where(frozen, 0.0, self.slope))


@dataclass(frozen=True, slots=True)
class InversePath:
    """Finish-time fairness: target = n / (D/level − t), at most 1; the level is 1/ρ.

    Attributes:
        work: n over the job's best throughput, seconds.
        allowed: D, seconds from submission to completion with an isolated share.
        elapsed: t, seconds since submission.
        still: the target of frozen jobs, NaN for the others.
    """

    work: Floats
    allowed: Floats
    elapsed: Floats
    still: Floats

    @property
    def top(self) -> float:
        """Above 1/ρ = D/(t + n) the best throughput of a job is not enough."""
        rising = np.isnan(self.still) & (self.work > 0)
        reach = self.allowed[rising] / (self.elapsed[rising] + self.work[rising])
        return float(reach.max(initial=0.0))

    @property
    def first_at_best(self) -> float:
        """As in `LinearPath`."""
        rising = np.isnan(self.still) & (self.work > 0)
        reach = self.allowed[rising] / (self.elapsed[rising] + self.work[rising])
        return float(reach.min(initial=np.inf))

    def at(self, level: float) -> Floats:
        """The target of every job at a level."""
        time = self.allowed - level * self.elapsed
        with np.errstate(divide="ignore", invalid="ignore"):
            target = np.where(time > 0, np.minimum(level * self.work / time, 1.0), 1.0)
        target = np.where(self.work > 0, target, 0.0)
        return np.where(np.isnan(self.still), target, self.still)

    def resume(self, level: float, frozen: Bools) -> InversePath:
        """The same levels; frozen jobs keep their targets."""
        still = np.where(np.isnan(self.still) & frozen, self.at(level), self.still)
        return InversePath(self.work, self.allowed, self.elapsed, still)


@dataclass(frozen=True, slots=True)
class EntityPath:
    """Hierarchical fairness: entities rise together; their jobs share by weight or one by one.

    With ω_i = W_e w_i / Σ w over the jobs of the entity that still rise, the jobs of an entity have
    received Σ_i (y_i − start_i) s_i = W_e · level, even after some of them have reached their best.
    So the height within an entity is a piecewise linear function of the level.

    Attributes:
        start: targets at level 0.
        need: level units that a job needs from `start` to its best if its entity's weight is 1.
        weight: w, 0 for frozen jobs.
        entity: number of each job's entity.
        entity_weight: W.
        in_turn: by entity, one job after the other (fifo) instead of all at once (fairness).
    """

    start: Floats
    need: Floats
    weight: Floats
    entity: Ints
    entity_weight: Floats
    in_turn: Bools

    @property
    def top(self) -> float:
        """The level at which all jobs of the last entity are at their best."""
        rising = (self.weight > 0) & (self.entity_weight[self.entity] > 0)
        total = np.bincount(
            self.entity[rising], self.need[rising], minlength=len(self.entity_weight)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(total > 0, total / self.entity_weight, 0.0)
        return float(times.max(initial=0.0))

    def at(self, level: float) -> Floats:
        """The target of every job at a level."""
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
        """Each job's min(w_i h, need_i), for the one h with Σ_i min(w_i h, need_i) = given."""
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

    def resume(self, level: float, frozen: Bools) -> EntityPath:
        """From here on, from level 0; frozen jobs leave their entity's weight to the others."""
        target = self.at(level)
        with np.errstate(divide="ignore", invalid="ignore"):
            need = np.where(self.start < 1, self.need * (1.0 - target) / (1.0 - self.start), 0.0)
        weight = np.where(frozen, 0.0, self.weight)
        return EntityPath(target, need, weight, self.entity, self.entity_weight, self.in_turn)


@dataclass(frozen=True, slots=True)
class Raised(Generic[C]):
    """The result of water filling.

    Attributes:
        target: the final target of each job.
        certificates: one for each stage that ended because the cluster was full.
    """

    target: Floats
    certificates: tuple[C, ...]


def water_fill(sharing: Sharing[C], path: Path) -> Raised[C]:
    """Raise all jobs, freeze those that cannot go on, raise the others, until all are frozen."""
    proof = sharing.guess(path)
    certificates: list[C] = []
    frozen = np.zeros(len(path.at(0.0)), np.bool_)
    while True:
        # each stage begins where the cluster is full to the last stage's rounding
        whole = 1.0 + SLACK * (len(certificates) + 1)
        level, proof = _highest(sharing, path, proof, whole)
        target = path.at(level)
        if level >= path.top:  # no job was held back, so there is no proof
            return Raised(target, tuple(certificates))
        certificates.append(proof)
        rising = ~frozen & (path.at(path.top) > target)
        frozen |= _pays(proof, target, rising) | (target >= 1.0)
        path = path.resume(level, frozen)


def highest(sharing: Sharing[C], path: LinearPath | InversePath) -> float:
    """The highest level that all jobs can reach; the jobs that could go on are not raised."""
    level, _ = _highest(sharing, path, sharing.guess(path), 1.0 + SLACK)
    return min(level, path.first_at_best)


def _highest(sharing: Sharing[C], path: Path, proof: C, whole: float) -> tuple[float, C]:
    """The highest level whose targets fit, and the prices that prove it.

    `whole` is the use of the cluster that counts as all of it; the search starts from the prices
    `proof`.
    """
    level = _reach(proof, path, path.top, whole)
    while True:
        found = sharing.scale(path.at(level))
        if found.use <= whole + 0.5 * SLACK:
            return level, proof
        lower = _reach(found, path, level, whole)
        if lower >= level * (1 - NO_GAIN):
            return level, proof  # the excess is rounding
        level, proof = lower, found


def _pays(proof: Certificate, target: Floats, rising: Bools) -> Bools:
    """The rising jobs whose target cannot be raised for free; at least the most expensive one."""
    price = np.where(rising, proof.marginal(target), 0.0)
    pays: Bools = (price > FLAT * price.max()) | (rising & (price >= price.max()))
    return pays


def _reach(proof: Certificate, path: Path, high: float, whole: float) -> float:
    """The highest level up to `high` at which the prices prove a use of at most `whole`."""

    def excess(level: float) -> float:
        return proof.cost(path.at(level)) - whole

    at_low, at_high = excess(0.0), excess(high)
    if at_high <= 0:
        return high
    return _crossing(excess, high, at_low, at_high) if at_low < 0 else 0.0


def _crossing(
    excess: Callable[[float], float], high: float, at_low: float, at_high: float
) -> float:
    """The root of a rising function between 0 and `high`: false position, with some halving.

    `at_low`, below 0, and `at_high`, above 0, are its values at both ends.
    """
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
