"""Priority classes that several orders share: a given priority, and the starvation guard.

Jobs with a larger `priority` run first; a job without one has `unset_priority`. A job that has
waited for the guard time without being scheduled has `guard_priority` for the rest of its life:
by default it goes to the front, as in Blox (EuroSys 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlsched.core.allocation import Misfit
from dlsched.core.arrays import Floats
from dlsched.core.context import RoundContext
from dlsched.core.memory import Remembering, rows
from dlsched.core.options import option
from dlsched.core.units import Units

MISFIT = "a job that does not fit: pass it, end there, or suspend running jobs from the tail (Blox)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassOptions:
    """The options of an order with priority classes."""

    guard_s: float = option(
        np.inf, "seconds unscheduled after which a job has `guard_priority` for good", low=0.0
    )
    guard_priority: float = option(
        np.inf, "priority of a job that the guard has lifted: it goes first"
    )
    unset_priority: float = option(0.0, "priority of a job that gives none")


class PriorityClasses(Remembering):
    """Priority classes of units, and the rows that the guard has lifted.

    Attributes:
        options: the guard's time and the priorities of jobs that give none or were lifted.
        lifted: rows lifted so far.
    """

    lifted: set[int] = rows(set)

    def __init__(self, options: ClassOptions) -> None:
        self.options = options

    def fills(self, misfit: Misfit) -> Literal["skip", "stop"] | None:
        """See `SchedulingPolicy.fills`; the guard remembers the rows that it lifts."""
        if self.options.guard_s < np.inf:
            return None
        return "skip" if misfit == "skip" else "stop"

    def of(self, units: Units, ctx: RoundContext) -> Floats | None:
        """A key per unit, smaller first; None when all are equal."""
        given, guard_s = units.priority, self.options.guard_s
        unknown = np.isnan(given)
        is_unset = np.count_nonzero(unknown) == len(unknown)  # a quarter of the price of all()
        if is_unset and guard_s == np.inf:
            return None
        if guard_s < np.inf:
            self._lift(units, ctx)
            if is_unset and not self.lifted:
                return None
        priority = np.where(unknown, self.options.unset_priority, given)
        if self.lifted:
            lifted = np.isin(units.rows, np.fromiter(self.lifted, np.int64))
            priority[lifted] = self.options.guard_priority
        return -priority

    def _lift(self, units: Units, ctx: RoundContext) -> None:
        # the round in which a job was suspended does not count as waited
        waited = units.waited_s - np.where(units.starts > 0, ctx.round_length, 0.0)
        starved = ~units.running & (waited >= self.options.guard_s)
        self.lifted.update(units.rows[starved].tolist())
