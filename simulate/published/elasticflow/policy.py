"""The policy `elasticflow` as its simulator has it: jobs placed anew, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.elasticflow.demands import Demands
from dlsched.policies.scheduling.elasticflow.layout import lay_out
from dlsched.policies.scheduling.elasticflow.policy import (
    Division,
    ElasticFlow,
    ElasticFlowOptions,
)
from simulate.published.elasticflow.overhead import Events, Trainers


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedElasticFlowOptions(ElasticFlowOptions):
    """ElasticFlow, where time passes as in its simulator."""

    marginal: Literal["artifact", "paper"] = option(
        "paper",
        "GPUs that are left go first to the job whose planned GPU time grows most (artifact), or "
        "least (paper), for each GPU",
    )
    layout: Literal["sticky", "anew"] = option(
        "sticky",
        "sticky: a job whose number of GPUs stays keeps its GPUs; anew: all jobs are placed anew, "
        "and restart, each time",
    )
    trainers: Literal["world", "published"] = option(
        "world", "published: starts cost what the released simulator charges for them"
    )
    restart_every: int = option(
        60, "trainers=published: all trainers restart once in so many decisions", low=1
    )


class PublishedElasticFlow(ElasticFlow):
    """ElasticFlow with the layout, the costs and the list of events of its simulator."""

    Options: ClassVar[type[PublishedElasticFlowOptions]] = PublishedElasticFlowOptions
    options: PublishedElasticFlowOptions

    def __init__(self, options: PublishedElasticFlowOptions) -> None:
        super().__init__(options)
        self._demands = Demands(
            margin=options.margin,
            beyond_useful=options.shares == "greedy",
            restarts=options.trainers == "world",
        )
        self._trainers = Trainers()
        self.memories = (*self.memories, self._trainers)

    @property
    def speeds_up_the_costliest(self) -> bool:
        """Does what is left go to the jobs whose GPU time grows most by it?"""
        return self.options.marginal == "artifact"

    def _decide(self, units: Units, ctx: RoundContext, walk: Walk) -> float:
        is_free = self.options.shares == "greedy" and not self._admits
        self._trainers.begin_event(self.options.restart_every, is_free=is_free)
        changes = super()._decide(units, ctx, walk)
        self._trainers.end_event()
        return changes

    def _lay_out(self, division: Division, walk: Walk) -> list[int]:
        units, plans, order = division.units, division.plans, list(division.order)
        rows, sizes = units.rows.tolist(), division.sizes
        anew, greedy = self.options.layout == "anew", self.options.shares == "greedy"
        if anew and greedy and self._admits:
            order = self._promises.order_of_arrival(rows)
            lay_out(walk, units[order], sizes[order], anew=True, largest_first=False)
        elif anew and not self._admits:
            first = division.first  # without what is left
            due = [place for place in np.argsort(units.rows).tolist() if first[place].first]
            due += np.flatnonzero(sizes).tolist()
            begun = self._trainers.order_of_starts(rows, due)
            lay_out(walk, units[begun], sizes[begun], anew=True)
        else:
            order.sort(key=lambda place: -plans[place].first)
            lay_out(walk, units[order], sizes[order], anew=anew)
        return order

    def _next_change(
        self, division: Division, order: list[int], ctx: RoundContext, walk: Walk
    ) -> float:
        if self.options.trainers != "published":
            return super()._next_change(division, order, ctx, walk)
        rows, greedy = division.units.rows.tolist(), self.options.shares == "greedy"
        events = Events(
            first=dict(zip(rows, division.first, strict=True)),
            gained=[(rows[place], each) for place, each in division.gained],
            last=dict(zip(rows, division.plans, strict=True)),
        )
        for place in order:
            row, plan = rows[place], division.plans[place]
            if row in walk.launched:
                seconds = self._trainers.overhead(walk.launched[row], division.total)
                events.overhead[row] = seconds
                real = ctx.now + plan.real_end
                end = real + seconds if greedy else ctx.now + plan.end + seconds
                pause = end if greedy else real
                walk.grant(row, Grant(restart_s=seconds, pauses_at=pause, ends_at=end))
        if greedy:
            return np.inf
        return self._trainers.wakes_at(events, ctx.now, admits=self._admits)
