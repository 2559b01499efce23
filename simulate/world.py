"""The simulated cluster: starts, stops, ends and failures of units, and their clocks.

All changes of a unit's state in a replay go through this file. Clocks are settled when a unit
starts or stops and extrapolated in between, so a quiet hour costs nothing.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dlsched.core.allocation import Allocation, Grant
from dlsched.core.arrays import Floats, Rows
from dlsched.core.diff import Command, Verb, diff
from dlsched.core.occupancy import Occupancy, Placement
from dlsched.core.performance import PerformanceModel
from dlsched.core.semantics import Semantics
from dlsched.core.stage import LaunchPart, PreemptionPart
from dlsched.core.units import COMPLETED, RUNNING, WAITING, UnitTable
from simulate import clocks
from simulate.interference import interfering
from simulate.recorder import Recorder
from simulate.self_paced import SelfPaced
from simulate.whole_steps import WholeSteps

__all__ = ["Costs", "World"]

MANY = 8  # units from which on moving all at once is quicker than one after the other
STALE_ENDS = 256  # outdated entries of the agenda that are kept before it is cleaned


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What interruptions cost.

    Attributes:
        restart_overhead: seconds without progress after each start; None: what the trace says of
            the unit, else the semantics.
        checkpoint_interval: seconds of run time between periodic checkpoints, which bound what a
            failure loses; None: only a suspension saves.
        min_run: a unit is not preempted before it has run so many seconds.
        interference: the part of its pace that a unit loses that spans nodes, on one of which
            another such unit is; where units have a pace of their own.
    """

    restart_overhead: float | None = None
    checkpoint_interval: float | None = None
    min_run: float = 0.0
    interference: float = 0.0


