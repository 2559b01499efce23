"""Shortest first, in its four senses; the literature calls all of them "SJF", so names are full.

The preemptive ones are those of Tiresias' simulator (NSDI 2019):

* `sjf`: shortest predicted duration first, non-preemptive; the first misfit ends the pass.
* `sjf-gpu`: fewest GPUs first, preemptive (Tiresias' "sjf").
* `srtf`: least predicted remaining time first, preemptive (Tiresias' "shortest").
* `srsf`: least remaining time × GPUs first, preemptive (Tiresias' "shortest-gpu").

The preemptive ones rebuild from empty: take in order what fits, skip the rest. Equal keys keep the
order of the previous decision (`ties=persistent`) or that of admission (`ties=submit`, Blox).
Durations are predictions (`--estimate`); a job that outruns its prediction has 0 left.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dlsched.core.allocation import Misfit, Ranking, Rebuild
from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.following import follow
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.classes import PriorityClasses
from dlsched.policies.scheduling.order import PersistentOrder, next_crossing, order_by

__all__ = ["Sjf", "SjfGpu", "Srsf", "Srtf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SjfOptions:
    """Shortest predicted duration first."""

    misfit: Literal["stop", "skip"] = option("stop", "what a misfit does to those behind it")


class Sjf(SchedulingPolicy[SjfOptions]):
    """Among waiting jobs, start the shortest while it fits."""

    name = "sjf"
    summary = "shortest predicted duration first, non-preemptive"
    Options: ClassVar[type[Any]] = SjfOptions
    needs = frozenset({"predicted_work"})

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """By predicted duration; ties in order of admission."""
        order = order_by(units.predicted_work)
        return Ranking(order=order, misfit=self.options.misfit, stable_until=np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestOptions:
    """The preemptive orders."""

    misfit: Misfit = option("skip", "what a job that does not fit does to those behind it")
    rebuild: Rebuild = option("sticky", "sticky keeps running jobs on their GPUs, full re-places")
    ties: Literal["persistent", "submit"] = option(
        "persistent", "equal keys keep the previous decision's order, or that of admission"
    )
    guard_s: float = option(np.inf, "seconds unscheduled after which a job goes first", low=0.0)
    charge_restart: bool = option(
        False, "count the restart overhead into the remaining time of jobs that do not run"
    )


class Shortest(SchedulingPolicy[ShortestOptions]):
    """The common part: a key, its growth while running, and the rebuild."""

    Options: ClassVar[type[Any]] = ShortestOptions
    needs = frozenset({"predicted_work"})
    preemptive = True

    def __init__(self, options: ShortestOptions) -> None:
        super().__init__(options)
        self._classes = PriorityClasses(options.guard_s)
        self._previous = PersistentOrder()

    @abstractmethod
    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """The sort key per unit, smallest first, and its growth per second while running."""

    def _remaining(self, units: Units, ctx: RoundContext) -> Floats:
        remaining = units.remaining_work
        if self.options.charge_restart:
            remaining = remaining + np.where(units.running, 0.0, ctx.restart_overhead)
        return remaining

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Rank and follow; the order holds until a running job's key meets a waiting one's."""
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

    def _order(self, units: Units, priority: Floats | None, key: Floats, ctx: RoundContext) -> Rows:
        if self.options.ties == "persistent" and priority is None:
            return self._previous.sort(units, key, remember=ctx.mode == "full")
        return order_by(priority, key)

    def state_dict(self) -> dict[str, Any]:
        """The previous order and the rows lifted by the starvation guard."""
        return self._classes.state_dict() | self._previous.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Go on from that order."""
        self._classes.load_state_dict(state)
        self._previous.load_state_dict(state)

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """The order and the rows lifted, under their new numbers."""
        self._classes.renumber(old)
        self._previous.renumber(old)


class Srtf(Shortest):
    """Least remaining time first."""

    name = "srtf"
    summary = "least predicted remaining time first, preemptive (Tiresias' 'shortest')"

    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """Remaining seconds, which shrink as the job runs."""
        return self._remaining(units, ctx), np.full(len(units), -1.0)


class Srsf(Shortest):
    """Least remaining service (time × GPUs) first."""

    name = "srsf"
    summary = "least predicted remaining time x GPUs first, preemptive (Tiresias' 'shortest-gpu')"
    rests = False  # running keys shrink at different speeds, so ties depend on every decision

    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """Remaining GPU-seconds."""
        return self._remaining(units, ctx) * units.gang, -units.gang.astype(np.float64)


class SjfGpu(Shortest):
    """Fewest GPUs first."""

    name = "sjf-gpu"
    summary = "fewest GPUs first, preemptive (Tiresias' 'sjf')"
    needs = frozenset()

    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """The gang size, which never changes."""
        return units.gang.astype(np.float64), np.zeros(len(units))
