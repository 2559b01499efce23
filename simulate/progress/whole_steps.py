"""Rounds in which jobs do whole steps, and which end when the last job stops.

What the published simulators count beside is in the semantics: what a round costs a job that was
not in the one before, when a job that takes too long is taken for complete, and when one that gets
nothing done leaves.

All running jobs are planned and credited at once, as columns.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.service_clock import Segment, SegmentArrays
from dlsched.core.units import RUNNING, WAITING
from dlsched.core.whole_rounds import NO_ROUNDS, WholeRounds
from simulate.profiles.adaptation import Adaptation
from simulate.progress.strategy import COUNTED_ELSEWHERE, Complete, Progress, Setting

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


class WholeSteps(Progress):
    """The round in progress, and what is remembered of those before.

    Attributes:
        adaptation: of batch sizes; None when they stay as they are.
        limits_s: seconds of work by row after which a row is complete whatever it has done; None
            when it is not known how long each should take.
        adapted: rows whose batch size has changed at the end of the last round.
        moves_on: some unit does a step in the present round.
        round_end: when the round in progress ends; inf where none is.
    """

    in_rounds: ClassVar[bool] = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        count = len(setting.table)
        self.round_end = math.inf
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

    def admitted(self, row: int) -> None:
        """A unit has entered the queue: it is there from the next round on."""
        self._first_round[row] = self.rounds

    def expect_end(self, row: int, now: float) -> None:
        """Ends are seen where a round ends."""

    def stop(self, row: int, now: float) -> Segment:
        """A unit leaves its GPUs; its steps are entered already, and so is what its start cost."""
        return super().stop(row, now)._replace(ready=COUNTED_ELSEWHERE)

    def stop_all(self, rows: Rows, now: float | Floats) -> SegmentArrays:
        """As `stop`, for many units."""
        return super().stop_all(rows, now)._replace(ready=None)

    def next_end(self) -> float:
        """When the present round ends."""
        return self.round_end

    def begin_round(self, now: float, unfinished: int, *, decided: bool) -> None:
        """Plan a round in which every running unit does whole steps only.

        The round ends when the last of them stops, which may be before its length is over; when
        none can do a step it lasts all of it. A unit that is restarting begins when it is ready.

        Args:
            now: seconds.
            unfinished: how many units have been admitted and not ended.
            decided: was there a decision right before?
        """
        if decided:
            self._past = []
        self.round_end = self._plan_round(now, unfinished)

    def _plan_round(self, now: float, unfinished: int) -> float:
        table, occupancy = self.setting.table, self.setting.occupancy
        length = self.setting.semantics.grid_length
        self._active_in.append(unfinished)
        if not occupancy.held:
            self.moves_on = False
            return math.inf
        rows = np.fromiter(occupancy.held, np.int64, len(occupancy.held))
        rows.sort()
        rate, begins = table.rate[rows], np.maximum(table.progress_from[rows], now)
        room = np.maximum(length - (begins - now), 0.0)
        left = self.setting.true_work[rows] - table.executed[rows]
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

    def complete_until(self, now: float, complete: Complete) -> list[int]:
        """Credit what was planned, where the round ends; returns the rows that are done, in order.

        GPUs are held until the round's end; what a unit did not use of it counts as overhead.
        """
        self.adapted = []
        if now < self.round_end:
            return []
        table, plan, self._plan = self.setting.table, self._plan, NOTHING
        done: list[int] = []
        if len(plan.rows):
            runs = table.status[plan.rows] == RUNNING
            plan = plan if runs.all() else plan.of(runs)
            over = self._credit(plan)
            progress = table.progress_from
            progress[plan.rows] = np.maximum(progress[plan.rows], now)
            if self.adaptation is not None:
                for row in plan.rows[~over].tolist():
                    self._adapt(row)
            self._round_start, self._began = now, True
            if over.any():
                stop, rows = plan.stop[over], plan.rows[over]
                order = np.lexsort((rows, stop))
                done = rows[order].tolist()
                for row, finish in zip(done, stop[order].tolist(), strict=True):
                    complete(row, now, finish)
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

    def _credit(self, plan: Plan) -> Bools:
        """Enter steps and time; returns which rows are done."""
        semantics, executed = self.setting.semantics, self.setting.table.executed
        time = plan.stop - self._round_start
        if semantics.absence and self._began:
            plan, time = self._without_absence(plan, time)
        rows, steps = plan.rows, plan.steps
        self.entered[rows] += plan.took
        self._past.append((plan.stop, time))
        self._worked[rows] += time
        before = executed[rows]
        if semantics.fruitless:
            idle = (steps <= 0) & (time <= 0)
            steps = np.where(idle, 0.0, steps)
            in_a_row = self._fruitless[rows] = np.where(idle, self._fruitless[rows] + 1, 0)
        after = executed[rows] = before + steps
        needed = self.setting.true_work[rows]
        if semantics.fruitless:  # a row that was past its end before goes on, until it gets nowhere
            done = (after == needed) | ((after > needed) & (before < needed))
        else:
            done = after >= needed
        if self.limits_s is not None:
            done |= self._worked[rows] > np.trunc(semantics.overrun * self.limits_s[rows])
        if semantics.fruitless:
            done = np.where(idle, in_a_row >= semantics.fruitless, done)
        return np.asarray(done)

    def _without_absence(self, plan: Plan, time: Floats) -> tuple[Plan, Floats]:
        """A row that was not in the round before loses a part of a whole one."""
        semantics, table = self.setting.semantics, self.setting.table
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

    def _adapt(self, row: int) -> None:
        assert self.adaptation is not None
        table, true_work = self.setting.table, self.setting.true_work
        counts = self.adaptation.adapt(row, table.executed.item(row), true_work.item(row))
        if counts is None:
            return
        table.executed[row], true_work[row] = counts
        table.saved[row] = counts[0]
        if not np.isnan(table.predicted_work[row]):
            table.predicted_work[row] = counts[1]
        table.rate[row] = self.setting.rate(row, self.setting.occupancy.held[row])
        self.adapted.append(row)
