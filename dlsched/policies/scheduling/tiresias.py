"""Tiresias: discretized 2D-LAS and 2D-Gittins.

Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019.
Minimise the average JCT of gangs of unknown duration, preemptively. Attained
service has two dimensions, W = seconds executed × GPUs, in GPU-seconds. Jobs fall through queues as
W passes the limits (`dlas-gpu`; `dlas` counts seconds only); with a sample of past jobs the queues
are sorted by Gittins index (`gittins`). A job that has waited `knob` times as long as it executed
is promoted to the first queue, and its service counts from 0 again; knob 0 never promotes.

`clock` chooses the seconds that count, `equals` the order within a queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dlsched.core.allocation import Ranking, Rebuild
from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.memory import finished_seen, kept, memory
from dlsched.core.options import option
from dlsched.core.scheduling import QuietRounds, SchedulingPolicy
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk.following import follow
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.demotions import Demotions
from dlsched.policies.scheduling.gittins import GittinsIndex
from dlsched.policies.scheduling.key_order import REBUILD
from dlsched.policies.scheduling.multi_queue import REACHED_S, FeedbackQueues
from dlsched.policies.scheduling.ordering import TwoLists

RELEARN = 1.1  # growth of the history after which the index is learned again


@dataclass(frozen=True, slots=True, kw_only=True)
class TiresiasOptions:
    """Discretized 2D-LAS and 2D-Gittins."""

    variant: Literal["dlas-gpu", "dlas", "gittins"] = option(
        "dlas-gpu", "service in GPU-seconds, in seconds, or GPU-seconds with Gittins index"
    )
    limits: tuple[float, ...] = option(
        (3250.0, 7200.0),
        "service at which a job leaves each queue except the last, ascending",
        low=0.0,
        ascending=True,
    )
    knob: float = option(
        0.0, "promote after waiting this many times the executed time; 0 never does", low=0.0
    )
    sample: tuple[float, ...] = option(
        (),
        "GPU-seconds of past jobs (a file, one number a line); empty: those finished in this run",
        from_file=True,
    )
    delta: float = option(3250.0, "Δ of the Gittins index, in GPU-seconds", low=1e-9)
    rebuild: Rebuild = option("sticky", REBUILD)
    clock: Literal["executed", "held"] = option(
        "executed", "seconds that count as service: of work, or on GPUs with restarts included"
    )
    equals: Literal["running", "arrival", "submit"] = option(
        "running",
        "order within a queue: running jobs first, by arrival in it, or by submit time (of equals "
        "running jobs first, then in the order of the last start or stop)",
    )


class Falling(NamedTuple):
    """Running rows that may be demoted to the next queue, as columns."""

    positions: Rows  # among the units ranked
    rows: Rows
    executed: Floats  # seconds since the last promotion
    gpus: Floats


class Tiresias(SchedulingPolicy[TiresiasOptions]):
    """Clocks, demotion and promotion, order, and the next jump, in this order.

    Attributes:
        close_s: a limit counts as reached when service is this close to it, in its unit.
    """

    close_s = REACHED_S

    name = "tiresias"
    summary = "discretized 2D-LAS (dlas-gpu, dlas) and 2D-Gittins, with promotion"
    at_limits = "tries"
    preemptive = True
    rests = False  # queues and waiting times change even if no job waits

    _at_promotion: Floats = memory(0.0)  # seconds executed before the last promotion
    _wait: Floats = memory(0.0)  # seconds waited, once executed, since the last promotion
    _promotions: Ints = memory(0)
    _last: float = kept(0.0)  # time of the last decision
    _learnt_from: int = finished_seen()
    _work: Floats | None = kept(None, key="learnt")  # GPU-seconds of jobs that finished

    def __init__(self, options: TiresiasOptions) -> None:
        super().__init__(options)
        self._queues = FeedbackQueues(len(options.limits) + 1)
        self._lists = TwoLists()
        self.memories = (self._queues, self._lists)
        self._limits: Floats = np.array([*options.limits, np.inf])
        self._reads_all_clocks = options.knob > 0 or options.variant == "gittins"
        self.fills = "skip"
        self._gittins: GittinsIndex | None = None
        if options.sample:
            self._gittins = self._index_of(np.asarray(options.sample, np.float64))

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Advance clocks, demote and promote, walk the queues, find the next jump.

        A fill between rounds only walks the waiting jobs, in the order of their queues.
        """
        waiting = (~units.running).nonzero()[0]
        self._join(units, walk)
        # without promotion and index, only the clocks of rows that may still be demoted
        # matter, and these are few: the other clocks are not read
        executed = self._executed(units) if self._reads_all_clocks else None
        if executed is not None:
            self._advance_waits(units, executed, ctx.now)
        running = units.running
        falling = None
        if ctx.mode == "full":
            falling = self._can_fall(units, running, executed)
            executed = self._demote_and_promote(units, executed, falling, walk)
        if waiting.size:
            order = self._order(units, executed, ctx)
            follow(walk, units, Ranking(order=order, rebuild=self.options.rebuild))
            running = walk.runs(units)
            falling = None  # other rows run now
            if self.options.equals == "submit":
                self._lists.moved([*walk.suspended, *walk.launched])
            if self.options.equals == "running" and np.count_nonzero(running) < len(running):
                active = ctx.units
                self._queues.running_first(active, walk.runs(active))
        if falling is None:
            falling = self._can_fall(units, running, executed)
        jump = self._next_jump(units, executed, running, falling, ctx.now)
        walk.wake_at(jump)
        changed = self.options.rebuild == "counted" and bool(walk.suspended or walk.launched)
        walk.stable_until(-np.inf if changed or self.options.variant == "gittins" else jump)

    def fill_key(self, row: int, table: UnitTable) -> tuple[float, float]:
        """Its queue and its place there; a new row will be the last of the first."""
        queue, place = self._queues.queue, self._queues.place
        if row >= len(queue) or queue[row] < 0:
            return 0, np.inf
        return queue.item(row), place.item(row)

    def quiet_rounds(self, ctx: RoundContext, admitted: Ints) -> QuietRounds | None:
        """Demotions, where the time of each can be told while its row runs."""
        options = self.options
        if self._reads_all_clocks or options.rebuild != "sticky":
            return None
        if options.equals == "submit":
            return None
        self.reach(len(ctx.table))
        self._queues.reach(len(ctx.table))
        rows = np.fromiter(ctx.occupancy.held, np.int64, len(ctx.occupancy.held))
        if (self._queues.queue[rows] < 0).any():
            return None  # another policy has started it
        demotions = Demotions(
            self._queues,
            self._limits,
            ctx,
            admitted,
            by_gpus=options.variant != "dlas",
            held=options.clock == "held",
        )
        units = Units(ctx.table, rows, ctx.now)
        falling = self._can_fall(units, units.running, None)
        demotions.enter(falling.rows, ctx.now, self._until_fall(falling))
        return demotions

    # -- step 2: arrivals -------------------------------------------------------------------------

    def _join(self, units: Units, walk: Walk) -> None:
        """Put new rows at the tail of the first queue, also those that another policy started."""
        self.reach(len(units.table))
        for position in self._queues.join(units).tolist():
            walk.output("promotions", int(units.rows[position]), 0.0)

    # -- step 3: clocks, demotion, promotion ------------------------------------------------------

    def _executed(self, units: Units) -> Floats:
        """Seconds executed since the last promotion."""
        done = units.executed if self.options.clock == "executed" else units.held_s
        return done - self._at_promotion[units.rows]

    def _service(self, some: Falling) -> Floats:
        """A: executed × GPUs, or executed seconds for `dlas`."""
        return some.executed if self.options.variant == "dlas" else some.executed * some.gpus

    def _limit(self, some: Falling) -> Floats:
        """Service at which rows leave their queues; infinite in the last queue."""
        limit: Floats = self._limits[self._queues.queue[some.rows]]
        return limit

    def _advance_waits(self, units: Units, executed: Floats, now: float) -> None:
        waits = ~units.running & (executed > 0)
        self._wait[units.rows[waits]] += now - self._last
        self._last = now

    def _can_fall(self, units: Units, running: Bools, executed: Floats | None) -> Falling:
        """The running rows above the last queue."""
        above = self._queues.queue[units.rows] < self._queues.last
        positions = (running & above).nonzero()[0]
        some = units[positions]
        done = self._executed(some) if executed is None else executed[positions]
        return Falling(positions, some.rows, done, some.counted_gpus)

    def _demote_and_promote(
        self, units: Units, executed: Floats | None, falling: Falling, walk: Walk
    ) -> Floats | None:
        """Move rows to the tails of their new queues, in order of arrival, one step a decision."""
        falls = self._service(falling) >= self._limit(falling) - self.close_s
        if executed is None or self.options.knob <= 0:
            rows = falling.rows[falls]
            if rows.size:
                self._queues.move(rows, self._queues.queue[rows] + np.int8(1))
            return executed
        queue = self._queues.queue[units.rows]
        may = ~units.running & (queue > 0) & (executed > 0)
        rises = may & (
            self._wait[units.rows] >= self._noticed(executed * self.options.knob) - self.close_s
        )
        moved = rises.copy()
        moved[falling.positions[falls]] = True
        if not moved.any():
            return executed
        self._queues.move(units.rows[moved], np.where(rises, 0, queue + 1)[moved].astype(np.int8))
        for row in units.rows[rises].tolist():
            self._promotions[row] += 1
            walk.output("promotions", row, float(self._promotions[row]))
        risen = units.rows[rises]
        self._at_promotion[risen] += executed[rises]
        self._wait[risen] = 0.0
        return np.where(rises, 0.0, executed)

    def _noticed(self, due: Floats) -> Floats:
        """The seconds after which it is noticed that a row has waited so long."""
        return due

    # -- step 4: order ----------------------------------------------------------------------------

    def _order(self, units: Units, executed: Floats | None, ctx: RoundContext) -> Rows:
        if self.options.equals == "submit":
            base = self._lists.order(units, running_first=True)
            queue = self._queues.queue[units.rows]
            return base[np.lexsort((units.submit_time[base], queue[base]))]
        if executed is None or self.options.variant != "gittins":
            return self._queues.order(units)
        index = self._learnt(ctx)(executed * units.counted_gpus)
        order = np.lexsort((self._queues.place[units.rows], units.submit_time, -index))
        self._queues.rearrange(units.rows[order])
        return self._queues.order(units)

    def _learnt(self, ctx: RoundContext) -> GittinsIndex:
        """The index from the given sample, or from the jobs that have finished in this run."""
        if self.options.sample and self._gittins is not None:
            return self._gittins
        count = len(ctx.finished)
        if self._gittins is None or count >= max(
            self._learnt_from * RELEARN, self._learnt_from + 1
        ):
            table, rows = ctx.table, np.array(ctx.finished, np.int64)
            needed = table.executed[rows] * table.gang[rows] * table.parts(rows)
            self._work, self._learnt_from = needed, count
            self.recall()
            assert self._gittins is not None
        return self._gittins

    def recall(self) -> None:
        """The index follows from the jobs that it was learned from, unless a sample was given."""
        if self._work is not None and not self.options.sample:
            self._gittins = self._index_of(self._work)

    def _index_of(self, sample: Floats) -> GittinsIndex:
        return GittinsIndex(sample, self.options.delta)

    # -- step 7: next jump ------------------------------------------------------------------------

    def _next_jump(
        self,
        units: Units,
        executed: Floats | None,
        running: Bools,
        falling: Falling,
        now: float,
    ) -> float:
        """When the next row reaches its limit, or has waited long enough to be promoted."""
        waits = [np.inf]
        if falling.rows.size:
            waits.append(float(self._until_fall(falling).min()))
        if executed is not None and self.options.knob > 0:
            queue = self._queues.queue[units.rows]
            due = executed * self.options.knob - self._wait[units.rows]
            due = self._noticed(due)
            rising = due[~running & (queue > 0) & (executed > 0) & (due > 0)]
            if rising.size:
                waits.append(float(rising.min()))
        return now + min(waits)

    def _until_fall(self, some: Falling) -> Floats:
        limit = self._limit(some)
        if self.options.variant == "dlas":
            return limit - some.executed
        return np.asarray((limit - some.executed * some.gpus) / some.gpus)
