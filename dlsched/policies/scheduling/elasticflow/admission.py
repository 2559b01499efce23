"""Which of the jobs that come can be promised their deadlines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dlsched.core.allocation import Refused
from dlsched.policies.scheduling.elasticflow.planner import Planner, by_deadline
from dlsched.policies.scheduling.elasticflow.planning import Demand, Plan
from dlsched.policies.scheduling.elasticflow.timeline import FOREVER, Steps

NO_PROMISES: Mapping[int, Plan | None] = {}
NO_PLANS: Mapping[int, Plan] = {}


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


class AdmissionControl:
    """Lets jobs in, one after the other or all at once; jobs without deadline always.

    Attributes:
        plans: by place among those that are there, then those that entered: the plans by which
            deadlines are kept.
        promised: the places of those whose deadlines are to be kept.
    """

    def __init__(
        self,
        there: Sequence[Demand],
        planner: Planner,
        *,
        arrivals: Literal["one-by-one", "strict", "together"],
        promised: Mapping[int, Plan | None] = NO_PROMISES,
    ) -> None:
        """Begin with the jobs that are there.

        Args:
            there: their demands, in the order of ties.
            planner: of their GPUs.
            arrivals: strict: none enters while one that is there is late; together: so, and as the
                released simulator, with one answer for all that come.
            promised: places of those whose deadlines are to be kept, and the plans that they
                have; these stay where planning anew breaks one of the promises.
        """
        self._there = list(there)
        self._planner = planner
        self._arrivals = arrivals
        self.promised = set(promised)
        self.plans, self._free = self._plan(self._there)
        kept = {place: each for place, each in promised.items() if each is not None}
        self._stays = not self._are_kept(self.plans) and planner.hold_together(kept.values())
        if self._stays:
            self.plans, self._free = self._plan(self._there, kept)
        self._late = 0 if arrivals == "strict" else self._late_ones(self.plans)

    def ask(self, new: Sequence[Demand]) -> list[Answer]:
        """The answers to jobs that come, in order."""
        if self._arrivals == "together":
            enters = not self._late_ones(self._plan([*self._there, *new])[0])
            return [
                Answer(True) if enters or demand.due >= FOREVER else self._no(demand)
                for demand in new
            ]
        return [self._ask_one(demand) for demand in new]

    def _ask_one(self, demand: Demand) -> Answer:
        if demand.due < FOREVER or self._arrivals == "strict":
            found = self._with(demand)
            if found is None:
                return self._no(demand)
            self.plans, self._free = found
            self.promised.add(len(self._there))
        self._there.append(demand)
        return Answer(True)

    def _plan(
        self, demands: Sequence[Demand], fixed: Mapping[int, Plan] = NO_PLANS
    ) -> tuple[dict[int, Plan], Steps]:
        """Plans of the jobs with deadlines, by place, and the GPUs that these leave free."""
        places = [place for place in by_deadline(demands) if demands[place].due < FOREVER]
        own = {order: fixed[place] for order, place in enumerate(places) if place in fixed}
        plans, free = self._planner.around([demands[place] for place in places], own)
        return dict(zip(places, plans, strict=True)), free

    def _are_kept(self, plans: Mapping[int, Plan]) -> bool:
        return all(plans[place].keeps for place in self.promised if place in plans)

    @staticmethod
    def _late_ones(plans: Mapping[int, Plan]) -> int:
        """How many cannot keep their deadlines."""
        return sum(not plan.keeps for plan in plans.values())

    def _with(self, demand: Demand) -> tuple[dict[int, Plan], Steps] | None:
        """Plans with one job more; None where it is late, or another is because of it."""
        if self._stays:
            own, free = self._planner.beside(demand, self._free)
            return ({**self.plans, len(self._there): own}, free) if own.keeps else None
        plans, free = self._plan([*self._there, demand])
        is_late = self._late_ones(plans) > self._late or not self._are_kept(plans)
        return None if is_late else (plans, free)

    def _fits(self, demand: Demand) -> bool:
        return self._with(demand) is not None

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
