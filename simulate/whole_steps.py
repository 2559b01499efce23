"""Rounds in which jobs do whole steps, and which end when the last job stops.

What the published simulators count beside is in the semantics: what a round costs a job that was
not in the one before, when a job that takes too long is taken for complete, and when one that gets
nothing done leaves.

All running jobs are planned and credited at once, as columns.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.occupancy import Occupancy
from dlsched.core.semantics import Semantics
from dlsched.core.units import RUNNING, WAITING, UnitTable
from dlsched.core.whole_rounds import NO_ROUNDS, WholeRounds
from simulate.adaptation import Adaptation

__all__ = ["WholeSteps"]

NEARLY_WHOLE_S = 5.0  # a round this much shorter than its length still counts as a whole one


class Plan(NamedTuple):
    """What rows do in a round."""

    rows: Rows  # ascending
    steps: Floats
    took: Floats  # seconds
    stop: Floats

    def of(self, which: Bools) -> Plan:
        """The plan of some of the rows."""
        return Plan(self.rows[which], self.steps[which], self.took[which], self.stop[which])


NOTHING = Plan(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


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

    @property
    def unfinished(self) -> int:
        """How many units have been admitted and not ended."""
        ...

    def complete(self, row: int, now: float, finish: float) -> None:
        """End a unit."""

    def credit_time(self, rows: Rows, seconds: Floats) -> None:
        """Enter time at work."""

    def look_at_pace(self, row: int) -> None:
        """A unit's pace may have changed."""


