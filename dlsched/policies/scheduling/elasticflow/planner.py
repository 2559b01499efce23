"""Plans for all jobs of a pool, in the order of their deadlines, and the GPUs that are left.

What is left is given one size at a time to the job with the largest marginal return: the change of
its planned GPU time, for each GPU that it gets more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from dlsched.policies.scheduling.elasticflow.planning import Demand, Plan, plan
from dlsched.policies.scheduling.elasticflow.timeline import FOREVER, Steps, in_slots


def by_deadline(demands: Sequence[Demand]) -> list[int]:
    """Places of jobs, the earliest deadline first, ties as they come."""
    return sorted(range(len(demands)), key=lambda place: demands[place].due)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans jobs into the GPUs of a pool.

    Attributes:
        total: GPUs.
        slot: seconds.
        shares: as few GPUs as keep a deadline, or as many as a job can use.
    """

    total: int
    slot: float
    shares: Literal["minimum", "greedy"] = "minimum"

    def plan_all(self, demands: Sequence[Demand]) -> tuple[list[Plan], Steps]:
        """Plan jobs one after the other, each into what those before it leave free.

        Returns:
            their plans, and the GPUs that are free then.
        """
        return self._plan(demands, {}, Steps.always(self.total))

    def around(
        self, demands: Sequence[Demand], fixed: Mapping[int, Plan]
    ) -> tuple[list[Plan], Steps]:
        """As `plan_all`, where some jobs, by place, have their plans already."""
        free = Steps.always(self.total)
        for each in fixed.values():
            free = free.plus(each.use, -1)
        return self._plan(demands, fixed, free)

    def beside(self, demand: Demand, free: Steps) -> tuple[Plan, Steps]:
        """Plan one job into free GPUs; returns its plan, and what is free then."""
        make = plan_greedily if self.shares == "greedy" else plan
        own = make(demand, free, self.slot)
        return own, free.plus(own.use, -1)

    def hold_together(self, plans: Iterable[Plan]) -> bool:
        """Are there GPUs enough for all of these plans?"""
        use = Steps.always(0)
        for each in plans:
            use = use.plus(each.use)
        return max(use.gpus) <= self.total

    def _plan(
        self, demands: Sequence[Demand], fixed: Mapping[int, Plan], free: Steps
    ) -> tuple[list[Plan], Steps]:
        plans = []
        for place, demand in enumerate(demands):
            own = fixed.get(place)
            if own is None:
                own, free = self.beside(demand, free)
            plans.append(own)
        return plans, free

    def give_the_rest(
        self,
        demands: Sequence[Demand],
        plans: list[Plan],
        free: Steps,
        *,
        costliest: bool = False,
    ) -> tuple[list[int], list[tuple[int, Plan]]]:
        """Give GPUs that are free now to the jobs that gain most, and plan these anew.

        A job that has none comes first. Ties go to the job that was ahead before.

        Args:
            demands: all jobs.
            plans: theirs; changed.
            free: what they leave free.
            costliest: the largest increase of GPU time comes first, and not the smallest.

        Returns:
            the places of the jobs, the largest marginal return first, and those that got more, in
            their turns, with their new plans.
        """
        order = list(range(len(demands)))
        offers, gained = [NOTHING] * len(order), list[tuple[int, Plan]]()
        spare = free.gpus[0]
        best = None if spare else -1
        while best != -1:
            for job in order:
                if demands[job].sizes.after(plans[job].first) or not offers[job].is_taken:
                    offers[job] = self._offer(demands[job], plans[job], free, spare, costliest)
            order.sort(key=lambda job: -offers[job].value)
            best = next((job for job in order if offers[job].is_open), -1)
            if best >= 0:
                plans[best], free = offers[best].plan, offers[best].free
                gained.append((best, plans[best]))
                offers[best] = replace(offers[best], is_taken=True)
                spare = free.gpus[0]
        return order, gained

    def _offer(self, demand: Demand, own: Plan, free: Steps, spare: int, costliest: bool) -> _Offer:
        size = demand.sizes.after(own.first)
        more = size - own.first
        if not size or more > spare:
            return NOTHING
        without = free.plus(own.use)
        better = plan(demand, without, self.slot, first=size)
        in_vain = demand.restart > 0 and better.real_end >= own.real_end
        if in_vain or (own.keeps and not better.keeps):
            return NOTHING
        value = math.inf
        if own.first:
            value = (better.gpu_seconds - own.gpu_seconds) / more
            value = value if costliest else -value
        return _Offer(value, better, without)


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a job gains by its next size.

    Attributes:
        value: its marginal return; -inf: it gets none.
        plan: its new plan.
        others: what is free without it.
        is_taken: it has that size by now.
    """

    value: float
    plan: Plan
    others: Steps
    is_taken: bool = False

    @property
    def free(self) -> Steps:
        """What is free then."""
        return self.others.plus(self.plan.use, -1)

    @property
    def is_open(self) -> bool:
        """Can it be taken?"""
        return self.value > -math.inf and not self.is_taken


_NONE = Steps.always(0)
NOTHING = _Offer(-math.inf, Plan(_NONE, 0.0, 0.0, keeps=False), _NONE)


def plan_greedily(demand: Demand, free: Steps, slot: float) -> Plan:
    """Plan a job onto all free GPUs that it can use: the released simulator's EDF.

    The job has in each stretch of time the largest of its sizes that those before it leave free,
    whether or not it needs so many, until its work is done. Others can have its GPUs at whole
    slots.

    Args:
        demand: the job.
        free: GPUs that are free, from now on; all of them after the last time.
        slot: seconds.
    """
    sizes, times = demand.sizes, free.times
    if not sizes.gpus:
        return Plan(Steps.always(0), FOREVER, FOREVER, False)
    gpus = [sizes.below[each] for each in free.gpus]
    gpus[-1] = sizes.below[-1]
    lasts = [end - start for start, end in zip(times, [*times[1:], FOREVER], strict=True)]
    done = list(accumulate(each * sizes.rate[has] for each, has in zip(lasts, gpus, strict=True)))
    last = next(place for place, steps in enumerate(done) if steps >= demand.left)
    rest = demand.seconds(demand.left - (done[last - 1] if last else 0.0), gpus[last], 0.0)
    real_end = times[last] + rest
    steps = Steps(times, [*gpus[: last + 1], *[0] * (len(gpus) - last - 1)]).merged()
    return Plan(steps, in_slots(real_end, slot), real_end, real_end <= demand.due)
