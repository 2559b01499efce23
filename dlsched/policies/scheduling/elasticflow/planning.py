"""The minimum satisfactory share: the fewest GPUs, as late as possible, that keep a deadline.

A job with work left, a deadline and a speed for each of its sizes is planned into the GPUs that
others leave free (paper: Algorithm 1, progressive filling). The smallest size q is searched with
which the work fits before the deadline, where a job has in each stretch of time the largest size up
to q that is free. From the latest moment on at which q is enough it has q; before that moment, the
next smaller size, which may be none: the job then waits, and is planned all the same.

Ends are rounded up to whole slots for what is planned after them; a deadline is compared with the
end itself, in whole seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.elasticflow.timeline import DUST, FOREVER, Steps, in_slots


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of GPUs that a job can have, and its speed on each.

    Attributes:
        gpus: ascending.
        rate: steps per second on 0, 1, … GPUs of the cluster; 0 between sizes.
        below: the largest size that is at most 0, 1, … GPUs; 0 for none.
    """

    gpus: Ints
    rate: Floats
    below: Ints

    @staticmethod
    def of(gpus: Ints, rates: Floats, total: int) -> Sizes:
        """From sizes with their speeds [steps/s], on a cluster of so many GPUs.

        Sizes beyond the cluster, and those on which a job does not run, are left out.
        """
        can = (gpus <= total) & (rates > 0)
        gpus, rates = gpus[can], rates[can]
        rate = np.zeros(total + 1)
        rate[gpus] = rates
        below = np.zeros(total + 1, np.int64)
        below[gpus] = gpus
        return Sizes(gpus, rate, np.maximum.accumulate(below))

    def after(self, gpus: int) -> int:
        """The next larger size; 0 where there is none."""
        place = int(np.searchsorted(self.gpus, gpus, side="right"))
        return int(self.gpus[place]) if place < len(self.gpus) else 0


@dataclass(frozen=True, slots=True)
class Demand:
    """One job to be planned.

    Attributes:
        left: steps.
        due: whole seconds from now until its deadline; `FOREVER` for a job without one.
        sizes: what it can run on.
        has: GPUs that it holds now.
        restart: seconds without work after each change of its GPUs.
        since: seconds for which it has held them, as far as a restart may still go on.
    """

    left: float
    due: float
    sizes: Sizes
    has: int = 0
    restart: float = 0.0
    since: float = np.inf

    def work(self, gpus: Ints, lasts: Floats, before: int, since: float = np.inf) -> Floats:
        """Steps in stretches of time; [..., stretch].

        A restart may last longer than the stretch that it begins in.

        Args:
            gpus: in each stretch.
            lasts: seconds of each.
            before: GPUs before the first one.
            since: seconds for which it had these before.
        """
        works = lasts
        if self.restart:
            ends = lasts.cumsum()
            begins = ends - lasts
            origin = -since if since < self.restart else -self.restart  # nothing is pending then
            anew = np.where(_changes(gpus, before), begins, origin)
            paid = self.restart + np.maximum.accumulate(anew, axis=-1)
            works = np.maximum(ends - paid, 0.0) - np.maximum(begins - paid, 0.0)
        found: Floats = works * self.sizes.rate[gpus]
        return found

    def seconds(self, left: float, gpus: int, pause: float) -> float:
        """Whole seconds in which so many steps are done, after a pause."""
        return float(np.ceil(pause + left / self.sizes.rate[gpus] * (1 - DUST)))

    def pause(
        self, gpus: Ints, lasts: Floats, before: int, last: int, since: float = np.inf
    ) -> float:
        """Seconds of a restart that are left at the beginning of the stretch `last`."""
        elapsed, place = 0.0, last
        while place and gpus[place - 1] == gpus[last]:
            place -= 1
            elapsed += lasts.item(place)
        if not place and before == gpus[last]:
            elapsed += since
        return max(self.restart - elapsed, 0.0)


def _changes(gpus: Ints, before: int) -> Bools:
    """In which stretches [..., stretch] is the number of GPUs other than before?"""
    changed: Bools = np.empty(gpus.shape, np.bool_)
    np.not_equal(gpus[..., :1], before, out=changed[..., :1])
    np.not_equal(gpus[..., 1:], gpus[..., :-1], out=changed[..., 1:])
    return changed


@dataclass(frozen=True, slots=True)
class Plan:
    """When a job has how many GPUs.

    Attributes:
        steps: its GPUs, from now on.
        end: when others can have them, in whole slots from now.
        real_end: when its work is done, in whole seconds from now.
        keeps: does it end by its deadline?
    """

    steps: Steps
    end: float
    real_end: float
    keeps: bool

    @property
    def first(self) -> int:
        """GPUs now."""
        return int(self.steps.gpus[0])

    def after(self, seconds: float) -> Plan:
        """The same plan, seen so many seconds later."""
        times = self.steps.times - seconds
        passed = int(np.searchsorted(times, 0.0, side="right")) - 1
        steps = Steps(np.append(0.0, times[passed + 1 :]), self.steps.gpus[passed:])
        return Plan(steps, max(self.end - seconds, 0.0), self.real_end - seconds, self.keeps)

    @property
    def next_change(self) -> float:
        """Seconds from now until its number of GPUs changes first; inf: not before its end."""
        return float(self.steps.times[1]) if len(self.steps.times) > 1 else np.inf

    @property
    def use(self) -> Steps:
        """Its GPUs until its end, and none afterwards."""
        before = int(self.steps.times.searchsorted(self.end))
        times = np.concatenate((self.steps.times[:before], (self.end,)))
        return Steps(times, np.concatenate((self.steps.gpus[:before], (0,))))

    @property
    def gpu_seconds(self) -> float:
        """GPU time, as the released simulator counts it: the last GPUs until the next known time.

        Free GPUs change at times of their own; where the work ends before the next of them, the
        whole stretch counts.
        """
        times = np.append(self.steps.times, self.end)
        return float((np.diff(times) * self.steps.gpus).sum())


