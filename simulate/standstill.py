"""When a replay will never get any further: decisions go on, and nothing moves."""

from __future__ import annotations

import math

from dlsched.core.allocation import Allocation
from dlsched.core.errors import plural
from dlsched.core.round.cycle import Cycle
from dlsched.core.units import Units
from simulate.world import World

IDLE_ROUNDS = 10_000  # decisions in a row that start nothing while nothing runs: it never will


class Standstill:
    """Counts decisions that lead nowhere."""

    def __init__(self, world: World, cycle: Cycle) -> None:
        self._world, self._cycle = world, cycle
        self._quiet = 0  # decisions in a row that started nothing while nothing ran or was to come
        self._stale = 0  # decisions in a row without an arrival, an end or an event to come
        self._last_wake = math.inf
        self._looked_at: tuple[float, int] = (0.0, 0)

    def moved(self, *, decided: bool = False, wake: float = math.inf) -> None:
        """A unit has ended, or more is to come, and perhaps a decision asked for a wake-up."""
        self._stale = 0
        if decided:
            self._quiet, self._last_wake = 0, wake

    def after(self, allocation: Allocation, *, coming: bool) -> str | None:
        """Look at a decision; returns why the run should stop, None while it should not.

        `coming` says that more arrives, or happens to the cluster.
        """
        idle = not self._world.running and not coming
        patient = allocation.wake_at == self._last_wake < math.inf  # it waits for its alarm
        self._last_wake = allocation.wake_at
        self._quiet = 0 if allocation.launched or patient or not idle else self._quiet + 1
        self._stale = 0 if coming or patient else self._stale + 1
        if self._quiet >= IDLE_ROUNDS:
            return self._world.says_unfinished()
        if self._stale and self._stale % IDLE_ROUNDS == 0 and self._is_stuck():
            return (
                f"no progress in {IDLE_ROUNDS:,} decisions, for ever moved or standing still: "
                f"{plural(self._world.unfinished_count(), 'job')}"
            )
        return None

    def _is_stuck(self) -> bool:
        """Has no unit worked since the last look, though none just waits for its restart?"""
        table, now = self._world.table, self._cycle.ctx.now
        units = Units(table, self._cycle.active, now)
        before, self._looked_at = self._looked_at, (units.executed.sum(), units.starts.sum())
        if self._looked_at[0] > before[0] or self._stale == IDLE_ROUNDS:
            return False  # it moves on, or this was the first look
        restarting = units.running & (table.progress_from[units.rows] > now)
        return not restarting.any() or self._looked_at[1] > before[1]