class WholeSteps:
    """The round in progress, and what is remembered of those before.

    Attributes:
        adaptation: of batch sizes; None when they stay as they are.
        limits_s: seconds of work by row after which a row is complete whatever it has done; None
            when nobody says how long it should take.
        adapted: rows whose batch size has changed at the end of the last round.
        moves_on: somebody did a step in the last round.
    """

    def __init__(self, count: int) -> None:
        """Begin with no round.

        Args:
            count: units in the table.
        """
        self.adaptation: Adaptation | None = None
        self.limits_s: Floats | None = None
        self.adapted: list[int] = []
        self.moves_on = False
        self._plan = NOTHING
        self._ran = NOTHING.rows  # in the last round
        self._past: list[tuple[Floats, Floats]] = []  # rounds since the last decision: stop, took
        self._active_in: list[int] = []  # jobs that were there, by round
        self._first_round, self._last_round = np.full((2, count), -1, np.int64)
        self._worked = np.zeros(count)
        self._fruitless = np.zeros(count, np.int64)  # rounds in a row
        self._round_start = 0.0
        self._began = False  # has any round ended?

    @property
    def rounds(self) -> int:
        """How many rounds have begun."""
        return len(self._active_in)

    @property
    def since_decision(self) -> WholeRounds:
        """What ran in the rounds that have ended since the last decision."""
        if not self._past:
            return NO_ROUNDS
        stops, times = zip(*self._past, strict=True)
        return WholeRounds(self._ran, np.array(stops), np.array(times))

    def enters(self, row: int) -> None:
        """A unit was admitted: it is there from the next round on."""
        self._first_round[row] = self.rounds

    def begin(self, world: Stepped, now: float, length: float) -> float:
        """Plan the round after a decision; see `go_on`."""
        self._past = []
        return self.go_on(world, now, length)

    def go_on(self, world: Stepped, now: float, length: float) -> float:
        """Plan a round in which every running unit does whole steps only; returns its end.

        The round ends when the last of them stops, which may be before `length` is over; when
        nobody can do a step it lasts all of it. A unit that is restarting begins when it is ready.
        """
        table, occupancy = world.table, world.occupancy
        self._active_in.append(world.unfinished)
        if not occupancy.held:
            self.moves_on = False
            return math.inf
        rows = np.fromiter(occupancy.held, np.int64, len(occupancy.held))
        rows.sort()
        rate, begins = table.rate[rows], np.maximum(table.progress_from[rows], now)
        room = np.maximum(length - (begins - now), 0.0)
        left = world.true_work[rows] - table.executed[rows]
        steps = np.minimum(np.floor(rate * room), left)
        works = steps > 0
        self.moves_on = bool(works.any())
        took = np.divide(steps, rate, out=np.zeros(len(rows)), where=works)
        stop = np.where(works, begins + took, now)
        for row, others in occupancy.beside.items():  # they stop together
            place = np.searchsorted(rows, [row, *others])
            stop[place] = stop[place].max()
        self._plan = Plan(rows, steps, took, stop)
        end = float(stop.max())
        return end if end > now else now + length

    def end(self, world: Stepped, now: float) -> list[int]:
        """Credit what was planned; returns the rows that are done, in order.

        GPUs are held until the round's end; what a unit did not use of it counts as overhead.
        """
        table, plan = world.table, self._plan
        self._plan, self.adapted = NOTHING, []
        done: list[int] = []
        if len(plan.rows):
            runs = table.status[plan.rows] == RUNNING
            plan = plan if runs.all() else plan.of(runs)
            complete = self._credit(world, plan)
            progress = table.progress_from
            progress[plan.rows] = np.maximum(progress[plan.rows], now)
            if self.adaptation is not None:
                for row in plan.rows[~complete].tolist():
                    self._adapt(world, row)
            self._round_start, self._began = now, True
            if complete.any():
                stop, rows = plan.stop[complete], plan.rows[complete]
                order = np.lexsort((rows, stop))
                done = rows[order].tolist()
                for row, finish in zip(done, stop[order].tolist(), strict=True):
                    world.complete(row, now, finish)
                self._last_round[done] = self.rounds
        self._ran = plan.rows
        if self.adaptation is not None:
            here = (table.status == RUNNING) | (table.status == WAITING)
            for row in np.flatnonzero(here).tolist():
                self.adaptation.look(row, table.executed.item(row))
        return done

    def mean_active(self, count: int) -> Floats:
        """Mean number of jobs in the rounds of each row's life."""
        area = np.concatenate([[0], np.cumsum(self._active_in)])
        found = np.full(count, np.nan)
        rows = np.flatnonzero((self._first_round >= 0) & (self._first_round < self.rounds))
        first, last = self._first_round[rows], self._last_round[rows]
        end = np.maximum(np.where(last >= 0, last, self.rounds), first + 1)
        found[rows] = (area[end] - area[first]) / (end - first)
        return found

    def _credit(self, world: Stepped, plan: Plan) -> Bools:
        """Enter steps and time; says who is done."""
        semantics, executed = world.semantics, world.table.executed
        time = plan.stop - self._round_start
        if semantics.absence and self._began:
            plan, time = self._without_absence(world, plan, time)
        rows, steps = plan.rows, plan.steps
        world.credit_time(rows, plan.took)
        self._past.append((plan.stop, time))
        self._worked[rows] += time
        before = executed[rows]
        if semantics.fruitless:
            idle = (steps <= 0) & (time <= 0)
            steps = np.where(idle, 0.0, steps)
            in_a_row = self._fruitless[rows] = np.where(idle, self._fruitless[rows] + 1, 0)
        after = executed[rows] = before + steps
        needed = world.true_work[rows]
        if semantics.fruitless:  # whoever was past its end before goes on, until it gets nowhere
            done = (after == needed) | ((after > needed) & (before < needed))
        else:
            done = after >= needed
        if self.limits_s is not None:
            done |= self._worked[rows] > np.trunc(semantics.overrun * self.limits_s[rows])
        if semantics.fruitless:
            done = np.where(idle, in_a_row >= semantics.fruitless, done)
        return np.asarray(done)

    def _without_absence(self, world: Stepped, plan: Plan, time: Floats) -> tuple[Plan, Floats]:
        """Who was not in the round before loses a part of a whole one."""
        semantics, table = world.semantics, world.table
        whole = time > semantics.grid_length - NEARLY_WHOLE_S
        late = np.flatnonzero(whole & ~np.isin(plan.rows, self._ran))
        if len(late):
            rows, steps, took = plan.rows[late], plan.steps.copy(), plan.took.copy()
            time = time.copy()
            steps[late] = np.trunc(steps[late] * (time[late] - semantics.absence) / time[late])
            took[late] = steps[late] / table.rate[rows]
            table.restart_s[rows] += plan.took[late] - took[late]
            time[late] -= semantics.absence
            plan = plan._replace(steps=steps, took=took)
        return plan, time

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
