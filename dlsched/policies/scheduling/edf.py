"""Earliest deadline first: the job whose deadline comes first runs; the plain baseline.

Liu and Layland, "Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment", JACM
1973. Inputs: submit time and deadline [s after it]; durations are not needed. Jobs without
a deadline, and those whose deadline is best effort, come last, in order of submission. Every job is
admitted, and one whose deadline has passed goes on before the others.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.context import RoundContext
from dlsched.core.units import Units, UnitTable
from dlsched.policies.scheduling.key_order import KeyOptions, KeyOrder


class Edf(KeyOrder[KeyOptions]):
    """Order by the time of the deadline; ties in order of admission."""

    name = "edf"
    summary = "earliest deadline first, preemptive; jobs without one last"
    knows_deadlines = True

    def fill_key(self, row: int, table: UnitTable) -> float:
        """When its deadline is; infinite without one."""
        return table.due_at(np.array([row])).item(0)

    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """When deadlines are; they do not move."""
        return units.table.due_at(units.rows), np.zeros(len(units))
