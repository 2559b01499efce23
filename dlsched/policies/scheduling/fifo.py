"""First come, first served: strict (fifo) and with everybody who fits behind (first-fit).

As in Tiresias' and Blox' simulators (fifo, fjf). Order: (priority, submit time), then admission.
Non-preemptive, except in the strict rounds of Blox (`misfit=tail-preempt`), where a job at the head
may push out jobs behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dlsched.core.allocation import Misfit, Ranking
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.policies.scheduling.classes import PriorityClasses
from dlsched.policies.scheduling.order import order_by

__all__ = ["Fifo", "FirstFit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoOptions:
    """First come, first served."""

    misfit: Misfit = option("stop", "what a job that does not fit does to those behind it")
    guard_s: float = option(np.inf, "seconds unscheduled after which a job goes first", low=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFitOptions:
    """First come, first served, with everybody who fits."""

    guard_s: float = option(np.inf, "seconds unscheduled after which a job goes first", low=0.0)


class Fifo(SchedulingPolicy[FifoOptions]):
    """From the head of the queue while the head fits."""

    name = "fifo"
    summary = "first come, first served; the head blocks those behind it"
    Options: ClassVar[type[Any]] = FifoOptions

    def __init__(self, options: FifoOptions) -> None:
        super().__init__(options)
        self._classes = PriorityClasses(options.guard_s)
        self.preemptive = options.misfit == "tail-preempt"

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """By priority, then submit time."""
        order = order_by(self._classes.of(units, ctx), units.submit_time)
        stable = np.inf if self.options.guard_s == np.inf else -np.inf
        return Ranking(order=order, misfit=self.options.misfit, stable_until=stable)

    def state_dict(self) -> dict[str, Any]:
        """Rows lifted by the starvation guard."""
        return self._classes.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Remember rows lifted."""
        self._classes.load_state_dict(state)

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Rows lifted, under their new numbers."""
        self._classes.renumber(old)


class FirstFit(SchedulingPolicy[FirstFitOptions]):
    """Walk the whole queue in order and start whatever fits; large jobs may starve."""

    name = "first-fit"
    summary = "first come, first served; smaller jobs may pass those that do not fit (fjf)"
    Options: ClassVar[type[Any]] = FirstFitOptions

    def __init__(self, options: FirstFitOptions) -> None:
        super().__init__(options)
        self._classes = PriorityClasses(options.guard_s)

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """By priority, then submit time; misfits are passed."""
        order = order_by(self._classes.of(units, ctx), units.submit_time)
        stable = np.inf if self.options.guard_s == np.inf else -np.inf
        return Ranking(order=order, misfit="skip", stable_until=stable)

    def state_dict(self) -> dict[str, Any]:
        """Rows lifted by the starvation guard."""
        return self._classes.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Remember rows lifted."""
        self._classes.load_state_dict(state)

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Rows lifted, under their new numbers."""
        self._classes.renumber(old)