def plan(demand: Demand, free: Steps, slot: float, *, first: int = 0) -> Plan:
    """Plan a job into free GPUs.

    Args:
        demand: the job.
        free: GPUs that are free, from now on; all of them after the last time.
        slot: seconds.
        first: GPUs that it has until the first time at which `free` changes; 0: as few as possible.

    Returns:
        its plan; where the deadline cannot be kept, one that uses all that is free until it is
        done, with `keeps` false.
    """
    aligned = in_slots(max(demand.due, 0.0), slot)
    begin, left, before, since = 0, demand.left, demand.has, demand.since
    if first:
        pause = demand.restart - (since if first == before else 0.0)
        rest = demand.seconds(left, first, max(pause, 0.0))
        anew = float(free.times[1]) if len(free.times) > 1 else aligned
        if in_slots(rest, slot) <= anew and rest <= demand.due:
            return _ending(Steps.always(first), 0.0, rest, slot, demand)
    known = free.with_time(aligned)
    until = int(known.times.searchsorted(aligned))  # stretches before the deadline
    starts, lasts = known.times[:until], known.times[1 : until + 1] - known.times[:until]
    if until:
        lasts[-1] = demand.due - starts[-1]
    gpus = np.zeros(until, np.int64)
    if first:
        begin = int(known.times.searchsorted(anew))
        gpus[:begin] = first
        left -= float(demand.work(np.array([first]), np.array([anew]), before, since)[0])
        before, since = first, anew if first != before else since + anew
    can = demand.sizes.below[known.gpus[begin:until]]
    found = _smallest(demand, can, lasts[begin:], left, before, since)
    if found is None:
        gpus[begin:] = can
        return _late(demand, known, gpus, lasts, slot, first)
    some, last = found
    ahead = lasts[begin : begin + last]
    done = float(demand.work(some[:last], ahead, before, since).sum())
    gpus[begin : begin + last + 1] = some[: last + 1]
    pause = demand.pause(some, ahead, before, last, since)
    rest = demand.seconds(left - done, int(some[last]), pause)
    return _ending(Steps(starts, gpus).merged(), float(starts[begin + last]), rest, slot, demand)


def _smallest(
    demand: Demand, can: Ints, lasts: Floats, left: float, before: int, since: float
) -> tuple[Ints, int] | None:
    """The GPUs of each stretch and the one in which the work ends; None: there are too few GPUs."""
    sizes = demand.sizes.gpus
    if not len(can) or not len(sizes):
        return None
    by_size = np.minimum(sizes[:, None], can[None, :])  # [size, stretch]
    work = demand.work(by_size, lasts, before, since)
    from_behind = work[:, ::-1].cumsum(axis=1)[:, ::-1]
    if demand.restart:  # work that begins in a stretch pays for a start there
        without = np.minimum(lasts, demand.restart) * demand.sizes.rate[by_size]
        goes_on = ~_changes(by_size, before)
        goes_on[:, 0] = False  # its cost is counted already
        from_behind = from_behind - np.where(goes_on, without, 0.0)
    enough = from_behind >= left
    fits = enough.any(axis=1)
    if not fits.any():
        return None
    level = int(fits.argmax())
    point = len(can) - 1 - int(enough[level, ::-1].argmax())
    smaller = by_size[level - 1, :point] if level else np.zeros(point, np.int64)
    for early in (smaller, np.zeros(point, np.int64)):  # a change of size may cost too much
        gpus = np.concatenate([early, by_size[level, point:]])
        done = demand.work(gpus, lasts, before, since).cumsum()
        ends = (done[point:] >= left) & (gpus[point:] > 0)
        if ends.any():
            return gpus, point + int(ends.argmax())
    return gpus, int(np.flatnonzero(gpus)[-1])


def _ending(steps: Steps, start: float, rest: float, slot: float, demand: Demand) -> Plan:
    """A plan whose work ends so many seconds after a stretch has begun."""
    real = start + rest
    return Plan(steps, start + in_slots(rest, slot), real, real <= demand.due)


def _late(demand: Demand, known: Steps, gpus: Ints, lasts: Floats, slot: float, first: int) -> Plan:
    """A plan that misses the deadline: the most that is free, until the work is done."""
    sizes, until = demand.sizes, len(gpus)
    if not len(sizes.gpus):
        return Plan(Steps.always(0), FOREVER, FOREVER, False)
    can = sizes.below[known.gpus[until:]]
    can[-1] = first or sizes.below[-1]  # after the last time all GPUs are free
    gpus = np.concatenate([gpus, can])
    lasts = np.concatenate([lasts, np.diff(known.times[until:]), [FOREVER]])
    done = np.cumsum(demand.work(gpus, lasts, demand.has, demand.since))
    last = int((done >= demand.left).argmax())
    left = demand.left - (float(done[last - 1]) if last else 0.0)
    pause = demand.pause(gpus, lasts, demand.has, last, demand.since)
    rest = demand.seconds(left, int(gpus[last]), pause)
    steps = Steps(known.times[: last + 1], gpus[: last + 1]).merged()
    plan = _ending(steps, float(known.times[last]), rest, slot, demand)
    return Plan(plan.steps, plan.end, plan.real_end, False)