class World:
    """Units on GPUs at a moment.

    Attributes:
        table: all units.
        occupancy: who holds which GPU.
        true_work: seconds of work each unit really needs; policies never see it.
        running, waiting, waiting_gpus: counts, kept up to date.
        finished: rows in order of completion.
        shared_gpu_seconds: GPU-seconds that were held by one more unit than are counted busy.
        launch, preemption: the parts that say what a start and a suspension cost; None: the run's
            restart overhead, and nothing.
        whole_steps: rounds of them, where the semantics have such.
        self_paced: the courses of units whose pace changes by itself; None: it does not.
    """

    def __init__(
        self,
        table: UnitTable,
        occupancy: Occupancy,
        true_work: Floats,
        *,
        performance: PerformanceModel,
        semantics: Semantics,
        costs: Costs,
        recorder: Recorder,
    ) -> None:
        self.table = table
        self.occupancy = occupancy
        self.true_work = true_work
        self.performance = performance
        self.semantics = semantics
        if costs.restart_overhead is None:
            costs = replace(costs, restart_overhead=semantics.restart_overhead)
        self.costs = costs
        self.recorder = recorder
        self.launch: LaunchPart[Any] | None = None
        self.preemption: PreemptionPart[Any] | None = None
        self.running = 0
        self.waiting = 0
        self.waiting_gpus = 0
        self.finished: list[int] = []
        self.whole_steps = WholeSteps(len(table))
        self.self_paced: SelfPaced | None = None
        self._slowed: set[int] = set()  # who loses pace to others on the same nodes
        self._ends: list[tuple[float, int, int]] = []  # (seen at, row, which start)
        self._exact_end: dict[int, float] = {}
        self._stepped = np.zeros(len(table))  # seconds worked (and settled) since the start
        self._ready: dict[
            int, float
        ] = {}  # when a start's overhead ended, of units whose pace changed
        self._pace = [0] * len(table)  # grows with every start and every change of pace
        self._partners: dict[int, tuple[int, ...]] = {}  # as of the last look at who shares
        self._riding: dict[int, float] = {}  # since when they hold GPUs that another is counted for
        self.shared_gpu_seconds = 0.0

    # -- life of a unit ---------------------------------------------------------------------------

    def admit(self, row: int, now: float) -> None:
        """Put a unit in the queue."""
        table = self.table
        table.status[row] = WAITING
        table.admitted_at[row] = table.since[row] = now
        self.waiting += 1
        self.waiting_gpus += int(table.gang[row])
        self.whole_steps.enters(row)

    def apply(self, allocation: Allocation, now: float) -> list[int]:
        """Carry out a decision; the occupancy has its placements already.

        Returns:
            rows that the policy ended, because they reached their target.
        """
        if len(allocation.suspended) + len(allocation.launched) >= MANY and self._alike(allocation):
            self._move_all(allocation.suspended, allocation.launched, now)
            return []
        commands = diff(allocation, self.table)
        if self.semantics.shape_moves == "free":
            commands = [each for each in commands if not self._merely_moves(each, now)]
        for command in commands:
            if command.verb is Verb.STOP:
                self._end(command.row, now, now)
                self.true_work[command.row] = self.table.executed[command.row]
            elif command.before is not None:
                self.stop(command.row, now)
                self._count_interruption(command.verb, command.row)
        for command in commands:
            if command.after is not None:
                self.start(command.row, command.after, now, command.grant, command.before)
        self._see_who_shares(now)
        return [command.row for command in commands if command.verb is Verb.STOP]

    def _alike(self, allocation: Allocation) -> bool:
        """Do all starts and stops of a decision do the same to each unit?"""
        return (
            not allocation.grants
            and (self.launch is None or self.launch.usual)
            and (self.preemption is None or self.preemption.saves_all)
            and self.self_paced is None
            and self.semantics.shape_moves == "restart"
            and not (self._partners or self.occupancy.beside or self._ready)
            and not self.recorder.keeps_courses
        )

    def _move_all(
        self, suspended: dict[int, Placement], launched: dict[int, Placement], now: float
    ) -> None:
        """Carry out a decision that moves many units, all at once."""
        table, gang = self.table, self.table.gang
        leaving = np.fromiter(suspended, np.int64, len(suspended))
        coming = np.fromiter(launched, np.int64, len(launched))
        gpus = {row: placement.gpus for row, placement in launched.items()}
        if len(leaving):
            self._count_interruptions(leaving, gpus)
            self._all_leave(leaving, now)
        if len(coming):
            self._all_begin(coming, launched, np.array(list(gpus.values())), now)
        self.running += len(coming) - len(leaving)
        self.waiting += len(leaving) - len(coming)
        self.waiting_gpus += int(gang[leaving].sum()) - int(gang[coming].sum())
        if not self.semantics.drift:
            for row in coming[table.rate[coming] > 0].tolist():
                self._expect_end(row, now)

    def _count_interruptions(self, leaving: Rows, gpus: dict[int, int]) -> None:
        """As `_count_interruption`, before the units leave."""
        table = self.table
        if self.semantics.moved_counts == "preemption":
            table.preemptions[leaving] += 1
            return
        after = np.array([gpus.get(row, 0) for row in leaving.tolist()])
        table.preemptions[leaving[after == 0]] += 1
        as_many = after == table.gpus_now[leaving]
        table.migrations[leaving[as_many]] += 1
        table.resizes[leaving[(after > 0) & ~as_many]] += 1

    def _all_leave(self, rows: Rows, now: float) -> None:
        """As `stop` for each row."""
        table, drift = self.table, self.semantics.drift
        since, progress_from = table.since[rows], table.progress_from[rows]
        worked = np.maximum(now - progress_from, 0.0)
        if self.semantics.release == "tick":
            left = np.maximum(self.true_work[rows] - table.executed[rows], 0.0)
            rate = table.rate[rows]
            needed = np.divide(left, rate, out=np.full(len(rows), np.inf), where=rate > 0)
            worked = np.minimum(worked, needed)
        if not drift:
            table.restart_s[rows] += np.minimum(now, np.maximum(progress_from, since)) - since
        clocks.leave(table, rows, now, worked, self._stepped[rows])
        self._stepped[rows] = 0.0
        for row in rows.tolist():
            self._exact_end.pop(row, None)
            self.recorder.ended(row, now)

    def _all_begin(
        self, rows: Rows, launched: dict[int, Placement], gpus: Rows, now: float
    ) -> None:
        """As `start` for each row."""
        table, occupancy, rate_of = self.table, self.occupancy, self.performance.rate
        first = np.isnan(table.first_start[rows])
        table.first_start[rows[first]] = now
        overhead = np.full(len(rows), self.costs.restart_overhead or 0.0)
        if self.semantics.overhead == "restarts":
            overhead[first] = 0.0
        rate = [rate_of(row, where, table, occupancy) for row, where in launched.items()]
        clocks.begin(table, rows, now, overhead, np.array(rate), gpus)
        for row, placement in launched.items():
            self._pace[row] += 1
            self.recorder.began(row, placement, now)

    def _merely_moves(self, command: Command, now: float) -> bool:
        """Carry out a move to GPUs that are just the same; says whether it was one."""
        before, after = command.before, command.after
        if before is None or after is None or len(before.nodes) != len(after.nodes):
            return False
        kinds = self.occupancy.type_of
        for old, new in zip(before.nodes, after.nodes, strict=True):
            if kinds[old] != kinds[new]:
                return False
        if [m.bit_count() for m in before.masks] != [m.bit_count() for m in after.masks]:
            return False
        self.recorder.ended(command.row, now)
        self.recorder.began(command.row, after, now)
        return True

    def _count_interruption(self, verb: Verb, row: int) -> None:
        table = self.table
        if verb is Verb.SUSPEND or self.semantics.moved_counts == "preemption":
            table.preemptions[row] += 1
        elif verb is Verb.RESIZE:
            table.resizes[row] += 1
        else:
            table.migrations[row] += 1

    def start(
        self,
        row: int,
        placement: Placement,
        now: float,
        grant: Grant | None = None,
        before: Placement | None = None,
    ) -> None:
        """A waiting unit begins on GPUs that the occupancy already counts as its own.

        Args:
            row: the unit.
            placement: its GPUs.
            now: seconds.
            grant: what it gets besides.
            before: the GPUs that it has just left, if it goes on without waiting.
        """
        table, costs = self.table, self.costs
        first = math.isnan(table.first_start.item(row))
        if first:
            table.first_start[row] = now
        overhead = costs.restart_overhead or 0.0
        if self.launch is not None and before is not None:
            pace = partial(self._pace_before, row, placement, grant)
            overhead = self.launch.adjustment(row, before, placement, table, overhead, pace)
        elif self.launch is not None:
            overhead = self.launch.overhead(row, placement, table, overhead)
        if first and self.semantics.overhead == "restarts":
            overhead = 0.0
        gpus = placement.gpus
        partners = self.occupancy.beside.get(row, ())
        if self.self_paced is not None:
            self.self_paced.begin(row, placement, self.occupancy, grant, now + overhead)
            rate = self.self_paced.rate(row)
        else:
            rate = self.performance.rate(row, placement, table, self.occupancy, grant, partners)
        self._pace[row] += 1
        if partners:
            self._partners[row] = partners
        table.status[row] = RUNNING
        table.starts[row] += 1
        table.since[row] = now
        table.progress_from[row] = now + overhead
        table.rate[row] = rate
        table.gpus_now[row] = gpus
        if gpus > table.largest_scale.item(row):
            table.largest_scale[row] = gpus
        table.saved[row] = table.executed.item(row)
        self.waiting -= 1
        self.waiting_gpus -= table.gang.item(row)
        self.running += 1
        self.recorder.began(row, placement, now)
        if self.recorder.keeps_courses:
            self._note_course(row, now)
        if not self.semantics.drift and rate > 0:
            self._expect_end(row, now)

    def _pace_before(self, row: int, placement: Placement, grant: Grant | None) -> float:
        """How fast a row ran before it changed its GPUs, over how fast it will."""
        if self.self_paced is not None:
            return 1.0  # its new pace is known once it has begun
        partners = self.occupancy.beside.get(row, ())
        after = self.performance.rate(row, placement, self.table, self.occupancy, grant, partners)
        return self.table.rate.item(row) / after if after > 0 else 1.0

    def _expect_end(self, row: int, now: float) -> None:
        """Enter in the agenda when a running unit will be seen to end."""
        table = self.table
        if self.self_paced is not None:
            end = self.self_paced.look(row)
        else:
            left = self.true_work.item(row) - table.executed.item(row)
            end = table.progress_from.item(row) + max(left, 0.0) / table.rate.item(row)
        seen = end
        if self.semantics.release == "tick":
            seen = self.semantics.tick_at_or_after(end)
            seen = seen if seen > now else self.semantics.tick_after(now)
        if seen != end:
            self._exact_end[row] = end
        heapq.heappush(self._ends, (seen, row, self._pace[row]))
        if len(self._ends) > 2 * self.running + STALE_ENDS:
            self._ends = [end for end in self._ends if self._still_stands(end)]
            heapq.heapify(self._ends)

    def _still_stands(self, end: tuple[float, int, int]) -> bool:
        """Is this entry of the agenda about the unit's present start, at its present pace?"""
        _, row, pace = end
        return self._pace[row] == pace and self.table.status.item(row) == RUNNING

    # -- units whose pace changes by itself -------------------------------------------------------

    def look_at_courses(self, now: float) -> None:
        """Bring what is known of running units up to now, for whoever decides."""
        if self.self_paced is not None:
            for row in self.occupancy.held:
                self._follow_course(row, now)
                if self.self_paced.reconsider(row):
                    self.table.rate[row] = self.self_paced.rate(row)
                    self._pace[row] += 1
                    self._expect_end(row, now)
                if self.recorder.keeps_courses:
                    self._note_course(row, now)

    def _note_course(self, row: int, now: float) -> None:
        """Note what a running unit has from now on."""
        batch_size, goodput = math.nan, math.nan
        if self.self_paced is not None:
            batch_size, goodput = self.self_paced.batch_and_goodput(row)
        self.recorder.has(row, now, self.table.gpus_now.item(row), batch_size, goodput)

    def _follow_course(self, row: int, now: float) -> None:
        """Enter a running unit's work until now, and its pace from now on."""
        table, course = self.table, self.self_paced
        assert course is not None
        course.advance(row, now)
        begins = table.progress_from.item(row)
        if now > begins:
            finish = course.finish(row)
            worked = (now if finish is None else max(finish, begins)) - begins
            self._stepped[row] += worked
            self._ready.setdefault(row, begins)
            table.progress_from[row] = now
        table.executed[row] = course.done_so_far(row)
        table.rate[row] = course.rate(row)

    # -- units on the same GPUs -------------------------------------------------------------------

    def _see_who_shares(self, now: float) -> None:
        """Whose partners have changed runs at another pace from now on."""
        if self.costs.interference:
            self._see_who_interferes(now)
        beside = self.occupancy.beside
        if not beside and not self._partners:
            return
        before, self._partners = self._partners, dict(beside)
        for row in sorted({*before, *beside}):
            partners = beside.get(row, ())
            rides = bool(partners) and partners[0] < row  # the first of them is counted
            if row in self._riding and not rides:
                self._count_ride(row, now)
            elif rides and row not in self._riding:
                self._riding[row] = now
            if partners != before.get(row, ()) and self.table.status[row] == RUNNING:
                self._change_pace(row, now)

    def _see_who_interferes(self, now: float) -> None:
        """Whoever spans nodes beside another that does loses some of its pace."""
        course = self.self_paced
        if course is None:
            return
        slowed = interfering(self.occupancy)
        for row in sorted(slowed ^ self._slowed):
            if row in self.occupancy.held:
                self._follow_course(row, now)
                course.slow_down(row, self.costs.interference if row in slowed else 0.0)
                self.table.rate[row] = course.rate(row)
                self._pace[row] += 1
                self._expect_end(row, now)
        self._slowed = slowed

    def _count_ride(self, row: int, now: float) -> None:
        since = self._riding.pop(row)
        self.shared_gpu_seconds += (now - since) * self.table.gpus_now.item(row)

    def _change_pace(self, row: int, now: float) -> None:
        """A running unit goes on where it is, faster or slower."""
        table, occupancy = self.table, self.occupancy
        partners = occupancy.beside.get(row, ())
        rate = self.performance.rate(row, occupancy.held[row], table, occupancy, None, partners)
        if rate == table.rate[row]:
            return
        begins = table.progress_from.item(row)
        if now > begins:
            table.executed[row] += (now - begins) * table.rate[row]
            self._stepped[row] += now - begins
            self._ready.setdefault(row, begins)
            table.progress_from[row] = now
        table.rate[row] = rate
        self._pace[row] += 1
        self._exact_end.pop(row, None)
        if not self.semantics.drift and rate > 0:
            self._expect_end(row, now)

    def go_on(self, origin: World, running: list[int]) -> None:
        """Continue another world's runs, on copies of its table and occupancy."""
        self.running, self.waiting = origin.running, origin.waiting
        self.waiting_gpus = origin.waiting_gpus
        self.finished = list(origin.finished)
        for row in running:
            if self.table.rate[row] > 0:
                self._expect_end(row, float(self.table.since[row]))

    def _settle(self, row: int, now: float) -> None:
        """Bring a running unit's clocks up to now and take it off its GPUs."""
        table = self.table
        if self.self_paced is not None:
            self._follow_course(row, now)
        # `item` gives plain numbers, with which arithmetic is several times cheaper
        since, progress_from = table.since.item(row), table.progress_from.item(row)
        rate, gpus = table.rate.item(row), table.gpus_now.item(row)
        held = now - since
        worked = max(now - progress_from, 0.0)
        if self.semantics.release == "tick" and rate > 0 and self.self_paced is None:
            # its GPUs may be kept for a while after its work is done
            left = max(self.true_work.item(row) - table.executed.item(row), 0.0)
            worked = min(worked, left / rate)
        table.held_s[row] += held
        ready = self._ready.pop(row, progress_from)
        if ready > since and not self.semantics.drift:
            table.restart_s[row] += min(held, ready - since)
        if row in self._riding:
            self._count_ride(row, now)
        table.attained[row] += held * gpus
        overhead = held - worked - self._stepped.item(row)
        self._stepped[row] = 0.0
        if overhead:
            table.overhead_s[row] += overhead
        if self.self_paced is None:
            table.executed[row] += worked * rate
        table.since[row] = now
        table.gpus_now[row] = 0
        self.running -= 1
        self.recorder.ended(row, now)
        if self.recorder.keeps_courses:
            nothing = math.nan if self.self_paced is None else 0.0
            self.recorder.has(row, now, 0, nothing, nothing)

    def stop(self, row: int, now: float) -> None:
        """A running unit leaves its GPUs; how much of its work it saves, preemption says."""
        self._settle(row, now)
        if self.preemption is not None:
            before, done = float(self.table.saved[row]), float(self.table.executed[row])
            interval = self.costs.checkpoint_interval
            self._fall_back(row, self.preemption.saved(before, done, interval))
        self._back_to_queue(row)

    def _fall_back(self, row: int, saved: float) -> None:
        """Lose the work done since a checkpoint."""
        table = self.table
        if self.self_paced is not None:
            self.self_paced.fall_back(row, saved)
        lost = float(table.executed[row]) - saved
        if lost > 0:
            table.lost_s[row] += lost / float(table.rate[row])
            table.executed[row] = saved
        table.saved[row] = table.executed[row]

    def _back_to_queue(self, row: int) -> None:
        self.table.status[row] = WAITING
        self._exact_end.pop(row, None)
        self.waiting += 1
        self.waiting_gpus += int(self.table.gang[row])

    def evict(self, row: int, now: float) -> None:
        """A node leaves in good order: the unit is suspended with all its work."""
        self.occupancy.release(row)
        self.stop(row, now)
        self.table.preemptions[row] += 1
        self._see_who_shares(now)

    def crash(self, row: int, now: float) -> None:
        """A node fails under a unit: it goes on later from its last checkpoint."""
        table = self.table
        started, progress_from = float(table.executed[row]), float(table.progress_from[row])
        self.occupancy.release(row)
        self._settle(row, now)
        saved = float(table.saved[row])
        interval = self.costs.checkpoint_interval
        if interval is not None:
            whole = math.floor(max(now - progress_from, 0.0) / interval) * interval
            saved = min(started + whole * float(table.rate[row]), float(table.executed[row]))
        self._fall_back(row, saved)
        self._back_to_queue(row)
        self._see_who_shares(now)

    def next_end(self) -> float:
        """When the next unit is seen to end; inf when none will."""
        ends = self._ends
        while ends:
            if self._still_stands(ends[0]):
                return ends[0][0]
            heapq.heappop(ends)
        return math.inf

    def complete_until(self, now: float) -> list[int]:
        """End every unit that is seen to end by now, in order; returns their rows."""
        done: list[int] = []
        while self.next_end() <= now:
            seen, row, _ = heapq.heappop(self._ends)
            exact = self._exact_end.pop(row, seen)
            if self.self_paced is not None:
                self._follow_course(row, seen)
                finish = self.self_paced.finish(row)
                if finish is None:  # its end was not known yet, and is later
                    self._expect_end(row, seen)
                    continue
                exact = finish
            self.complete(row, seen, exact if self.semantics.finish == "exact" else seen)
            done.append(row)
        return done

    def complete(self, row: int, now: float, finish: float) -> None:
        """A unit has done all its work: it gives its GPUs back now and is recorded as `finish`."""
        self._end(row, now, finish)
        self._see_who_shares(now)
        # the last stretch ended when the work did, whatever rounding says
        self.table.executed[row] = self.true_work[row]

    def _end(self, row: int, now: float, finish: float) -> None:
        """A unit ends well, whether or not it has done all the work that was foreseen."""
        self.occupancy.release(row)
        self._settle(row, now)
        self._exact_end.pop(row, None)
        self.table.status[row] = COMPLETED
        self.table.finish[row] = finish
        self.finished.append(row)

    # -- rounds that drift (whole steps) ----------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """How many units have been admitted and not ended."""
        return self.running + self.waiting

    def begin_steps(self, now: float, length: float, *, decided: bool = True) -> float:
        """Plan a round of whole steps, after a decision or without one; returns its end."""
        begin = self.whole_steps.begin if decided else self.whole_steps.go_on
        return begin(self, now, length)

    def end_steps(self, now: float) -> list[int]:
        """Credit the steps planned by `begin_steps`; returns the rows that are done, in order."""
        return self.whole_steps.end(self, now)

    def credit_time(self, rows: Rows, seconds: Floats) -> None:
        """Running units have worked so long; their steps were credited already."""
        self._stepped[rows] += seconds

    def look_at_pace(self, row: int) -> None:
        """A unit on GPUs became another kind of job, whose speed is another."""
        partners, held = self.occupancy.beside.get(row, ()), self.occupancy.held[row]
        self.table.rate[row] = self.performance.rate(
            row, held, self.table, self.occupancy, None, partners
        )
