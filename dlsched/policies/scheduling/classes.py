"""Priority classes shared by the orders of Blox: a given priority, and the starvation guard.

The column `priority` says who goes first (smaller first); a job without one has 999. A job that has
waited for the guard time without being scheduled gets priority 1 for the rest of its life.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Rows, renumbered
from dlsched.core.context import RoundContext
from dlsched.core.units import Units

__all__ = ["PriorityClasses"]

DEFAULT_PRIORITY = 999.0
GUARDED_PRIORITY = 1.0


class PriorityClasses:
    """Priorities of units, with those that the guard has lifted.

    Attributes:
        guard_s: seconds without being scheduled after which a job is lifted.
        lifted: rows lifted so far.
    """

    def __init__(self, guard_s: float) -> None:
        self.guard_s = guard_s
        self.lifted: set[int] = set()

    def of(self, units: Units, ctx: RoundContext) -> Floats | None:
        """Priority per unit; None when all are equal."""
        given = units.priority
        unknown = np.isnan(given)
        nobody = np.count_nonzero(unknown) == len(unknown)  # a quarter of the price of all()
        if nobody and self.guard_s == np.inf:
            return None
        if self.guard_s < np.inf:
            self._lift(units, ctx)
            if nobody and not self.lifted:
                return None
        priority = np.where(unknown, DEFAULT_PRIORITY, given)
        if self.lifted:
            lifted = np.isin(units.rows, np.fromiter(self.lifted, np.int64))
            priority[lifted] = GUARDED_PRIORITY
        return priority

    def _lift(self, units: Units, ctx: RoundContext) -> None:
        # the round in which a job was suspended does not count as waited
        waited = units.waited_s - np.where(units.starts > 0, ctx.round_length, 0.0)
        starved = ~units.running & (waited >= self.guard_s)
        self.lifted.update(units.rows[starved].tolist())

    def renumber(self, old: Rows) -> None:
        """Follow a table that was packed."""
        self.lifted = renumbered(self.lifted, old)

    def state_dict(self) -> dict[str, Any]:
        """The rows lifted."""
        return {"lifted": sorted(self.lifted)}

    def load_state_dict(self, state: Any) -> None:
        """Remember the rows lifted."""
        self.lifted = set(state["lifted"])
