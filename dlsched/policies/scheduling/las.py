"""Least attained service first: who has had least goes first, nothing need be known of the future.

As in Tiresias (NSDI 2019) and Blox (EuroSys 2024). Attained service is GPU-seconds received, or
seconds on GPUs whatever their number (`service=time`, as Blox counts it). Meaningful in rounds: in
continuous time equal jobs would slice infinitely fast, so with `--clock events` decisions come only
when something changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dlsched.core.allocation import Misfit, Ranking, Rebuild
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.following import follow
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.classes import PriorityClasses
from dlsched.policies.scheduling.order import next_crossing, order_by

__all__ = ["Las"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LasOptions:
    """Least attained service."""

    service: Literal["gpu-time", "time"] = option(
        "gpu-time", "attained service in GPU-seconds, or in seconds on GPUs"
    )
    misfit: Misfit = option("skip", "what a job that does not fit does to those behind it")
    rebuild: Rebuild = option("sticky", "sticky keeps running jobs on their GPUs, full re-places")
    guard_s: float = option(np.inf, "seconds unscheduled after which a job goes first", low=0.0)


class Las(SchedulingPolicy[LasOptions]):
    """Order by attained service; ties in order of admission."""

    name = "las"
    summary = "least attained service first, preemptive"
    Options: ClassVar[type[Any]] = LasOptions
    preemptive = True

    def __init__(self, options: LasOptions) -> None:
        super().__init__(options)
        self._classes = PriorityClasses(options.guard_s)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Rank and follow; the order holds until a running job catches up with a waiting one."""
        by_time = self.options.service == "time"
        service = units.held_s if by_time else units.attained
        growth = np.ones(len(units)) if by_time else units.gang.astype(np.float64)
        priority = self._classes.of(units, ctx)
        ranking = Ranking(
            order=order_by(priority, service),
            misfit=self.options.misfit,
            rebuild=self.options.rebuild,
        )
        follow(walk, units, ranking)
        if ctx.mode == "full" and self.options.misfit == "skip" and priority is None:
            walk.stable_until(next_crossing(service, growth, walk.runs(units), ctx.now))

    def state_dict(self) -> dict[str, Any]:
        """Rows lifted by the starvation guard."""
        return self._classes.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Remember rows lifted."""
        self._classes.load_state_dict(state)

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Rows lifted, under their new numbers."""
        self._classes.renumber(old)
