"""The agenda: one loop that runs every semantics.

The next moment is the earliest of: a visible arrival, a visible end, a cluster event, a wake-up, a
grid tick at which something could be decided. At each moment the profile's phases run in order;
the rounds themselves are core's (`Cycle`). Which round is skipped never changes an outcome, only
the cost; a test matrix holds that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlsched.core.allocation import Allocation, Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.calendar import Calendar
from dlsched.core.cluster.pools import Pools
from dlsched.core.context import Change, Mode
from dlsched.core.round.cycle import Cycle
from dlsched.core.round.steps import Parts
from dlsched.core.scheduling import Chooser
from dlsched.core.semantics import Phase
from dlsched.core.units import FUTURE, HELD_BACK, RUNNING, WAITING, Status, UnitTable
from simulate.arrivals import Arrivals
from simulate.between_rounds import BetweenRounds
from simulate.clusters.cluster_events import ClusterEvent
from simulate.progress.whole_steps import WholeSteps
from simulate.services.lending import Lending
from simulate.standstill import IDLE_ROUNDS, Standstill
from simulate.world import World

Observer = Callable[["Engine", Allocation], None]


@dataclass(slots=True)
class Stopped:
    """Why and when a run ended."""

    time: float
    reason: str = ""  # "" when every unit has ended


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Engine:
    """A replay in progress.

    Attributes:
        world: the simulated cluster.
        cycle: its rounds.
        arrivals: rows in the order in which they become visible.
        visible: when each row becomes visible, in seconds (not yet rounded to the grid).
        events: cluster events, by time; taken one by one, so they need have no end.
        lending: services that take GPUs and give them back, as part of the events; None: none do.
        endless: they have no end: waiting for the next one is no hope for units that never start.
        tracked: stop when these rows have ended; all rows when empty.
        best_s: seconds that each row takes on its fastest type; None: its work, which is seconds.
        skipping: may rounds be skipped in which nothing can change?
        horizon: stop at this time.
        observers: called after every decision, with what it was.
        on_progress: called now and then with the number of units that have ended.
        columns: output columns that policies add, by name and row.
        coming: the units that are still to come.
        between_rounds: follows what takes no more than counting; None: the phases do.
    """

    world: World
    cycle: Cycle
    arrivals: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    visible: Floats = field(default_factory=lambda: np.zeros(0))
    events: Iterable[ClusterEvent] = ()
    lending: Lending | None = None
    endless: bool = False
    tracked: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    best_s: Floats | None = None
    skipping: bool = True
    horizon: float = math.inf
    observers: list[Observer] = field(default_factory=list)
    on_progress: Callable[[int], None] | None = None

    now: float = 0.0
    columns: dict[str, dict[int, float]] = field(default_factory=dict)

    coming: Arrivals = field(init=False)
    between_rounds: BetweenRounds | None = None
    _events: Iterator[ClusterEvent] = field(init=False)
    _next_event: ClusterEvent | None = None
    _barren: int = 0  # cluster events in a row with nothing running or coming
    _standstill: Standstill = field(init=False)
    _dirty: bool = False  # something changed since the last full decision
    _touched: bool = False  # something changed since the last decision of any kind
    _wake: float = math.inf
    _stable: float = -math.inf
    _earliest: float = -math.inf  # with `spacing`, the next moment is not before this one
    _tick: float = -math.inf  # the first grid tick at or after the present
    _tracked_left: set[int] = field(init=False)
    _kept: float = math.inf  # when a reservation begins or ends next
    _refused: int = 0  # how many of the cycle's refused rows were seen
    _ended: int = 0
    _stop_reason: str = ""

    def __post_init__(self) -> None:
        world, table = self.world, self.world.table
        world.launch, world.preemption = self.parts.launch, self.parts.preemption
        self._tracked_left = set(self.tracked.tolist())
        self._standstill = Standstill(world, self.cycle)
        present = np.isin(table.status, (WAITING, HELD_BACK, RUNNING))
        self.coming = Arrivals(
            self.arrivals,
            self.visible,
            _awaited(table),
            world.semantics,
            table.array_limits,
            [row for row in table.array_limits if present[row]],
        )
        if table.parents:
            self.cycle.refuse_children(np.flatnonzero(table.status == Status.REFUSED).tolist())
            self._note_refused()
        by_phases = self.observers or self._tracked_left or self.cycle.ctx.reserved
        if self.skipping and not by_phases:
            self.between_rounds = BetweenRounds.of(world, self.cycle, self.coming)
        self._await_reservations()
        self._events = iter(self.events)
        self._next_event = next(self._events, None)

    @classmethod
    def resume(
        cls,
        world: World,
        cycle: Cycle,
        *,
        visible: Floats,
        horizon: float = math.inf,
        arrivals: Rows | None = None,
    ) -> Engine:
        """Go on from the present of a cycle's context, without any event to come.

        Args:
            world: units on GPUs at that moment; its table and occupancy are the context's.
            cycle: the rounds, with what is admitted and what waits.
            visible: when each row became visible; a child whose parents end comes no earlier.
            horizon: stop at this time.
            arrivals: rows that still arrive, in the order in which they become visible; None: none.
        """
        now = cycle.ctx.now
        coming = np.zeros(0, np.int64) if arrivals is None else arrivals
        engine = cls(
            world=world, cycle=cycle, arrivals=coming, visible=visible, horizon=horizon, now=now
        )
        engine._dirty = engine._touched = True
        return engine

    def keep_agenda_of(self, other: Engine) -> None:
        """Decide next when another engine would, of which this is a copy."""
        self._dirty, self._touched = other._dirty, other._touched
        self._wake, self._stable, self._tick = other._wake, other._stable, other._tick
        self._earliest = other._earliest

    @property
    def parts(self) -> Parts:
        """The stages of the round."""
        return self.cycle.parts

    @property
    def pools(self) -> Pools:
        """Which nodes each unit may use."""
        return self.cycle.ctx.pools

    @property
    def calendar(self) -> Calendar:
        """Bookings of the future."""
        return self.cycle.ctx.calendar

    @property
    def decisions(self) -> int:
        """How many decisions were made."""
        return self.cycle.decisions

    @property
    def refusals(self) -> dict[int, Refused]:
        """The latest reason of each row that was refused something."""
        return self.cycle.refusals

    @property
    def active(self) -> Rows:
        """Rows admitted and not ended, in order of admission."""
        return self.cycle.active

    @property
    def all_known(self) -> Rows:
        """Rows that have arrived and not ended, admitted or not."""
        return np.concatenate([self.cycle.active, self.cycle.queue])

    # -- the loop ---------------------------------------------------------------------------------

    def run(self, start: float | None = None) -> Stopped:
        """Run until every unit (or every tracked one) has ended, or nothing more can happen.

        Args:
            start: begin with a decision at this time, whether or not anything happens then.

        Raises:
            PolicyFailed: a part raised or answered what cannot be.
        """
        phases: dict[Phase, Callable[[], bool]] = {
            "cluster": self._cluster_events,
            "complete": self._completions,
            "track": self._tracked_done,
            "arrive": self._arrive,
            "choose": self._choose,
            "admit": self._admit,
            "decide": self._decide,
        }
        semantics, keeps_timeline = self.world.semantics, self.world.recorder.keeps_timeline
        order = [phases[phase] for phase in semantics.phases if self._may_matter(phase)]
        upcoming = start
        while True:
            if self.between_rounds is not None and upcoming is None:
                upcoming = self._go_to_next_round(self.between_rounds)
            moment = self._next_moment() if upcoming is None else upcoming
            upcoming = None
            if moment == math.inf:
                return Stopped(self.now, self.world.says_unfinished())
            if moment > self.horizon:
                self.now = self.horizon
                return Stopped(self.now, f"the horizon of {self.horizon:g} s was reached")
            self.now = self.cycle.ctx.now = moment
            if semantics.spacing is not None:
                self._earliest = moment + semantics.spacing
            if semantics.grid is not None and moment > self._tick:
                self._tick = semantics.tick_at_or_after(moment)
            for phase in order:
                if phase():
                    self._sample()
                    return Stopped(self.now, self._stop_reason)
            if keeps_timeline:
                self._sample()

    def run_until_before(self, moment: float, start: float | None = None) -> None:
        """Run until right before a moment, so that a copy can go on from there.

        Args:
            moment: what happens then is left to the copy.
            start: as for `run`.

        Raises:
            PolicyFailed: as `run`.
        """
        self.between_rounds = None  # which keeps what it knows to itself
        self.horizon = math.nextafter(moment, -math.inf)
        self.run(start)
        self.cycle.ctx.now = self.now

    def _go_to_next_round(self, between: BetweenRounds) -> float | None:
        """Let happen what takes no more than counting; says when a decision is due at once."""
        stretch = between.follow(self._tick_time(), min(self._event_time(), self.horizon))
        if stretch is not None and stretch.end > -math.inf:
            self.now = self.cycle.ctx.now = stretch.end
            self._dirty, self._touched = not stretch.is_settled, stretch.is_undecided
            self.cycle.decisions += stretch.decisions
            if stretch.is_settled:
                self._wake = self._stable = stretch.wake
            self._standstill.moved(decided=stretch.decisions > 0, wake=stretch.wake)
            for column, value in stretch.outputs.items():
                values = self.columns.setdefault(column, {})
                values |= dict.fromkeys(stretch.begun, value)
            if stretch.done:
                self._count_ended(len(stretch.done))
            if stretch.is_undecided:
                return self.now
        return None

    def _may_matter(self, phase: Phase) -> bool:
        """Could this phase ever do something in this run?"""
        if phase == "cluster":
            return self._next_event is not None
        if phase == "track":
            return len(self.tracked) > 0
        return phase != "choose" or isinstance(self.parts.scheduling, Chooser)

    def _next_moment(self) -> float:
        progress = self.world.progress
        end = progress.next_end()
        moment = min(self.coming.next_time, end)
        if self._next_event is not None:
            moment = min(moment, self._event_time())
        if self._kept < math.inf and not self._over():
            moment = min(moment, self._kept)
        if progress.in_rounds:  # nothing is seen before the round's end
            return max(moment, end) if end < math.inf else moment
        semantics = self.world.semantics
        if semantics.grid is None:
            moment = min(moment, self._wake)
            return moment if semantics.spacing is None else max(moment, self._earliest)
        return min(moment, self._tick_time())

    def _event_time(self) -> float:
        if self._next_event is None or self._over():
            return math.inf
        return self._next_event.time

    def _over(self) -> bool:
        """Has every unit ended? What then happens to nodes is of no interest."""
        world = self.world
        left = world.running or world.waiting or self.cycle.has_queue
        return not left and self.coming.next_time == math.inf

    def _tick_time(self) -> float:
        """The next tick at which a full decision could change anything; inf when none could."""
        cycle, world = self.cycle, self.world
        if not (world.waiting or len(cycle.held_back)) and (cycle.parts.rest or not world.running):
            wakes = cycle.parts.scheduling.wakes_idle and self.now < self._wake < math.inf
            if not wakes or self._over():
                return math.inf
            return world.semantics.tick_at_or_after(self._wake)
        due = max(self._stable, self.now)
        if due > self.now:
            due = min(due, self._wake)
        if due <= self.now or not self.skipping or self._dirty or cycle.parts.estimator.revises:
            return self._tick if self._tick > self.now else world.semantics.tick_after(self.now)
        return world.semantics.tick_at_or_after(due) if due < math.inf else math.inf

    # -- phases; each returns True to stop the run ------------------------------------------------

    def _cluster_events(self) -> bool:
        if self._event_time() > self.now:
            return False
        idle = not self.world.running and self.coming.next_time == math.inf
        self._barren = self._barren + 1 if idle else 0
        if self.endless and self._barren >= IDLE_ROUNDS:
            self._stop_reason = self.world.says_unfinished()
            return True
        while self._next_event is not None and self._next_event.time <= self.now:
            event = self._next_event
            kind = event.apply(self.world, self.now)
            self._next_event = next(self._events, None)  # it may depend on this one
            if kind is None:
                continue
            if event.kind == "retype":
                self.pools.refresh(self.world.occupancy.type_of)
                if self.cycle.ctx.reserved is not None:
                    self.cycle.ctx.reserved.refresh()
            self._note(Change(kind, self.now, event.node))
        return False

    def _completions(self) -> bool:
        done = self.world.complete_until(self.now)
        for row in self.world.progress.adapted:
            self._note(Change("adapt", self.now, row))
        self._note_ends(done)
        return False

    def _note_ends(self, done: Sequence[int]) -> None:
        """Units have completed: tell policies, and let their children come."""
        if not done:
            return
        finish = self.world.table.finish
        for row in done:
            self._note(Change("finish", finish.item(row), row))
            self.coming.ended(row, self.now)
        self.cycle.leave(done)
        self._tracked_left.difference_update(done)
        self._standstill.moved()
        self._count_ended(len(done))

    def _count_ended(self, count: int) -> None:
        self._ended += count
        if self.on_progress is not None:
            self.on_progress(self._ended)

    def _tracked_done(self) -> bool:
        if len(self.tracked) and not self._tracked_left:
            self._stop_reason = "all tracked jobs have ended"
            return True
        return False

    def _arrive(self) -> bool:
        if self.coming.next_time > self.now:
            return False
        status, cycle = self.world.table.status, self.cycle
        came = self.coming.until(self.now)
        arrived = [row for row in came if status[row] == FUTURE]
        if len(arrived) < len(came):
            for row in set(came).difference(arrived):
                self.coming.gone(row, self.now)
        if arrived:
            self.predict(arrived)
            if self.parts.scheduling.plans_children:
                self._look("full")
                if behind := cycle.submitted_behind(arrived):
                    self.predict(behind)
            cycle.arrive(arrived)
            self._dirty = self._touched = True
        return False

    def predict(self, arrived: list[int]) -> None:
        """Predict how long rows take; what is predicted already stays."""
        predicted, work = self.world.table.predicted_work, self.world.true_work
        if not np.isnan(predicted[arrived]).all():
            arrived = [row for row in arrived if math.isnan(predicted[row])]
        if self.parts.estimator.knows:
            for row in arrived:
                predicted[row] = work[row]
        else:
            self._look("full")
            rows = np.array(arrived, np.int64)
            predicted[rows] = self.cycle.predict(rows, work[rows])

    def _choose(self) -> bool:
        self._look("full" if self._is_full() else "fill")
        self.cycle.choose()
        return False

    def _admit(self) -> bool:
        cycle = self.cycle
        if cycle.has_queue:
            if not cycle.parts.admission.admits_all or len(cycle.held_back):
                self._look("full")
            for row in (entering := cycle.admit()):
                self.world.admit(row)
            self._note_refused()
            if entering:
                self._dirty = self._touched = True
        return False

    def _note_refused(self) -> None:
        """Units that were refused for good have ended."""
        refused = self.cycle.refused
        self._tracked_left.difference_update(refused[self._refused :])
        for row in refused[self._refused :]:
            self.coming.gone(row, self.now)
        self._ended += len(refused) - self._refused
        self._refused = len(refused)

    def _is_full(self) -> bool:
        semantics = self.world.semantics
        if self.world.progress.in_rounds:
            return True
        if semantics.grid is not None and self._tick == self.now:
            return True
        if semantics.grid is None or semantics.between == "full":
            return self._touched or self.now >= self._wake
        return False

    def _decide(self) -> bool:
        semantics, world = self.world.semantics, self.world
        if self.now >= self._kept:
            self._dirty = self._touched = True
            self._await_reservations()
        if isinstance(world.progress, WholeSteps):
            return self._whole_steps(world.progress)
        if self._is_full():
            if world.waiting or not self.parts.rest:
                return self._decide_in("full")
            self._dirty = self._touched = False
            self.cycle.ctx.changes.clear()
            self._wake, self._stable = math.inf, math.inf
        elif self._touched and semantics.between == "fill":
            may_start = world.occupancy.free_total or world.table.says_shares
            if world.waiting and (may_start or self.cycle.has_news):
                self._decide_in("fill")
            self._touched = False
        return False

    def _await_reservations(self) -> None:
        """See when a reservation begins or ends next."""
        reserved = self.cycle.ctx.reserved
        self._kept = math.inf if reserved is None else reserved.next_moment(self.now)

    def _whole_steps(self, progress: WholeSteps) -> bool:
        """A decision and a round of whole steps, where the last one has ended."""
        world, grid = self.world, self.world.semantics.grid_length
        if self.now < progress.round_end < math.inf:
            return False
        if not world.unfinished:
            progress.round_end = math.inf
            return False
        if self._stands(progress, grid):
            progress.begin_round(self.now, world.unfinished, decided=False)
            return False
        stops = self._decide_in("full")
        progress.begin_round(self.now, world.unfinished, decided=True)
        if progress.round_end == math.inf and self.coming.next_time == math.inf:
            progress.round_end = self.now + grid  # only time will change that nothing runs
        return stops

    def _stands(self, progress: WholeSteps, grid: float) -> bool:
        """Would another decision change nothing, in this round of whole steps?"""
        return (
            self.skipping
            and not self._dirty
            and self.now < self._stable
            and progress.moves_on
            and self._event_time() > self.now + grid
            and not self.parts.estimator.revises
        )

    def _decide_in(self, mode: Mode) -> bool:
        """One decision; returns True when the run should stop because nothing moves any more."""
        world = self.world
        world.observe(self.now)
        self._look(mode)
        allocation = self.cycle.decide()
        self._touched = False
        if mode == "full":
            self._dirty = False
            self._wake, self._stable = allocation.wake_at, allocation.stable_until
        else:
            self._wake = min(self._wake, allocation.wake_at)
            self._dirty = self._dirty or bool(allocation.launched)
        if self._wake <= self.now:
            self._wake = math.inf
        self._note_ends(world.apply(allocation, self.now))
        for column, values in allocation.columns.items():
            self.columns.setdefault(column, {}).update(values)
        for observer in self.observers:
            observer(self, allocation)
        coming = self.coming.next_time < math.inf or (
            self._event_time() < math.inf and not self.endless
        )
        reason = self._standstill.after(allocation, coming=coming)
        self._stop_reason = reason or self._stop_reason
        return reason is not None

    # -- what the round sees ----------------------------------------------------------------------

    def _note(self, change: Change) -> None:
        self.cycle.ctx.changes.append(change)
        self._dirty = self._touched = True

    def _look(self, mode: Mode) -> None:
        """Show the present to whichever part is asked next."""
        ctx = self.cycle.look(self.now, self.round_number, mode)
        if isinstance(self.world.progress, WholeSteps):
            ctx.since_decision = self.world.progress.since_decision

    @property
    def round_number(self) -> int:
        """Grid ticks since the origin, or decisions so far when there is no grid."""
        semantics = self.world.semantics
        if isinstance(self.world.progress, WholeSteps):
            return self.world.progress.rounds
        if semantics.grid is None:
            return self.cycle.decisions
        return int((self.now - semantics.origin) // semantics.grid)

    def _sample(self) -> None:
        world = self.world
        if world.recorder.keeps_timeline:
            total = world.occupancy.capacity_in(world.occupancy.in_service)
            allocated = total - world.occupancy.free_total - world.occupancy.kept_idle
            allocated += world.occupancy.used_unheld
            counts = (allocated, total, world.running, len(world.waiting), world.waiting_gpus)
            world.recorder.sample(self.now, counts)


def _awaited(table: UnitTable) -> Mapping[int, tuple[int, ...]]:
    """Of each row that waits for others, those that have not ended yet."""
    if not table.parents:
        return table.parents
    ended = table.status == Status.COMPLETED
    return {
        row: tuple(other for other in each if not ended[other])
        for row, each in table.parents.items()
    }
