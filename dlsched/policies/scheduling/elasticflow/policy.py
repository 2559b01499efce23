"""The policy `elasticflow`: deadlines kept by as few GPUs as possible, and the rest shared.

Each time something happens all jobs are planned anew, in the order of their deadlines: each has the
fewest GPUs that keep its deadline, as late as possible. GPUs that are left now go to the jobs with
the largest marginal return. It is an admission part, too: a job enters only if its deadline and
those of all jobs that are there can be kept. Paper: see the package. Inputs: predicted work,
deadline (a job without one is best effort), bounds of the number of GPUs, speeds by number of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlsched.core.allocation import Grant, Refused
from dlsched.core.arrays import Bools
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.stage import AdmissionPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.elasticflow.admission import Door, declined
from dlsched.policies.scheduling.elasticflow.demands import Demands
from dlsched.policies.scheduling.elasticflow.layout import lay_out, start_waiting
from dlsched.policies.scheduling.elasticflow.overhead import Events, Trainers
from dlsched.policies.scheduling.elasticflow.planner import Planner, by_deadline
from dlsched.policies.scheduling.elasticflow.planning import Plan
from dlsched.policies.scheduling.elasticflow.promises import Promises
from dlsched.policies.scheduling.gang_sizes import capacity, share_by_pool

WITHOUT_ROUNDS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticFlowOptions:
    """ElasticFlow."""

    marginal: Literal["artifact", "paper"] = option(
        "paper",
        "GPUs that are left go first to the job whose planned GPU time grows most (artifact), or "
        "least (paper), for each GPU",
    )
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
    layout: Literal["sticky", "anew"] = option(
        "sticky",
        "sticky: a job whose number of GPUs stays keeps its GPUs; anew: all jobs are placed anew, "
        "and restart, each time",
    )
    trainers: Literal["world", "published"] = option(
        "world",
        "published: starts cost what the released simulator charges for them (only in a replay)",
    )
    restart_every: int = option(
        60, "trainers=published: all trainers restart once in so many decisions", low=1
    )


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
            margin=options.margin,
            beyond_useful=options.shares == "greedy",
            restarts=options.trainers == "world",
        )
        self._promises = Promises()
        self._admits = False  # is it this run's admission, too?
        self._trainers = Trainers()
        self.memories = (self._promises, self._trainers)

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
            door = Door(
                self._demands.of(there, total, ctx, start),
                Planner(total, self._slot(ctx), self.options.shares),
                arrivals=self.options.arrivals,
                promised=self._promises.promised(there.rows.tolist(), start),
            )
            some = queue[new]
            answers = door.ask(self._demands.of(some, total, ctx, start))
            enters[new] = [answer.enters for answer in answers]
            if is_promise:
                rows = [*there.rows.tolist(), *queue.rows[new & enters].tolist()]
                self._promises.promise(
                    [rows[place] for place in sorted(door.promised)],
                    [door.plans.get(place) for place in sorted(door.promised)],
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
        is_free = self.options.shares == "greedy" and not self._admits
        self._trainers.begin_event(self.options.restart_every, is_free=is_free)
        nexts = [np.inf]
        for pool, places in share_by_pool(units):
            some = self._promises.in_order(units[places])
            if len(some):
                nexts.append(self._divide(some, capacity(some, walk, pool), ctx, walk))
        self._trainers.end_event()
        self._promises.decided(ctx, min(nexts))
        walk.wake_at(self._promises.due)
        walk.stable_until(self._promises.due)

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
        due = [
            place for place in np.argsort(units.rows).tolist() if plans[place].first
        ]  # without what is left
        order, gained, first = list(range(len(plans))), list[tuple[int, Plan]](), list(plans)
        if self.options.shares == "minimum":
            order, gained = planner.give_the_rest(demands, plans, free, self.options.marginal)
        sizes = np.array([plan.first for plan in plans], np.int64)
        anew, greedy = self.options.layout == "anew", self.options.shares == "greedy"
        if anew and greedy and self._admits:
            order = self._promises.order_of_arrival(rows)
            lay_out(walk, units[order], sizes[order], anew=True, largest_first=False)
        elif anew and not self._admits:
            due += np.flatnonzero(sizes).tolist()
            begun = self._trainers.order_of_starts(rows, due)
            lay_out(walk, units[begun], sizes[begun], anew=True)
        else:
            order.sort(key=lambda place: -plans[place].first)
            lay_out(walk, units[order], sizes[order], anew=anew)
        events = Events(
            first=dict(zip(rows, first, strict=True)),
            gained=[(rows[place], each) for place, each in gained],
            last=dict(zip(rows, plans, strict=True)),
        )
        units, plans = units[order], [plans[place] for place in order]
        rows = units.rows.tolist()
        self._promises.keep(rows, plans, ctx.now)
        for row, plan in zip(rows, plans, strict=True):
            walk.output("planned_end", row, ctx.now + plan.real_end)
        if self.options.trainers == "published":
            for row, plan in zip(rows, plans, strict=True):
                if row in walk.launched:
                    seconds = self._trainers.overhead(walk.launched[row], total)
                    events.overhead[row] = seconds
                    real = ctx.now + plan.real_end
                    end = real + seconds if greedy else ctx.now + plan.end + seconds
                    pause = end if greedy else real
                    walk.grant(row, Grant(restart_s=seconds, pauses_at=pause, ends_at=end))
            if greedy:
                return np.inf
            return self._trainers.wakes_at(events, ctx.now, admits=self._admits)
        return ctx.now + min(plan.next_change for plan in plans)

    def _slot(self, ctx: RoundContext) -> float:
        return self.options.slot_s or ctx.round_length or WITHOUT_ROUNDS_S
