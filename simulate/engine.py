"""The agenda: one loop that runs every semantics.

The next moment is the earliest of: a visible arrival, a visible end, a cluster event, a wake-up, a
grid tick at which something could be decided. At each moment the profile's phases run in order.
Which round is skipped never changes an outcome, only the cost; a test matrix holds that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from dlsched.core.allocation import Allocation, Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.calendar import Calendar
from dlsched.core.context import Change, Mode, RoundContext
from dlsched.core.epochs import Epochs
from dlsched.core.forecast import Forecaster
from dlsched.core.goodput.belief import GoodputBelief
from dlsched.core.metrics import MetricBoard
from dlsched.core.performance import Speeds
from dlsched.core.pools import Pools
from dlsched.core.round import Parts, admit, choose, decide, predict
from dlsched.core.scaling import Scaling
from dlsched.core.scheduling import Chooser
from dlsched.core.semantics import Phase
from dlsched.core.units import COMPLETED, FUTURE, HELD_BACK, Status, Units
from simulate.cluster_events import ClusterEvent
from simulate.world import World

__all__ = ["Engine", "Observer", "Stopped"]

ORPHAN = Refused("Never", "waits for a job that was refused")
IDLE_ROUNDS = 10_000  # decisions in a row that start nothing while nothing runs: it never will

Observer = Callable[["Engine", Allocation], None]


@dataclass(slots=True)
class Stopped:
    """Why and when a run ended."""

    time: float
    reason: str = ""  # "" when every unit has ended


@dataclass(slots=True, kw_only=True)
class Engine:
    """A replay in progress.

    Attributes:
        world: the simulated cluster.
        parts: the stages of the round; a chooser may replace them.
        pools: which nodes each unit may use.
        arrivals: rows in the order in which they become visible.
        visible: when each row becomes visible, in seconds (not yet rounded to the grid).
        events: cluster events, by time; taken one by one, so they need have no end.
        endless: they have none: waiting for the next one is no hope for units that never start.
        tracked: stop when these rows have ended; all rows when empty.
        seed: the run's seed.
        speeds: what policies may believe of how fast units run where; None: nothing.
        best_s: seconds that each row takes on its fastest type; None: its work, which is seconds.
        epochs: what policies may know of the courses of trainings; None: nothing.
        scaling: what policies may believe of speeds by number of GPUs; None: nothing.
        goodput: what policies may believe of speeds and batch sizes of trainings; None: nothing.
        skipping: may rounds be skipped in which nothing can change?
        horizon: stop at this time.
        observers: called after every decision, with what it was.
        make_forecast: builds the forecaster handed to policies.
        rebuild_parts: makes parts from names, for choosers.
        on_progress: called now and then with the number of units that have ended.
    """

    world: World
    parts: Parts
    pools: Pools
    arrivals: Rows
    visible: Floats
    events: Iterable[ClusterEvent] = ()
    endless: bool = False
    tracked: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    seed: int = 0
    speeds: Speeds | None = None
    best_s: Floats | None = None
    epochs: Epochs | None = None
    scaling: Scaling | None = None
    goodput: GoodputBelief | None = None
    skipping: bool = True
    horizon: float = math.inf
    observers: list[Observer] = field(default_factory=list)
    make_forecast: Callable[[Engine], Forecaster] | None = None
    rebuild_parts: Callable[[Parts, Mapping[str, str]], Parts] | None = None
    on_progress: Callable[[int], None] | None = None

    now: float = 0.0
    decisions: int = 0
    refusals: dict[int, Refused] = field(default_factory=dict)
    held_back: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    columns: dict[str, dict[int, float]] = field(default_factory=dict)
    calendar: Calendar = field(init=False)
    board: MetricBoard = field(init=False)

    _active: Rows = field(init=False)
    _at_the_door: list[int] = field(default_factory=list)  # arrived, admission not yet asked
    _joined: list[int] = field(default_factory=list)
    _left: list[int] = field(default_factory=list)  # ended since `active` was last asked for
    _next_arrival: int = 0
    _next_visible: float = math.inf
    _events: Iterator[ClusterEvent] = field(init=False)
    _next_event: ClusterEvent | None = None
    _barren: int = 0  # cluster events in a row with nothing running or coming
    _freed: list[tuple[float, int]] = field(default_factory=list)  # children whose parents ended
    _children: dict[int, list[int]] = field(init=False)
    _parents_left: dict[int, int] = field(init=False)
    _changes: list[Change] = field(default_factory=list)
    _dirty: bool = False  # something changed since the last full decision
    _touched: bool = False  # something changed since the last decision of any kind
    _wake: float = math.inf
    _last_wake: float = math.inf
    _stable: float = -math.inf
    _round_end: float = math.inf
    _quiet: int = 0
    _stale: int = 0
    _looked_at: tuple[float, int] = (0.0, 0)
    _tracked_left: set[int] = field(init=False)
    _ended: int = 0

    def __post_init__(self) -> None:
        table = self.world.table
        self.world.launch, self.world.preemption = self.parts.launch, self.parts.preemption
        reported = self.parts.metrics.metrics if self.parts.metrics is not None else ()
        self.board = MetricBoard(table, (*reported, *self.parts.scheduling.metrics))
        self._active = np.zeros(0, np.int64)
        self.calendar = Calendar(self.world.occupancy.cluster.total_gpus)
        self._tracked_left = set(self.tracked.tolist())
        self._parents_left = {row: len(parents) for row, parents in table.parents.items()}
        self._children = {}
        for row, parents in table.parents.items():
            for parent in parents:
                self._children.setdefault(parent, []).append(row)
        if self._children:
            for row in np.flatnonzero(table.status == Status.REFUSED).tolist():
                self._refuse_children(row)
        semantics = self.world.semantics
        if len(self.arrivals):
            self.visible = semantics.seen_at(self.visible)
        self._events = iter(self.events)
        self._next_event = next(self._events, None)
        self._look_ahead()

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
        order = [phases[phase] for phase in self.world.semantics.phases if self._may_matter(phase)]
        upcoming = start
        while True:
            moment = self._next_moment() if upcoming is None else upcoming
            upcoming = None
            if moment == math.inf:
                return Stopped(self.now, self._unfinished())
            if moment > self.horizon:
                self.now = self.horizon
                return Stopped(self.now, f"the horizon of {self.horizon:g} s was reached")
            self.now = moment
            for phase in order:
                if phase():
                    self._sample()
                    return Stopped(self.now, self._stop_reason)
            self._sample()

    _stop_reason: str = ""

    def _may_matter(self, phase: Phase) -> bool:
        """Could this phase ever do something in this run?"""
        if phase == "cluster":
            return self._next_event is not None
        if phase == "track":
            return len(self.tracked) > 0
        return phase != "choose" or isinstance(self.parts.scheduling, Chooser)

    def _unfinished(self) -> str:
        waiting = self._unfinished_count()
        return f"{waiting} jobs can never run" if waiting else ""

    def _unfinished_count(self) -> int:
        return int((self.world.table.status < Status.COMPLETED).sum())

    def _next_moment(self) -> float:
        moment = min(self._arrival_time(), self._event_time())
        semantics = self.world.semantics
        if semantics.drift:
            moment = min(moment, self._round_end)
            return max(moment, self._round_end) if self._round_end < math.inf else moment
        moment = min(moment, self.world.next_end())
        if semantics.grid is None:
            return min(moment, self._wake)
        return min(moment, self._tick_time())

    def _arrival_time(self) -> float:
        if self._freed:
            return min(self._next_visible, self._freed[0][0])
        return self._next_visible

    def _event_time(self) -> float:
        if self._next_event is None or self._over():
            return math.inf
        return self._next_event.time

    def _over(self) -> bool:
        """Has every unit ended? What then happens to nodes is of no interest."""
        world = self.world
        left = world.running or world.waiting or len(self.held_back) or self._at_the_door
        return not left and self._arrival_time() == math.inf

    def _tick_time(self) -> float:
        """The next tick at which a full decision could change anything; inf when none could."""
        semantics = self.world.semantics
        something = self.world.waiting or len(self.held_back)
        if not something and (self.parts.scheduling.rests or not self.world.running):
            return math.inf
        if not self.skipping or self._dirty or self.parts.estimator.revises:
            return semantics.tick_after(self.now)
        due = max(self._stable, self.now)
        if due > self.now:
            due = min(due, self._wake)
        if due == math.inf:
            return math.inf
        return (
            semantics.tick_after(self.now) if due <= self.now else semantics.tick_at_or_after(due)
        )

    # -- phases; each returns True to stop the run ------------------------------------------------

    def _cluster_events(self) -> bool:
        if self._event_time() > self.now:
            return False
        idle = not self.world.running and self._arrival_time() == math.inf
        self._barren = self._barren + 1 if idle else 0
        if self.endless and self._barren >= IDLE_ROUNDS:
            self._stop_reason = self._unfinished()
            return True
        while self._next_event is not None and self._next_event.time <= self.now:
            event, self._next_event = self._next_event, next(self._events, None)
            kind = event.apply(self.world, self.now)
            if event.kind == "retype":
                self.pools.refresh(self.world.occupancy.type_of)
            self._note(Change(kind, self.now, event.node))
        return False

    def _completions(self) -> bool:
        world = self.world
        if world.semantics.drift:
            done = world.end_steps(self.now) if self.now >= self._round_end else []
            for row in world.whole_steps.adapted if self.now >= self._round_end else ():
                self._note(Change("adapt", self.now, row))
        else:
            done = world.complete_until(self.now)
        self._note_ends(done)
        return False

    def _note_ends(self, done: list[int]) -> None:
        """Units have completed: tell policies, open the way for their children."""
        for row in done:
            self._note(Change("finish", float(self.world.table.finish[row]), row))
            self._left.append(row)
            self._ended += 1
            self._stale = 0
            self._tracked_left.discard(row)
            for child in self._children.get(row, ()):
                self._parents_left[child] -= 1
                if not self._parents_left[child]:
                    when = max(float(self.visible[child]), self._seen_now())
                    heapq.heappush(self._freed, (when, child))
        if done and self.on_progress is not None:
            self.on_progress(self._ended)

    def _seen_now(self) -> float:
        """When something that arrives now becomes visible."""
        return float(self.world.semantics.seen_at(np.array([self.now]))[0])

    def _tracked_done(self) -> bool:
        if len(self.tracked) and not self._tracked_left:
            self._stop_reason = "all tracked jobs have ended"
            return True
        return False

    def _arrive(self) -> bool:
        if self._arrival_time() > self.now:
            return False
        arrived: list[int] = []
        status = self.world.table.status
        while self._next_visible <= self.now:
            row = self.arrivals.item(self._next_arrival)
            self._next_arrival += 1
            self._look_ahead()
            if not self._parents_left.get(row):
                arrived.append(row)
        while self._freed and self._freed[0][0] <= self.now:
            arrived.append(heapq.heappop(self._freed)[1])
        arrived = [row for row in arrived if status[row] == FUTURE]
        self._predict(arrived)
        for row in arrived:
            status[row] = HELD_BACK
            self._note(Change("arrive", self.now, row))
        self._at_the_door.extend(arrived)
        return False

    def _look_ahead(self) -> None:
        """Remember when the next row becomes visible."""
        if self._next_arrival < len(self.arrivals):
            self._next_visible = self.visible.item(self.arrivals.item(self._next_arrival))
        else:
            self._next_visible = math.inf

    def _predict(self, arrived: list[int]) -> None:
        table, work, estimator = self.world.table, self.world.true_work, self.parts.estimator
        if estimator.knows:
            for row in arrived:
                table.predicted_work[row] = work[row]
        elif arrived:
            units = Units(table, np.array(arrived, np.int64), self.now)
            table.predicted_work[units.rows] = predict(
                self.parts, units, work[units.rows], self._context("full")
            )

    def take_over(self, present: Engine) -> None:
        """Go on from another engine's queue, as a fork of it on copies."""
        self.now, self.decisions = present.now, present.decisions
        self._active = present.active.copy()
        self.held_back = present.held_back.copy()
        self._at_the_door = list(present._at_the_door)
        self._dirty = self._touched = True

    @property
    def everyone_known(self) -> Rows:
        """Rows that have arrived and not ended, admitted or not."""
        return np.concatenate([self.active, self.held_back, np.array(self._at_the_door, np.int64)])

    def _choose(self) -> bool:
        policy = self.parts.scheduling
        if not isinstance(policy, Chooser) or self.rebuild_parts is None:
            return False
        if len(self.everyone_known) and (self._is_full() or not policy.has_chosen):
            chosen = choose(policy, self._context("full"))
            if chosen is not None:
                self.parts = self.rebuild_parts(self.parts, chosen)
        return False

    def _admit(self) -> bool:
        if self.parts.admission.admits_all and not len(self.held_back):
            accepted = self._at_the_door
            self._at_the_door = []
        else:
            accepted = self._ask_admission()
        for row in accepted:
            self.world.admit(row, self.now)
        if accepted:
            self._joined.extend(accepted)
            self._dirty = self._touched = True
        return False

    def _ask_admission(self) -> list[int]:
        """Let admission choose among those held back and those at the door; returns who enters."""
        held = np.concatenate([self.held_back, np.array(self._at_the_door, np.int64)])
        self._at_the_door.clear()
        if not len(held):
            return []
        enters, refused = admit(
            self.parts, Units(self.world.table, held, self.now), self._context("full")
        )
        stays = ~enters
        for row, why in refused.items():
            self.refusals[row] = why
            if why.reason == "Never":
                self._refuse_for_good(row, why)
                stays[held == row] = False
        self.held_back = held[stays]
        accepted: list[int] = held[enters].tolist()
        return accepted

    def _refuse_for_good(self, row: int, why: Refused) -> None:
        self.world.table.status[row] = Status.REFUSED
        self.refusals[row] = why
        self._ended += 1
        self._tracked_left.discard(row)
        self._refuse_children(row)

    def _refuse_children(self, row: int) -> None:
        """A unit whose parent was refused will never be visible."""
        status = self.world.table.status
        for child in self._children.get(row, ()):
            if status[child] == FUTURE:
                self._refuse_for_good(child, ORPHAN)

    def _is_full(self) -> bool:
        semantics = self.world.semantics
        if semantics.drift:
            return True
        if semantics.grid is not None and semantics.tick_at_or_after(self.now) == self.now:
            return True
        if semantics.grid is None or semantics.between == "full":
            return self._touched or self.now >= self._wake
        return False

    def _decide(self) -> bool:
        semantics, world = self.world.semantics, self.world
        if semantics.drift:
            return self._drifting_round()
        if self._is_full():
            if world.waiting or not self.parts.scheduling.rests:
                return self._decide_in("full")
            self._dirty = self._touched = False
            self._changes.clear()
            self._wake, self._stable = math.inf, math.inf
        elif self._touched and semantics.between == "fill":
            if world.waiting and (world.occupancy.free_total or world.table.says_shares):
                self._decide_in("fill")
            self._touched = False
        return False

    def _drifting_round(self) -> bool:
        world, grid = self.world, self.world.semantics.grid or 0.0
        if self.now < self._round_end < math.inf:
            return False
        if not world.waiting and not world.running:
            self._round_end = math.inf
            return False
        if self._stands(grid):
            self._round_end = world.begin_steps(self.now, grid, decided=False)
            return False
        stops = self._decide_in("full")
        self._round_end = world.begin_steps(self.now, grid)
        if self._round_end == math.inf and self._arrival_time() == math.inf:
            self._round_end = self.now + grid  # nobody runs, and nothing but time will change that
        return stops

    def _stands(self, grid: float) -> bool:
        """Would another decision change nothing, in this round of whole steps?"""
        return (
            self.skipping
            and not self._dirty
            and self.now < self._stable
            and self.world.whole_steps.moves_on
            and self._event_time() > self.now + grid
            and not self.parts.estimator.revises
        )

    def _decide_in(self, mode: Mode) -> bool:
        """One decision; returns True when the run should stop because nothing moves any more."""
        world = self.world
        world.look_at_courses(self.now)
        ctx = self._context(mode)
        if self.board.metrics and self.parts.metrics is not None:
            self.parts.metrics.report(ctx.running, self.board, ctx)
            self.board.collect()
        allocation = decide(self.parts, ctx)
        self.decisions += 1
        self._changes.clear()
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
        self.refusals.update(allocation.refused)
        for column, values in allocation.columns.items():
            self.columns.setdefault(column, {}).update(values)
        for row in {booking.row for booking in allocation.future}:
            self.calendar.cancel(row)  # a row's new plan replaces its old one
        for booking in allocation.future:
            self.calendar.book(booking)
        for observer in self.observers:
            observer(self, allocation)
        return self._hopeless(allocation)

    def _hopeless(self, allocation: Allocation) -> bool:
        coming = self._arrival_time() < math.inf or (
            self._event_time() < math.inf and not self.endless
        )
        idle = not self.world.running and not coming
        patient = allocation.wake_at == self._last_wake < math.inf  # it waits for its alarm
        self._last_wake = allocation.wake_at
        self._quiet = 0 if allocation.launched or patient or not idle else self._quiet + 1
        self._stale = 0 if coming or patient else self._stale + 1
        if self._quiet >= IDLE_ROUNDS:
            self._stop_reason = self._unfinished()
        elif self._stale and self._stale % IDLE_ROUNDS == 0 and self._is_stuck():
            self._stop_reason = (
                f"no progress in {IDLE_ROUNDS:,} decisions: {self._unfinished_count()} jobs are "
                "moved or stand still for ever"
            )
        else:
            return False
        return True

    def _is_stuck(self) -> bool:
        """Has nobody worked since the last look, though nobody just waits for its restart?"""
        table = self.world.table
        units = Units(table, self.active, self.now)
        before, self._looked_at = self._looked_at, (units.executed.sum(), units.starts.sum())
        if self._looked_at[0] > before[0] or self._stale == IDLE_ROUNDS:
            return False  # it moves on, or this was the first look
        restarting = units.running & (table.progress_from[units.rows] > self.now)
        return not restarting.any() or self._looked_at[1] > before[1]

    # -- what the round sees ----------------------------------------------------------------------

    def _note(self, change: Change) -> None:
        self._changes.append(change)
        self._dirty = self._touched = True

    @property
    def active(self) -> Rows:
        """Rows admitted and not ended, in order of admission."""
        if len(self._left) == 1:  # by far the most frequent case: no look at anybody's status
            self._active = self._active[self._active != self._left[0]]
        elif self._left:
            self._active = self._active[~_ended(self.world.table.status[self._active])]
        self._left.clear()
        if self._joined:
            self._active = np.concatenate([self._active, np.array(self._joined, np.int64)])
            self._joined.clear()
        return self._active

    @property
    def round_number(self) -> int:
        """Grid ticks since the origin, or decisions so far when there is no grid."""
        semantics = self.world.semantics
        if semantics.drift:
            return self.world.whole_steps.rounds
        if semantics.grid is None:
            return self.decisions
        return int((self.now - semantics.origin) // semantics.grid)

    def _context(self, mode: Mode) -> RoundContext:
        return RoundContext(
            now=self.now,
            number=self.round_number,
            mode=mode,
            table=self.world.table,
            active=self.active,
            occupancy=self.world.occupancy,
            pools=self.pools,
            semantics=self.world.semantics,
            changes=self._changes,
            finished=self.world.finished,
            calendar=self.calendar,
            forecast=self.make_forecast(self) if self.make_forecast is not None else None,
            restart_overhead=self.world.costs.restart_overhead or 0.0,
            min_run=self.world.costs.min_run,
            seed=self.seed,
            speeds=self.speeds,
            epochs=self.epochs,
            scaling=self.scaling,
            goodput=self.goodput,
            since_decision=self.world.whole_steps.since_decision,
            may_share=self.world.self_paced is None,
        )

    def _sample(self) -> None:
        world = self.world
        if world.recorder.keeps_timeline:
            total = world.occupancy.capacity_in(world.occupancy.in_service)
            allocated = total - world.occupancy.free_total - world.occupancy.kept_idle
            counts = (allocated, total, world.running, world.waiting, world.waiting_gpus)
            world.recorder.sample(self.now, counts)


def _ended(
    status: np.ndarray[tuple[int], np.dtype[np.int8]],
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return status >= COMPLETED
