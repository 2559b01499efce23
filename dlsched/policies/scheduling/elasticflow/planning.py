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

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.elasticflow.timeline import DUST, FOREVER, Steps, in_slots


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of GPUs that a job can have, and its speed on each.

    Attributes:
        gpus: ascending.
        rate: steps per second on 0, 1, … GPUs of the cluster; 0 between sizes.
        below: the largest size that is at most 0, 1, … GPUs; 0 for none.
    """

    gpus: list[int]
    rate: list[float]
    below: list[int]

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
        return Sizes(gpus.tolist(), rate.tolist(), np.maximum.accumulate(below).tolist())

    def after(self, gpus: int) -> int:
        """The next larger size; 0 where there is none."""
        place = bisect_right(self.gpus, gpus)
        return self.gpus[place] if place < len(self.gpus) else 0


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
    since: float = math.inf

    def work(
        self, gpus: Sequence[int], lasts: Sequence[float], before: int, since: float = math.inf
    ) -> list[float]:
        """Steps in stretches of time, one after the other.

        A restart may last longer than the stretch that it begins in.

        Args:
            gpus: in each stretch.
            lasts: seconds of each.
            before: GPUs before the first one.
            since: seconds for which it had these before.
        """
        rate, restart = self.sizes.rate, self.restart
        if not restart:
            return [lasts[place] * rate[has] for place, has in enumerate(gpus)]
        found, begin = [], 0.0
        paid = restart - since if since < restart else 0.0  # work begins then
        for has, seconds in zip(gpus, lasts, strict=True):
            end = begin + seconds
            if has != before:
                paid, before = begin + restart, has
            found.append((max(end - paid, 0.0) - max(begin - paid, 0.0)) * rate[has])
            begin = end
        return found

    def seconds(self, left: float, gpus: int, pause: float) -> float:
        """Whole seconds in which so many steps are done, after a pause."""
        return float(math.ceil(pause + left / self.sizes.rate[gpus] * (1 - DUST)))

    def pause(
        self,
        gpus: Sequence[int],
        lasts: Sequence[float],
        before: int,
        last: int,
        since: float = math.inf,
    ) -> float:
        """Seconds of a restart that are left at the beginning of the stretch `last`."""
        elapsed, place = 0.0, last
        while place and gpus[place - 1] == gpus[last]:
            place -= 1
            elapsed += lasts[place]
        if not place and before == gpus[last]:
            elapsed += since
        return max(self.restart - elapsed, 0.0)


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
        return self.steps.gpus[0]

    def after(self, seconds: float) -> Plan:
        """The same plan, seen so many seconds later."""
        times = [time - seconds for time in self.steps.times]
        passed = bisect_right(times, 0.0) - 1
        steps = Steps([0.0, *times[passed + 1 :]], self.steps.gpus[passed:])
        return Plan(steps, max(self.end - seconds, 0.0), self.real_end - seconds, self.keeps)

    @property
    def next_change(self) -> float:
        """Seconds from now until its number of GPUs changes first; inf: not before its end."""
        return self.steps.times[1] if len(self.steps.times) > 1 else math.inf

    @property
    def use(self) -> Steps:
        """Its GPUs until its end, and none afterwards."""
        before = bisect_left(self.steps.times, self.end)
        return Steps([*self.steps.times[:before], self.end], [*self.steps.gpus[:before], 0])

    @property
    def gpu_seconds(self) -> float:
        """GPU time, as the released simulator counts it: the last GPUs until the next known time.

        Free GPUs change at times of their own; where the work ends before the next of them, the
        whole stretch counts.
        """
        times = [*self.steps.times, self.end]
        return ordered_sum(
            (times[place + 1] - times[place]) * gpus for place, gpus in enumerate(self.steps.gpus)
        )


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
        anew = free.times[1] if len(free.times) > 1 else aligned
        if in_slots(rest, slot) <= anew and rest <= demand.due:
            return _ending(Steps.always(first), 0.0, rest, slot, demand)
    known = free.with_time(aligned)
    until = bisect_left(known.times, aligned)  # stretches before the deadline
    starts = known.times[:until]
    lasts = [known.times[place + 1] - start for place, start in enumerate(starts)]
    if until:
        lasts[-1] = demand.due - starts[-1]
    gpus = [0] * until
    if first:
        begin = bisect_left(known.times, anew)
        gpus[:begin] = [first] * min(begin, until)
        left -= demand.work([first], [anew], before, since)[0]
        before, since = first, anew if first != before else since + anew
    can = [demand.sizes.below[each] for each in known.gpus[begin:until]]
    found = _smallest(demand, can, lasts[begin:], left, before, since)
    if found is None:
        gpus[begin:] = can
        return _late(demand, known, gpus, lasts, slot, first)
    some, last = found
    ahead = lasts[begin : begin + last]
    done = ordered_sum(demand.work(some[:last], ahead, before, since))
    gpus[begin : begin + last + 1] = some[: last + 1]
    pause = demand.pause(some, ahead, before, last, since)
    rest = demand.seconds(left - done, some[last], pause)
    return _ending(Steps(starts, gpus).merged(), starts[begin + last], rest, slot, demand)


def _smallest(
    demand: Demand, can: list[int], lasts: list[float], left: float, before: int, since: float
) -> tuple[list[int], int] | None:
    """The GPUs of each stretch and the one in which the work ends; None: there are too few GPUs."""
    smaller = [0] * len(can)
    for size in demand.sizes.gpus if can else ():
        largest = [min(size, each) for each in can]
        point = _latest_start(demand, largest, lasts, left, before, since)
        if point is not None:
            break
        smaller = largest
    else:
        return None
    for early in (smaller[:point], [0] * point):  # a change of size may cost too much
        gpus = [*early, *largest[point:]]
        done = list(accumulate(demand.work(gpus, lasts, before, since)))
        for place in range(point, len(gpus)):
            if done[place] >= left and gpus[place]:
                return gpus, place
    return gpus, max(place for place, has in enumerate(gpus) if has)


def _latest_start(
    demand: Demand, gpus: list[int], lasts: list[float], left: float, before: int, since: float
) -> int | None:
    """The last stretch from which on these GPUs are enough; None: they are not."""
    work, behind = demand.work(gpus, lasts, before, since), 0.0
    for place in range(len(gpus) - 1, -1, -1):
        behind += work[place]
        less = 0.0
        if demand.restart and place and gpus[place] == gpus[place - 1]:
            # work that begins here pays for a start, which is not counted yet
            less = min(lasts[place], demand.restart) * demand.sizes.rate[gpus[place]]
        if behind - less >= left:
            return place
    return None


def _ending(steps: Steps, start: float, rest: float, slot: float, demand: Demand) -> Plan:
    """A plan whose work ends so many seconds after a stretch has begun."""
    real = start + rest
    return Plan(steps, start + in_slots(rest, slot), real, real <= demand.due)


def _late(
    demand: Demand, known: Steps, gpus: list[int], lasts: list[float], slot: float, first: int
) -> Plan:
    """A plan that misses the deadline: the most that is free, until the work is done."""
    sizes, until = demand.sizes, len(gpus)
    if not sizes.gpus:
        return Plan(Steps.always(0), FOREVER, FOREVER, False)
    can = [sizes.below[each] for each in known.gpus[until:]]
    can[-1] = first or sizes.below[-1]  # after the last time all GPUs are free
    gpus = [*gpus, *can]
    after = known.times[until:]
    lasts = [*lasts, *(end - start for start, end in pairwise(after)), FOREVER]
    done = list(accumulate(demand.work(gpus, lasts, demand.has, demand.since)))
    last = next((place for place, steps in enumerate(done) if steps >= demand.left), 0)
    left = demand.left - (done[last - 1] if last else 0.0)
    pause = demand.pause(gpus, lasts, demand.has, last, demand.since)
    rest = demand.seconds(left, gpus[last], pause)
    steps = Steps(known.times[: last + 1], gpus[: last + 1]).merged()
    found = _ending(steps, known.times[last], rest, slot, demand)
    return Plan(found.steps, found.end, found.real_end, False)
