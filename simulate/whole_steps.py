"""Rounds in which jobs do whole steps, and which end when the last job stops.

What the published simulators count beside is in the semantics: what a round costs a job that was
not in the one before, when a job that takes too long is taken for complete, and when one that gets
nothing done leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.occupancy import Occupancy
from dlsched.core.semantics import Semantics
from dlsched.core.units import RUNNING, WAITING, UnitTable
from simulate.adaptation import Adaptation

__all__ = ["WholeSteps"]

NEARLY_WHOLE_S = 5.0  # a round this much shorter than its length still counts as a whole one


class Plan(NamedTuple):
    """What a row does in a round."""

    steps: float
    took: float  # seconds
    stop: float


class Stepped(Protocol):
    """What a world has that goes on in whole steps."""

    @property
    def table(self) -> UnitTable:
        """All units."""
        ...

    @property
    def occupancy(self) -> Occupancy:
        """Who holds which GPU."""
        ...

    @property
    def true_work(self) -> Floats:
        """Seconds of work each unit really needs."""
        ...

    @property
    def semantics(self) -> Semantics:
        """The named profile."""
        ...

    def complete(self, row: int, now: float, finish: float) -> None:
        """End a unit."""

    def credit_time(self, row: int, seconds: float) -> None:
        """Enter time at work."""

    def look_at_pace(self, row: int) -> None:
        """A unit's pace may have changed."""


class WholeSteps:
    """The round in progress, and what is remembered of those before.

    Attributes:
        adaptation: of batch sizes; None when they stay as they are.
        limits_s: seconds of work by row after which a row is complete whatever it has done; None
            when nobody says how long it should take.
        last: by row, when it stopped in the last round and the seconds it was credited with.
        adapted: rows whose batch size has changed at the end of the last round.
    """

    def __init__(self) -> None:
        self.adaptation: Adaptation | None = None
        self.limits_s: Sequence[float] | None = None
        self.last: dict[int, tuple[float, float]] = {}
        self.adapted: list[int] = []
        self._plans: dict[int, Plan] = {}
        self._active_in: list[int] = []  # jobs that were there, by round
        self._first_round: dict[int, int] = {}
        self._last_round: dict[int, int] = {}
        self._worked: dict[int, float] = {}
        self._fruitless: dict[int, int] = {}  # rounds in a row
        self._round_start = 0.0
        self._began = False  # has any round ended?

    def begin(self, world: Stepped, now: float, length: float) -> float:
        """Plan a round in which every running unit does whole steps only; returns its end.

        The round ends when the last of them stops, which may be before `length` is over; when
        nobody can do a step it lasts all of it. A unit that is restarting begins when it is ready.
        """
        table, beside = world.table, world.occupancy.beside
        self._note_active(table)
        rows = np.flatnonzero(table.status == RUNNING)
        if not rows.size:
            return math.inf
        rate, begins = table.rate[rows], np.maximum(table.progress_from[rows], now)
        room = np.maximum(length - (begins - now), 0.0)
        left = world.true_work[rows] - table.executed[rows]
        steps = np.minimum(np.floor(rate * room), left)
        took = np.divide(steps, rate, out=np.zeros(len(rows)), where=steps > 0)
        stops = np.where(steps > 0, begins + took, now)
        for place, row in enumerate(rows.tolist() if beside else ()):
            for other in beside.get(row, ()):  # they stop together
                stops[place] = max(stops[place], stops[np.searchsorted(rows, other)])
        plans = zip(steps.tolist(), took.tolist(), stops.tolist(), strict=True)
        self._plans = {row: Plan(*plan) for row, plan in zip(rows.tolist(), plans, strict=True)}
        end = float(stops.max())
        return end if end > now else now + length

    def end(self, world: Stepped, now: float) -> list[int]:
        """Credit what was planned; returns the rows that are done, in order.

        GPUs are held until the round's end; what a unit did not use of it counts as overhead.
        """
        table = world.table
        done: list[tuple[float, int]] = []
        before, self.last, self.adapted = self.last, {}, []
        for row, plan in self._plans.items():
            if table.status[row] != RUNNING:
                continue
            complete = self._credit(world, row, plan, late=row not in before)
            table.progress_from[row] = max(now, float(table.progress_from[row]))
            if complete:
                done.append((plan.stop, row))
            elif self.adaptation is not None:
                self._adapt(world, row)
        if self._plans:
            self._round_start, self._began = now, True
        self._plans = {}
        for stop, row in sorted(done):
            world.complete(row, now, stop)
            self._last_round[row] = len(self._active_in)
        if self.adaptation is not None:
            here = (table.status == RUNNING) | (table.status == WAITING)
            for row in np.flatnonzero(here).tolist():
                self.adaptation.look(row, table.executed.item(row))
        return [row for _, row in sorted(done)]

    def _note_active(self, table: UnitTable) -> None:
        here = np.flatnonzero((table.status == RUNNING) | (table.status == WAITING)).tolist()
        for row in here:
            self._first_round.setdefault(row, len(self._active_in))
        self._active_in.append(len(here))

    def mean_active(self, count: int) -> Floats:
        """Mean number of jobs in the rounds of each row's life."""
        area = np.concatenate([[0], np.cumsum(self._active_in)])
        found = np.full(count, np.nan)
        for row, first in self._first_round.items():
            end = max(self._last_round.get(row, len(self._active_in)), first + 1)
            found[row] = (area[end] - area[first]) / (end - first)
        return found

    def _credit(self, world: Stepped, row: int, plan: Plan, *, late: bool) -> bool:
        """Enter a row's steps and time; says whether it is done."""
        semantics, executed = world.semantics, world.table.executed
        steps, time, took = plan.steps, plan.stop - self._round_start, plan.took
        lost, whole = semantics.absence, semantics.grid_length - NEARLY_WHOLE_S
        if lost and late and self._began and time > whole:
            steps = float(int(steps * (time - lost) / time))
            time -= lost
            took = steps / world.table.rate.item(row)
            world.table.restart_s[row] += plan.took - took
        world.credit_time(row, took)
        self.last[row] = (plan.stop, time)
        worked = self._worked[row] = self._worked.get(row, 0.0) + time
        if semantics.fruitless and steps <= 0 and time <= 0:
            failed = self._fruitless[row] = self._fruitless.get(row, 0) + 1
            return failed >= semantics.fruitless
        self._fruitless.pop(row, None)
        before = executed.item(row)
        executed[row] += steps
        left = world.true_work.item(row) - executed.item(row)
        if left == 0 or (left < 0 and before < world.true_work.item(row)):
            return True
        if left <= 0 and not semantics.fruitless:
            return True
        limits = self.limits_s
        return limits is not None and worked > int(semantics.overrun * limits[row])

    def _adapt(self, world: Stepped, row: int) -> None:
        assert self.adaptation is not None
        table = world.table
        counts = self.adaptation.adapt(row, table.executed.item(row), world.true_work.item(row))
        if counts is None:
            return
        table.executed[row], world.true_work[row] = counts
        table.saved[row] = counts[0]
        if not np.isnan(table.predicted_work[row]):
            table.predicted_work[row] = counts[1]
        world.look_at_pace(row)
        self.adapted.append(row)
