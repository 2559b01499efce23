"""Orders by a key that changes while a job runs: the common part of LAS and shortest first."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

from dlsched.core.allocation import Misfit, Ranking, Rebuild
from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.following import follow
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.ordering import next_crossing, order_by
from dlsched.policies.scheduling.priority_classes import MISFIT, ClassOptions, PriorityClasses

REBUILD = (
    "sticky: running jobs keep their GPUs; full: none does; counted: jobs are chosen by counting "
    "GPUs, and lose theirs even where the chosen ones find no room"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions(ClassOptions):
    """The options of a preemptive order by a key."""

    misfit: Misfit = option("skip", MISFIT)
    rebuild: Rebuild = option("sticky", REBUILD)


K = TypeVar("K", bound=KeyOptions)


class KeyOrder(SchedulingPolicy[K]):
    """Jobs by priority class, then by their key, smallest first; ties in order of admission."""

    preemptive = True
    at_limits = "tries"

    def __init__(self, options: K) -> None:
        super().__init__(options)
        self._classes = PriorityClasses(options)
        self.memories = (self._classes,)
        self.fills = self._classes.fills(options.misfit)
        self.rounds_fill = "with room" if options.rebuild == "sticky" else None

    @abstractmethod
    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """The key of each unit, and its growth per second while the unit runs."""

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Rank and start; the order holds until a running job's key meets that of a waiting one."""
        key, growth = self.key(units, ctx)
        priority = self._classes.of(units, ctx)
        ranking = Ranking(
            order=self._order(units, priority, key, ctx),
            misfit=self.options.misfit,
            rebuild=self.options.rebuild,
        )
        follow(walk, units, ranking)
        if ctx.mode == "full" and self.options.misfit == "skip" and priority is None:
            walk.stable_until(next_crossing(key, growth, walk.runs(units), ctx.now))
            if self.options.rebuild == "counted" and (walk.suspended or walk.launched):
                walk.stable_until(-math.inf)  # those that found no room are counted anew

    def _order(self, units: Units, priority: Floats | None, key: Floats, ctx: RoundContext) -> Rows:
        return order_by(priority, key)
