"""Which of the jobs that come can be promised their deadlines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlsched.core.allocation import Refused
from dlsched.policies.scheduling.elasticflow.planner import Planner, by_deadline
from dlsched.policies.scheduling.elasticflow.planning import Demand
from dlsched.policies.scheduling.elasticflow.timeline import FOREVER


@dataclass(frozen=True, slots=True)
class Answer:
    """May a job enter?

    Attributes:
        enters: yes.
        earliest: seconds from now: the earliest deadline, in whole slots, with which it could; of a
            job that enters NaN.
    """

    enters: bool
    earliest: float = float("nan")


class Door:
    """Lets jobs in, one after the other or all at once; jobs without deadline always."""

    def __init__(self, there: Sequence[Demand], planner: Planner, *, together: bool) -> None:
        """Begin with the jobs that are there.

        Args:
            there: their demands, in the order of ties.
            planner: of their GPUs.
            together: as the released simulator, one answer for all that come.
        """
        self._there = list(there)
        self._planner = planner
        self._together = together
        self._late = self._late_ones(self._there)

    def ask(self, new: Sequence[Demand]) -> list[Answer]:
        """The answers to jobs that come, in order."""
        if self._together:
            enters = not self._late_ones([*self._there, *new])
            return [
                Answer(True) if enters or demand.due >= FOREVER else self._no(demand)
                for demand in new
            ]
        return [self._ask_one(demand) for demand in new]

    def _ask_one(self, demand: Demand) -> Answer:
        if demand.due < FOREVER and not self._fits(demand):
            return self._no(demand)
        self._there.append(demand)
        return Answer(True)

    def _late_ones(self, demands: Sequence[Demand]) -> int:
        """How many of some jobs cannot keep their deadlines."""
        some = [demand for demand in demands if demand.due < FOREVER]
        if not some:
            return 0
        plans, _ = self._planner.plan_all([some[place] for place in by_deadline(some)])
        return sum(not plan.keeps for plan in plans)

    def _fits(self, demand: Demand) -> bool:
        """Is no other job late because of this one, and it is not late itself?"""
        return self._late_ones([*self._there, demand]) <= self._late

    def _no(self, demand: Demand) -> Answer:
        """The earliest deadline that could be kept, by halving; infinite: none."""
        slot = self._planner.slot
        low = max(int(demand.due // slot), 0)
        more = 1
        while not self._fits(replace(demand, due=(low + more) * slot)):
            low, more = low + more, 2 * more
            if low * slot > FOREVER / 4:
                return Answer(False, float("inf"))
        high = low + more
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(replace(demand, due=middle * slot)):
                high = middle
            else:
                low = middle
        return Answer(False, high * slot)


def declined(earliest: float) -> Refused:
    """The refusal of a job; `earliest` is in seconds after its submit, infinite for none."""
    if earliest == float("inf"):
        return Refused("Never", "its deadline cannot be kept, nor any later one")
    return Refused(
        "Never",
        "its deadline cannot be kept with those of the jobs that are there; the earliest that can "
        f"is {_natural(earliest)} after the submit",
    )


def _natural(seconds: float) -> str:
    """Seconds, rounded up, in a unit that people read."""
    if seconds <= 600:
        return f"{math.ceil(seconds)} s"
    return f"{math.ceil(seconds / 60)} min" if seconds <= 36_000 else f"{seconds / 3600:.1f} h"
