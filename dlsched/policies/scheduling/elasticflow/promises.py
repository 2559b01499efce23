"""What ElasticFlow remembers between decisions: the plans that jobs were promised, and their order.

A plan that was made stays possible as long as it is followed. Planning anew, earliest deadline
first, usually finds a better one, but may fail to find any: then the old plans stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.context import RoundContext
from dlsched.core.memory import Remembering, kept, moved, plain, rows
from dlsched.core.units import Units
from dlsched.policies.scheduling.elasticflow.planner import Planner
from dlsched.policies.scheduling.elasticflow.planning import Plan
from dlsched.policies.scheduling.elasticflow.timeline import Steps

EARLY_S = 1e-3  # so much before a planned moment, the moment has come


class Promises(Remembering):
    """Plans by row.

    Attributes:
        due: when a plan changes first, in seconds; all are made anew then, or when jobs come or go.
    """

    due: float = kept(-np.inf)
    _version: int = kept(0)  # of the believed speeds
    _promised: set[int] = rows(set)  # those whose deadlines are to be kept
    _made: dict[int, tuple[float, Plan]] = kept(  # when, and the plan from then on
        dict,
        lambda stored: {
            row: (at, Plan(Steps(list(times), list(gpus)), end, real_end, keeps))
            for row, at, end, real_end, keeps, times, gpus in stored
        },
        store=lambda made: [
            [row, at, plan.end, plan.real_end, plan.keeps, *plain(plan.steps)]
            for row, (at, plan) in made.items()
        ],
        follow=moved,
        key="plans",
    )
    _order: list[int] = rows(list)

    def __init__(self) -> None:
        """Begin without plans."""
        self._coming: list[int] = []  # the order of the decision that is being made

    # -- when -------------------------------------------------------------------------------------

    def missed(self, ctx: RoundContext) -> None:
        """Something has happened between rounds, and plans are made in rounds only."""
        if ctx.changes:
            self.due = -np.inf

    def is_due(self, ctx: RoundContext) -> bool:
        """Is it time to plan anew?"""
        changed = bool(ctx.changes) or self._version != ctx.perf.version(ctx.active)
        return changed or ctx.now >= self.due - EARLY_S

    def decided(self, ctx: RoundContext, due: float) -> None:
        """All jobs were planned, and the next plan changes at `due`."""
        self.due = due
        self._version = ctx.perf.version(ctx.active)
        self._order, self._coming = self._coming, []
        there = set(ctx.active.tolist())
        self._made = {row: made for row, made in self._made.items() if row in there}
        self._promised &= there

    # -- plans ------------------------------------------------------------------------------------

    def promise(self, rows: Sequence[int], plans: Sequence[Plan | None], start: float) -> None:
        """From now on the deadlines of these are to be kept, by plans from `start` on."""
        self._promised.update(rows)
        found = ((row, plan) for row, plan in zip(rows, plans, strict=True) if plan is not None)
        self._made.update((row, (start, plan)) for row, plan in found)

    def keep(self, rows: Sequence[int], plans: Sequence[Plan], now: float) -> None:
        """These are the plans of some jobs from now on, which stay in this order."""
        self._coming.extend(rows)
        self._made.update((row, (now, plan)) for row, plan in zip(rows, plans, strict=True))

    def promised(self, rows: Sequence[int], now: float) -> dict[int, Plan | None]:
        """The plans of those that were promised one, by place; None: it is over, or was late."""
        return {
            place: self._plan_of(row, now)
            for place, row in enumerate(rows)
            if row in self._promised
        }

    def _plan_of(self, row: int, now: float) -> Plan | None:
        at, plan = self._made.get(row, (now, None))
        if plan is None or not plan.keeps or at + plan.end <= now:
            return None
        return plan.after(now - at)

    def kept_instead(
        self, rows: Sequence[int], plans: Sequence[Plan], planner: Planner, now: float
    ) -> dict[int, Plan] | None:
        """Old plans to stay with, by place, where new ones break a promise; None where none does.

        Args:
            rows: all jobs.
            plans: their new plans.
            planner: of their GPUs; old plans hold only where there are enough for all of them.
            now: seconds.
        """
        old = {place: plan for place, plan in self.promised(rows, now).items() if plan is not None}
        if all(plans[place].keeps for place in old):
            return None
        return old if planner.hold_together(old.values()) else None

    # -- order ------------------------------------------------------------------------------------

    def in_order(self, units: Units) -> Units:
        """Units as they were left at the last decision, then new ones as they came."""
        place = {row: number for number, row in enumerate(self._order)}
        last = len(place)
        keys = [place.get(row, last) for row in units.rows.tolist()]
        return units[np.argsort(np.array(keys, np.int64), kind="stable")]

    def order_of_arrival(self, rows: Sequence[int]) -> list[int]:
        """Places of jobs as they come, where one is new; otherwise as they are.

        Args:
            rows: all jobs, the earliest deadline first.
        """
        place = {row: number for number, row in enumerate(self._order)}
        if all(row in place for row in rows):
            return list(range(len(rows)))
        return sorted(
            range(len(rows)), key=lambda each: (place.get(rows[each], len(place)), rows[each])
        )

    # -- state ------------------------------------------------------------------------------------
