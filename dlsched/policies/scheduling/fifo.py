"""First come, first served: strict (fifo) and with every job that fits behind (first-fit).

As in Tiresias' and Blox' simulators (fifo, fjf). Order: (priority, submit time), then admission.
Non-preemptive, except in the strict rounds of Blox (`misfit=tail-preempt`), where a job at the head
may suspend jobs behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dlsched.core.allocation import Misfit, Ranking
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units, UnitTable
from dlsched.policies.scheduling.ordering import order_by
from dlsched.policies.scheduling.priority_classes import MISFIT, ClassOptions, PriorityClasses


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoOptions(ClassOptions):
    """First come, first served."""

    misfit: Misfit = option("stop", MISFIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFitOptions(ClassOptions):
    """First come, first served, with every job that fits."""


C = TypeVar("C", bound=ClassOptions)


class _InOrder(SchedulingPolicy[C]):
    """Jobs by priority class, then by submit time."""

    def __init__(self, options: C, misfit: Misfit) -> None:
        super().__init__(options)
        self._misfit = misfit
        self._classes = PriorityClasses(options)
        self.memories = (self._classes,)
        self.fills = self._classes.fills(misfit)
        self.preemptive = misfit == "tail-preempt"
        self.rounds_fill = "with room" if self.preemptive else "always"

    def fill_key(self, row: int, table: UnitTable) -> float:
        """Its submit time."""
        return table.submit_time.item(row)

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """By priority, then submit time."""
        order = order_by(self._classes.of(units, ctx), units.submit_time)
        stable = np.inf if self.options.guard_s == np.inf else -np.inf
        return Ranking(order=order, misfit=self._misfit, stable_until=stable)


class Fifo(_InOrder[FifoOptions]):
    """Start jobs from the head of the queue while the head fits."""

    name = "fifo"
    summary = "first come, first served; the head blocks the jobs behind it"

    def __init__(self, options: FifoOptions) -> None:
        super().__init__(options, options.misfit)


class FirstFit(_InOrder[FirstFitOptions]):
    """Start every job that fits, in queue order; large jobs may starve."""

    name = "first-fit"
    summary = "first come, first served; smaller jobs may pass jobs that do not fit (fjf)"

    def __init__(self, options: FirstFitOptions) -> None:
        super().__init__(options, "skip")
