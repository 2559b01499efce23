"""What happens between two rounds: units arrive, end, and get GPUs that are idle.

Most of a replay is that, and a policy has no more to say in it than an order. So it is followed
here from moment to moment with nothing but the agenda and the GPUs; what the units' rows say of it
is written as columns when the next round comes. The engine's own phases give the same results,
equal to the bit, for more work: a test holds the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

import numpy as np

from dlsched.core.context import Change
from dlsched.core.round.cycle import Cycle
from dlsched.core.round.filling import FillQueue, can_fill_by_count
from dlsched.core.scheduling import QuietRounds
from simulate.arrivals import Arrivals
from simulate.progress.lazy import LazyProgress
from simulate.world import Begun, World

LONGEST = 4096  # arrivals of a stretch, so that the notes taken of it stay few
FEW = 128  # waiting units up to which looking at each is quicker than ranking them as columns


@dataclass(slots=True)
class Stretch:
    """What happened in one stretch between rounds; times are in seconds.

    Attributes:
        end: its last moment; -inf where nothing happened.
        decisions: how many decisions were made.
        is_undecided: there is a decision to be made at its last moment.
        is_settled: its last moment was a round, after which nothing changes by itself until `wake`.
        wake: when the policy wants a round although nothing happens.
        begun: the units that started, in order.
        done: the units that ended, in order, and when.
        outputs: output columns of each unit that started, with their values.
    """

    end: float = -math.inf
    decisions: int = 0
    is_undecided: bool = False
    is_settled: bool = False
    wake: float = math.inf
    begun: dict[int, Begun] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=dict)
    outputs: Mapping[str, float] = field(default_factory=dict)


class BetweenRounds:
    """The stretches between the rounds of one replay."""

    def __init__(
        self, world: World, progress: LazyProgress, cycle: Cycle, coming: Arrivals
    ) -> None:
        self._world, self._progress = world, progress
        self._cycle, self._coming = cycle, coming
        self._work, self._executed = world.true_work.data, world.table.executed.data
        self._predicted = world.table.predicted_work.data
        self._overhead = world.costs.restart_overhead or 0.0

    @classmethod
    def of(cls, world: World, cycle: Cycle, coming: Arrivals) -> BetweenRounds | None:
        """Those of a replay; None where more happens between its rounds, or more is recorded."""
        semantics, recorder, progress = world.semantics, world.recorder, world.progress
        if type(progress) is not LazyProgress or semantics.grid is None:
            return None
        if world.table.parents or world.table.array_limits or world.table.gpu_limits:
            return None
        if recorder.keeps_timeline or recorder.keeps_segments or recorder.keeps_trajectories:
            return None
        exact = semantics.release == semantics.finish == "exact"
        if not exact or semantics.arrivals != "instant" or semantics.between != "fill":
            return None
        return cls(world, progress, cycle, coming)

    def follow(self, tick: float, until: float) -> Stretch | None:
        """Go on from the present up to the next round that decides something.

        Args:
            tick: when the next round is, as long as nothing happens; inf where none is needed.
            until: a moment that is not reached.

        Returns:
            what happened; None where it takes the engine's phases.
        """
        world, cycle, coming = self._world, self._cycle, self._coming
        until = min(until, coming.last_time)  # from then on it matters whether units move
        upcoming = min(coming.next_time, self._progress.next_end())
        if cycle.parts.rest:
            quiet, is_open = None, upcoming <= tick
        else:
            upcoming, is_open = min(upcoming, tick), self._has_room(world.waiting_gpus)
        if upcoming >= until or not is_open or len(world.waiting) > FEW or not self._is_plain():
            return None
        if not cycle.parts.rest:
            quiet = cycle.parts.scheduling.quiet_rounds(cycle.ctx, cycle.admitted)
            if quiet is None:
                return None
        queue = FillQueue(cycle.parts, cycle.ctx, cycle.admitted, world.waiting)
        first = coming.place
        stretch = Stretch(outputs={} if quiet is None else quiet.outputs)
        self._run(stretch, queue, quiet, tick, until)
        came = slice(first, coming.place)
        world.write_arrived(np.asarray(coming.rows[came]), np.asarray(coming.times[came]))
        world.write_begun(stretch.begun)
        world.write_done(stretch.done)
        world.set_queue({row: gang for _, _, row, gang in queue.entries}, queue.gpus)
        cycle.leave(list(stretch.done))
        return stretch

    def _is_plain(self) -> bool:
        """Do no part and no unit ask for more than counting?"""
        world, parts = self._world, self._cycle.parts
        return (
            parts.estimator.knows
            and parts.admission.admits_all
            and not (self._cycle.has_queue or self._cycle.board.metrics)
            and (world.launch is None or world.launch.usual)
            and not world.shared.are_there
            and self._progress.is_plain
            and can_fill_by_count(parts, self._cycle.ctx)
        )

    def _has_room(self, gpus: int) -> bool:
        """Would units that need so many GPUs all start in a round, and no running one matter?"""
        return gpus <= self._world.occupancy.free_total and self._world.costs.min_run <= 0

    def _run(
        self,
        stretch: Stretch,
        queue: FillQueue,
        quiet: QuietRounds | None,
        tick: float,
        until: float,
    ) -> None:
        """Follow the moments one by one; of the units' rows nothing is written but predictions.

        Args:
            stretch: takes down what happens.
            queue: the units that wait.
            quiet: what the policy does in rounds in which no unit waits on; None: nothing.
            tick: when the next round is.
            until: a moment that is not reached.
        """
        coming, progress, semantics = self._coming, self._progress, self._world.semantics
        occupancy, times, place = self._world.occupancy, coming.times, coming.place
        known, grid_tick, end = None, -math.inf, progress.next_end()
        last = place + LONGEST
        while True:
            now = times[place] if times[place] < end else end
            if quiet is not None and tick < now:
                now = tick
            if now >= until or now > tick or place >= last:
                break
            if now > grid_tick:
                grid_tick = semantics.tick_at_or_after(now)
            stretch.end = now
            while end <= now:
                row = progress.pop_end()
                occupancy.release(row)
                stretch.done[row] = now
                end = progress.next_end()
            while times[place] <= now:
                self._arrive(queue, place)
                place += 1
            in_round = stretch.is_settled = now == grid_tick
            if queue.entries and not self._is_a_fill(queue, quiet, in_round=in_round):
                stretch.is_undecided = True
                break
            if quiet is not None and in_round:
                quiet.decide(now, [row for _, _, row, _ in queue.entries])
                stretch.decisions += not queue.entries
            if queue.entries and (in_round or occupancy.free_total):
                end = min(end, self._fill(stretch, queue, quiet))
                known = (len(stretch.done), place)
            elif in_round:
                known = (len(stretch.done), place)
            if quiet is not None:
                tick = self._next_round(stretch, quiet, grid_tick)
            else:  # a round that was decided leaves nothing for the next until something happens
                tick = grid_tick if queue.entries and not in_round else math.inf
        self._note_changes(stretch, known, place)
        coming.skip_to(place)

    def _is_a_fill(self, queue: FillQueue, quiet: QuietRounds | None, *, in_round: bool) -> bool:
        """Is it enough now to start the first that fit, in order?"""
        if quiet is not None:
            return self._has_room(queue.gpus)
        when = self._cycle.parts.scheduling.rounds_fill
        return len(queue.entries) <= FEW and (
            not in_round or when == "always" or (when == "with room" and self._has_room(queue.gpus))
        )

    def _arrive(self, queue: FillQueue, place: int) -> None:
        """The next unit arrives and is admitted; `place` is its own among all arrivals."""
        row = self._coming.rows[place]
        self._predicted[row] = self._work[row]
        queue.add(row, self._cycle.enter(row))

    def _fill(self, stretch: Stretch, queue: FillQueue, quiet: QuietRounds | None) -> float:
        """Units that wait get idle GPUs, and begin; returns when the first of them ends."""
        world, progress, now, soonest = self._world, self._progress, stretch.end, math.inf
        rate_of, table, occupancy = world.performance.rate, world.table, world.occupancy
        for row, gpus, placement in queue.fill():
            ready = now + (world.overhead_of(row) if self._overhead else 0.0)
            rate = rate_of(row, placement, table, occupancy)
            if rate > 0:
                left = self._work[row] - self._executed[row]
                end = ready + (left if left > 0.0 else 0.0) / rate
                progress.enter_end(row, end)
                soonest = end if end < soonest else soonest
            stretch.begun[row] = (gpus, now, ready, rate)
            if quiet is not None:
                quiet.begin(row, now, ready, rate)
        stretch.decisions += 1
        return soonest

    def _next_round(self, stretch: Stretch, quiet: QuietRounds, grid_tick: float) -> float:
        """When the next round is, after something happened or a round was decided."""
        semantics, now = self._world.semantics, stretch.end
        if stretch.is_settled:
            stretch.wake = wake = quiet.next_time(now)
        if not self._world.occupancy.held:
            return math.inf
        if not stretch.is_settled:
            return grid_tick
        if wake <= now:
            return semantics.tick_after(now)
        return semantics.tick_at_or_after(wake) if wake < math.inf else math.inf

    def _note_changes(self, stretch: Stretch, known: tuple[int, int] | None, place: int) -> None:
        """Tell policies what has happened since the last decision.

        Args:
            stretch: what has happened.
            known: how many ends and arrivals the last decision knew; None: none was made.
            place: how many units have arrived.
        """
        coming, changes = self._coming, self._cycle.ctx.changes
        if known is not None:
            changes.clear()
        ended, came = known or (0, coming.place)
        ends = islice(stretch.done.items(), ended, None)
        news = [Change("finish", time, row) for row, time in ends]
        news += [Change("arrive", coming.times[k], coming.rows[k]) for k in range(came, place)]
        changes += sorted(news, key=attrgetter("time"))
