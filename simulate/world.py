"""The simulated cluster: starts, stops, ends and failures of units.

All changes of a unit's state in a replay go through this file. Clocks are core's, and how a unit
gets on in between is its `Progress`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dlsched.composition.settings import Costs
from dlsched.core.allocation import Allocation, Grant
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.errors import plural
from dlsched.core.round.diff import Command, Verb, diff
from dlsched.core.semantics import Semantics
from dlsched.core.service_clock import ServiceClock
from dlsched.core.speed.truth import PerformanceModel
from dlsched.core.stage import LaunchPart, PreemptionPart
from dlsched.core.units import COMPLETED, RUNNING, WAITING, UnitTable
from simulate.progress.every_change import EveryChange
from simulate.progress.lazy import EndedByPolicy, LazyProgress
from simulate.progress.stepped import SteppedProgress
from simulate.progress.strategy import Progress, Setting
from simulate.progress.whole_steps import WholeSteps
from simulate.results.recorder import Recorder
from simulate.shared_gpus import SharedGpus


def _progress_under(semantics: Semantics) -> type[Progress]:
    """How units get on whose speed is known, under a profile."""
    if semantics.drift:
        return WholeSteps
    if semantics.ends == "policy":
        return EndedByPolicy
    if semantics.overhead == "every-change":
        return EveryChange
    return LazyProgress if semantics.step is None else SteppedProgress


MANY = 8  # units from which on moving all at once is quicker than one after the other


Begun = tuple[int, float, float, float]  # GPUs, and when a unit started and was ready, work/s


class World:
    """Units on GPUs at a moment.

    Attributes:
        table: all units.
        occupancy: the GPUs that each unit holds.
        true_work: seconds of work each unit really needs; policies never see it.
        progress: how running units get on.
        shared: the units that share GPUs.
        running: how many units hold GPUs.
        waiting: the admitted units that hold none, with the GPUs that each needs.
        waiting_gpus: how many those need together.
        finished: rows in order of completion.
        launch, preemption: the parts that say what a start and a suspension cost; None: the run's
            restart overhead, and nothing.
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
        progress: Callable[[Setting], Progress] | None = None,
    ) -> None:
        """Begin with a cluster on which nothing runs that the table does not say.

        Args:
            table: all units.
            occupancy: the GPUs that each unit holds.
            true_work: seconds of work each unit really needs.
            performance: how fast units really run.
            semantics: the profile.
            costs: of interruptions.
            recorder: takes notes.
            progress: makes the way in which units get on; None: that of the semantics.
        """
        self.table = table
        self.clock = ServiceClock(table, table.usage)
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
        self.waiting: dict[int, int] = {}
        self.waiting_gpus = 0
        self.finished: list[int] = []
        setting = Setting(
            table=table,
            occupancy=occupancy,
            true_work=true_work,
            performance=performance,
            semantics=semantics,
        )
        if progress is None:
            progress = _progress_under(semantics)
        self.progress = progress(setting)
        self.shared = SharedGpus(self.progress)
        self.progress.before_limit = self.shared.change_limit

    @property
    def unfinished(self) -> int:
        """How many units have been admitted and not ended."""
        return self.running + len(self.waiting)

    def unfinished_count(self) -> int:
        """How many units have not ended, those that are still to come included."""
        return int((self.table.status < COMPLETED).sum())

    def says_unfinished(self) -> str:
        """Why a run that stops here stops; "" where every unit has ended."""
        waiting = self.unfinished_count()
        return f"{plural(waiting, 'job')} can never run" if waiting else ""

    # -- life of a unit ---------------------------------------------------------------------------

    def admit(self, row: int) -> None:
        """A unit was admitted."""
        self.join_queue(row)
        self.progress.admitted(row)

    def join_queue(self, row: int) -> None:
        """A unit waits from now on."""
        self.waiting[row] = gang = self.table.gang.item(row)
        self.waiting_gpus += gang

    def leave_queue(self, row: int) -> None:
        """A unit waits no more."""
        self.waiting_gpus -= self.waiting.pop(row)

    def set_queue(self, waiting: dict[int, int], gpus: int) -> None:
        """These units wait now, with the GPUs that each needs; together they need so many."""
        self.waiting, self.waiting_gpus = waiting, gpus

    def apply(self, allocation: Allocation, now: float) -> list[int]:
        """Carry out a decision; the occupancy has its placements already.

        Returns:
            rows that the policy ended, because they reached their target.
        """
        for row in allocation.host_shares:
            if row not in allocation.launched:
                self.progress.change_speed(row, now)
        if len(allocation.suspended) + len(allocation.launched) >= MANY and self._alike(allocation):
            self._move_all(allocation.suspended, allocation.launched, now)
            return []
        if not (allocation.suspended or allocation.grants):
            for row, placement in allocation.launched.items():
                self.start(row, placement, now)
            self._meet(now)
            return []
        commands = diff(allocation, self.table)
        moves: list[tuple[int, Placement]] = []
        if self.semantics.shape_moves == "free":
            moves = [(e.row, e.after) for e in commands if e.after and self._merely_moves(e, now)]
            moved = {row for row, _ in moves}
            commands = [each for each in commands if each.row not in moved]
        for command in commands:
            if command.verb is Verb.STOP:
                self._end(command.row, now, now)
                self.true_work[command.row] = self.table.executed[command.row]
            elif command.before is not None:
                self.stop(command.row, now)
                self._count_interruption(command.verb, command.row)
        for row, placement in moves:
            self.shared.goes_on(row, placement, now)
        for command in commands:
            if command.after is not None:
                self.start(command.row, command.after, now, command.grant, command.before)
        self._meet(now)
        return [command.row for command in commands if command.verb is Verb.STOP]

    def _alike(self, allocation: Allocation) -> bool:
        """Do all starts and stops of a decision do the same to each unit?"""
        return (
            not allocation.grants
            and (self.launch is None or self.launch.usual)
            and (self.preemption is None or self.preemption.saves_all)
            and self.progress.is_plain
            and self.semantics.shape_moves == "restart"
            and not (self.shared.are_there or self.table.says_shares)
            and not self.recorder.keeps_trajectories
        )

    def _move_all(
        self, suspended: dict[int, Placement], launched: dict[int, Placement], now: float
    ) -> None:
        """Carry out a decision that moves many units, all at once."""
        table = self.table
        leaving = np.fromiter(suspended, np.int64, len(suspended))
        coming = np.fromiter(launched, np.int64, len(launched))
        gpus = np.array([placement.gpus for placement in launched.values()], np.int64)
        if len(leaving):
            after = np.zeros(len(table), np.int64)
            after[coming] = gpus
            self._count_interruptions(leaving, after[leaving])
            self._all_leave(leaving, now)
        if len(coming):
            self._all_begin(coming, launched, gpus, now)
        self.running += len(coming) - len(leaving)
        for row in suspended:
            if row not in launched:
                self.join_queue(row)
        for row in launched:
            if row not in suspended:
                self.leave_queue(row)
        self.progress.expect_ends(coming[table.rate[coming] > 0], now)

    def _count_interruptions(self, leaving: Rows, after: Ints) -> None:
        """As `_count_interruption`, before the units leave; they get so many GPUs again."""
        table = self.table
        if self.semantics.moved_counts == "preemption":
            table.preemptions[leaving] += 1
            return
        table.preemptions[leaving[after == 0]] += 1
        as_many = after == table.gpus_now[leaving]
        table.migrations[leaving[as_many]] += 1
        table.resizes[leaving[(after > 0) & ~as_many]] += 1

    def _all_leave(self, rows: Rows, now: float) -> None:
        """As `stop` for each row."""
        table = self.table
        self.clock.leave_all(rows, now, self.progress.stop_all(rows, now))
        table.saved[rows] = table.executed[rows]
        table.gpu_limit[rows] = 1.0
        table.status[rows] = WAITING
        if self.recorder.keeps_segments:
            for row in rows.tolist():
                self.recorder.ended(row, now)

    def _all_begin(
        self, rows: Rows, launched: dict[int, Placement], gpus: Rows, now: float
    ) -> None:
        """As `start` for each row."""
        ready = now + np.full(len(rows), self.costs.restart_overhead or 0.0)
        if self.semantics.overhead == "restarts":
            ready[np.isnan(self.table.first_start[rows])] = now
        self._write_begun(rows, now, gpus, ready, self.progress.begin_all(launched))
        if self.recorder.keeps_segments:
            for row, placement in launched.items():
                self.recorder.began(row, placement, now)

    def _write_begun(
        self, rows: Rows, now: float | Floats, gpus: Ints, ready: Floats, rates: Floats
    ) -> None:
        table = self.table
        table.rate[rows] = rates
        self.clock.begin_all(rows, now, gpus, ready)
        table.saved[rows] = table.executed[rows]
        table.status[rows] = RUNNING

    def overhead_of(self, row: int) -> float:
        """Seconds without progress after a start of a row, where every start costs the same."""
        if self.semantics.overhead == "restarts" and math.isnan(self.table.first_start.item(row)):
            return 0.0
        return self.costs.restart_overhead or 0.0

    def write_arrived(self, rows: Rows, times: Floats) -> None:
        """Enter in the rows of units when they were admitted."""
        table = self.table
        table.admitted_at[rows] = table.since[rows] = times
        table.status[rows] = WAITING

    def write_begun(self, begun: dict[int, Begun]) -> None:
        """Enter in the rows of units that they have started."""
        if begun:
            gpus, times, ready, rates = np.array(list(begun.values())).T
            self._write_begun(np.array(list(begun)), times, gpus.astype(np.int64), ready, rates)
            self.running += len(begun)

    def write_done(self, done: dict[int, float]) -> None:
        """Enter in the rows of units that they have ended."""
        if done:
            table, rows = self.table, np.fromiter(done, np.int64, len(done))
            times = np.array(list(done.values()))
            self.clock.leave_all(rows, times, self.progress.stop_all(rows, times))
            table.executed[rows] = self.true_work[rows]
            table.status[rows] = COMPLETED
            table.finish[rows] = times
            self.running -= len(done)
            self.finished += done

    def _merely_moves(self, command: Command, now: float) -> bool:
        """Begin a move to GPUs that are just the same; says whether it is one."""
        before, after = command.before, command.after
        if before is None or after is None or len(before.nodes) != len(after.nodes):
            return False
        kinds = self.occupancy.type_of
        for old, new in zip(before.nodes, after.nodes, strict=True):
            if kinds[old] != kinds[new]:
                return False
        if [m.bit_count() for m in before.masks] != [m.bit_count() for m in after.masks]:
            return False
        self.shared.leaves(command.row, now)
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
        table = self.table
        first = math.isnan(table.first_start.item(row))
        overhead = self.costs.restart_overhead or 0.0
        if self.launch is not None and before is not None:
            slowdown = partial(self.progress.slowdown, row, placement, grant)
            overhead = self.launch.adjustment(row, before, placement, table, overhead, slowdown)
        elif self.launch is not None:
            overhead = self.launch.overhead(row, placement, table, overhead)
        if first and self.semantics.overhead == "restarts":
            overhead = 0.0
        if grant is not None:
            overhead = overhead if grant.restart_s is None else grant.restart_s
            overhead = (0.0 if grant.free_start else overhead) - grant.head_start
            if grant.head_start and self.semantics.release != "tick":  # there an end is seen later
                left = self.true_work.item(row) - table.executed.item(row)
                overhead = max(overhead, -left / self.progress.setting.rate(row, placement))
        table.gpu_limit[row] = 1.0 if grant is None else grant.gpu_limit
        table.rate[row] = rate = self.progress.begin(row, placement, grant, now + overhead)
        self.shared.begins(row, placement, now)
        table.status[row] = RUNNING
        self.clock.begin(row, now, placement.gpus, ready=now + overhead)
        self.clock.checkpoint(row, table.executed.item(row))
        self.leave_queue(row)
        self.running += 1
        self.recorder.began(row, placement, now)
        if self.recorder.keeps_trajectories:
            self._note_trajectory(row, now)
        if rate > 0:
            self.progress.expect_end(row, now)

    def limit(self, limits: Mapping[int, float], now: float) -> None:
        """Let running units use their GPUs for such parts of the time from now on.

        A limit holds until it is changed or its unit leaves the GPUs.
        """
        self.progress.limit(limits, now)

    def observe(self, now: float) -> None:
        """A decision is near: bring what is known of running units up to now."""
        if self.progress.changes_by_itself:
            for row in self.occupancy.held:
                self.progress.observe(row, now)
                if self.recorder.keeps_trajectories:
                    self._note_trajectory(row, now)

    def _note_trajectory(self, row: int, now: float) -> None:
        """Note what a running unit has from now on."""
        batch_size, goodput = self.progress.batch_and_goodput(row)
        self.recorder.has(row, now, self.table.gpus_now.item(row), batch_size, goodput)

    def _meet(self, now: float) -> None:
        """Units have come or gone: see how fast the others run beside those that are there now."""
        self.progress.meet(now)
        self.shared.look(now)

    def begin_with(self, running: int, waiting: Iterable[int]) -> None:
        """So many units hold GPUs already, and these wait."""
        self.running = running
        for row in waiting:
            self.join_queue(row)

    def go_on(self, origin: World, running: list[int]) -> None:
        """Continue another world's runs, on copies of its table and occupancy."""
        self.begin_with(origin.running, origin.waiting)
        self.finished = list(origin.finished)
        for row in running:
            if self.table.rate[row] > 0:
                self.progress.expect_end(row, float(self.table.since[row]))

    def _leave(self, row: int, now: float) -> None:
        """A running unit leaves its GPUs."""
        segment = self.progress.stop(row, now)
        self.shared.leaves(row, now)
        self.table.gpu_limit[row] = 1.0
        self.clock.leave(row, now, segment)
        self.running -= 1
        self.recorder.ended(row, now)
        if self.recorder.keeps_trajectories:
            nothing = 0.0 if self.progress.changes_by_itself else math.nan
            self.recorder.has(row, now, 0, nothing, nothing)

    def stop(self, row: int, now: float) -> None:
        """A running unit leaves its GPUs; how much of its work it saves, preemption says."""
        self._leave(row, now)
        if self.preemption is not None:
            before, done = float(self.table.saved[row]), float(self.table.executed[row])
            interval = self.costs.checkpoint_interval
            again = self.preemption.redone(self.table.gang.item(row))
            self._fall_back(row, self.preemption.saved(before, done, interval) - again)
        self._back_to_queue(row)

    def _fall_back(self, row: int, saved: float) -> None:
        """Lose the work done since a checkpoint."""
        table = self.table
        self.progress.fall_back(row, saved)
        self.clock.checkpoint(row, min(saved, table.executed.item(row)))
        self.clock.fall_back(row, table.rate.item(row))

    def _back_to_queue(self, row: int) -> None:
        self.table.status[row] = WAITING
        self.join_queue(row)

    def evict(self, row: int, now: float) -> None:
        """A node leaves in good order: the unit is suspended with all its work."""
        self.occupancy.release(row)
        self.stop(row, now)
        self.table.preemptions[row] += 1
        self._meet(now)

    def crash(self, row: int, now: float) -> None:
        """A node fails under a unit: it goes on later from its last checkpoint."""
        table = self.table
        started, progress_from = float(table.executed[row]), float(table.progress_from[row])
        self.occupancy.release(row)
        self._leave(row, now)
        saved = float(table.saved[row])
        interval = self.costs.checkpoint_interval
        if interval is not None:
            whole = math.floor(max(now - progress_from, 0.0) / interval) * interval
            saved = min(started + whole * float(table.rate[row]), float(table.executed[row]))
        self._fall_back(row, saved)
        self._back_to_queue(row)
        self._meet(now)

    def complete_until(self, now: float) -> list[int]:
        """End every unit that is seen to end by now, in order; returns their rows."""
        return self.progress.complete_until(now, self.complete)

    def complete(self, row: int, now: float, finish: float) -> None:
        """A unit has done all its work: it gives its GPUs back now and is recorded as `finish`."""
        self._end(row, now, finish)
        self._meet(now)
        # the last stretch ended when the work did, whatever rounding says
        self.table.executed[row] = self.true_work[row]

    def _end(self, row: int, now: float, finish: float) -> None:
        """A unit ends well, whether or not it has done all the work that was foreseen."""
        if row in self.occupancy.held:
            self.occupancy.release(row)
        if self.table.status[row] == RUNNING:
            self._leave(row, now)
        else:
            self.leave_queue(row)
        self.table.status[row] = COMPLETED
        self.table.finish[row] = finish
        self.finished.append(row)
