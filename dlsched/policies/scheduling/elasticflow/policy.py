"""The policy `elasticflow`: deadlines kept by as few GPUs as possible, and the rest shared.

Each time something happens all jobs are planned anew, in the order of their deadlines: each has the
fewest GPUs that keep its deadline, as late as possible. GPUs that are left now go to the jobs with
the largest marginal return. It is an admission part, too: a job enters only if its deadline and
those of all jobs that are there can be kept. Paper: see the package. Inputs: predicted work,
deadline (a job without one is best effort), bounds of the number of GPUs, speeds by number of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Ints
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.stage import AdmissionPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.elasticflow.admission import AdmissionControl, declined
from dlsched.policies.scheduling.elasticflow.demands import Demands
from dlsched.policies.scheduling.elasticflow.layout import lay_out, start_waiting
from dlsched.policies.scheduling.elasticflow.planner import Planner, by_deadline
from dlsched.policies.scheduling.elasticflow.planning import Plan
from dlsched.policies.scheduling.elasticflow.promises import Promises
from dlsched.policies.scheduling.gang_sizes import capacity, share_by_pool

WITHOUT_ROUNDS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticFlowOptions:
    """ElasticFlow."""

    shares: Literal["minimum", "greedy"] = option(
        "minimum",
        "a job has as few GPUs as keep its deadline, or (EDF) as many as it can use, the earliest "
        "deadline first",
    )
    arrivals: Literal["one-by-one", "strict", "together"] = option(
        "one-by-one",
        "strict: one by one, but none while an admitted job is late; together: so, and jobs that "
        "come at once are admitted or declined as one",
    )
    slot_s: float = option(
        0.0, "seconds to which planned ends are rounded up; 0: the length of a round", low=0.0
    )
    margin: float = option(1.1, "how many times its predicted work a job is given", low=1.0)


class Division(NamedTuple):
    """How the jobs of a pool share its GPUs, by their places.

    Attributes:
        units: the jobs, the earliest deadline first.
        first: their plans before what is left was given.
        gained: those that got more, in their turns, with their new plans.
        plans: their plans in the end.
        order: their places, the largest marginal return first.
        total: GPUs of the pool.
    """

    units: Units
    first: list[Plan]
    gained: list[tuple[int, Plan]]
    plans: list[Plan]
    order: list[int]
    total: int

    @property
    def sizes(self) -> Ints:
        """GPUs of each job."""
        return np.array([plan.first for plan in self.plans], np.int64)


class ElasticFlow(SchedulingPolicy[ElasticFlowOptions], AdmissionPolicy[ElasticFlowOptions]):
    """Minimum satisfactory shares, admission, and what is left by marginal return."""

    name = "elasticflow"
    summary = "elastic jobs with deadlines: the fewest GPUs that keep them, admission, the rest"
    needs = frozenset({"predicted_work"})
    knows_deadlines = True
    preemptive = True
    rests = False  # jobs grow when others leave

    def __init__(self, options: ElasticFlowOptions) -> None:
        super().__init__(options)
        self._demands = Demands(
            margin=options.margin, beyond_useful=options.shares == "greedy", restarts=True
        )
        self._promises = Promises()
        self._admits = False  # is it this run's admission, too?
        self.memories = (self._promises,)

    @property
    def speeds_up_the_costliest(self) -> bool:
        """Does what is left go to the jobs whose GPU time grows most by it, not least?"""
        return False

    # -- admission --------------------------------------------------------------------------------

    def admit(self, queue: Units, ctx: RoundContext) -> tuple[Bools, dict[int, Refused]]:
        """Admit jobs whose deadlines, and those of all jobs that are there, can be kept."""
        self._admits = True
        enters = np.ones(len(queue), np.bool_)
        refused: dict[int, Refused] = {}
        start = ctx.semantics.tick_at_or_after(ctx.now) if ctx.semantics.grid else ctx.now
        for pool in np.unique(queue.pool).tolist():
            new = queue.pool == pool
            there = self._promises.in_order(ctx.units[ctx.units.pool == pool])
            total = ctx.occupancy.free_in(ctx.pools.nodes[pool] & ctx.occupancy.open_nodes)
            total += int(there.gpus_now.sum())
            is_promise = self.options.arrivals == "one-by-one" and self.options.shares == "minimum"
            control = AdmissionControl(
                self._demands.of(there, total, ctx, start),
                Planner(total, self._slot(ctx), self.options.shares),
                arrivals=self.options.arrivals,
                promised=self._promises.promised(there.rows.tolist(), start),
            )
            some = queue[new]
            answers = control.ask(self._demands.of(some, total, ctx, start))
            enters[new] = [answer.enters for answer in answers]
            if is_promise:
                rows = [*there.rows.tolist(), *queue.rows[new & enters].tolist()]
                self._promises.promise(
                    [rows[place] for place in sorted(control.promised)],
                    [control.plans.get(place) for place in sorted(control.promised)],
                    start,
                )
            for row, submit, answer in zip(
                some.rows.tolist(), some.submit_time.tolist(), answers, strict=True
            ):
                if not answer.enters:
                    refused[row] = declined(answer.earliest + start - submit)
        return enters, refused

    # -- decisions --------------------------------------------------------------------------------

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Plan all jobs anew, and give each pool's jobs their GPUs."""
        if ctx.mode == "fill":
            self._promises.missed(ctx)
            total = int(ctx.occupancy.free_in(ctx.occupancy.open_nodes))
            start_waiting(walk, units, self._demands.of(units, total, ctx, ctx.now))
            return
        if not self._promises.is_due(ctx):
            walk.stable_until(self._promises.due)
            walk.wake_at(self._promises.due)
            return
        protected = ctx.protected(units)
        units = units[~protected] if protected.any() else units
        self._promises.decided(ctx, self._decide(units, ctx, walk))
        walk.wake_at(self._promises.due)
        walk.stable_until(self._promises.due)

    def _decide(self, units: Units, ctx: RoundContext, walk: Walk) -> float:
        """Give each pool's jobs their GPUs; returns when a plan changes first [s]."""
        nexts = [np.inf]
        for pool, places in share_by_pool(units):
            some = self._promises.in_order(units[places])
            if len(some):
                nexts.append(self._divide(some, capacity(some, walk, pool), ctx, walk))
        return min(nexts)

    def _divide(self, units: Units, total: int, ctx: RoundContext, walk: Walk) -> float:
        """Plan the jobs of a pool and resize them; returns when a plan changes first [s]."""
        demands = self._demands.of(units, total, ctx, ctx.now)
        order = by_deadline(demands)
        demands, units = [demands[place] for place in order], units[order]
        planner = Planner(total, self._slot(ctx), self.options.shares)
        plans, free = planner.plan_all(demands)
        rows = units.rows.tolist()
        kept = self._promises.kept_instead(rows, plans, planner, ctx.now)
        if kept is not None:
            plans, free = planner.around(demands, kept)
        order, gained, first = list(range(len(plans))), list[tuple[int, Plan]](), list(plans)
        if self.options.shares == "minimum":
            order, gained = planner.give_the_rest(
                demands, plans, free, costliest=self.speeds_up_the_costliest
            )
        division = Division(units, first, gained, plans, order, total)
        order = self._lay_out(division, walk)
        self._promises.keep(units[order].rows.tolist(), [plans[place] for place in order], ctx.now)
        for place in order:
            walk.output("planned_end", rows[place], ctx.now + plans[place].real_end)
        return self._next_change(division, order, ctx, walk)

    def _lay_out(self, division: Division, walk: Walk) -> list[int]:
        """Resize the jobs; returns their places in the order in which they were placed."""
        plans = division.plans
        order = sorted(division.order, key=lambda place: -plans[place].first)
        lay_out(walk, division.units[order], division.sizes[order], anew=False)
        return order

    def _next_change(
        self, division: Division, order: list[int], ctx: RoundContext, walk: Walk
    ) -> float:
        """When a plan changes first [s]."""
        return ctx.now + min(plan.next_change for plan in division.plans)

    def _slot(self, ctx: RoundContext) -> float:
        return self.options.slot_s or ctx.round_length or WITHOUT_ROUNDS_S
