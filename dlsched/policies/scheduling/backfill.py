"""Backfill: EASY and conservative.

EASY: Lifka, JSSPP 1995, and Mu'alem & Feitelson, TPDS 2001; conservative: Feitelson & Weil, IPPS
1998. First come, first served, but a job behind the
head may start if it does not delay the head (EASY), or any job before it (conservative). Both need
predicted durations, in seconds; a job that has outrun its prediction counts as ending one round
from now (60 s where there are no rounds).

A job whose limit may be lowered (`time_min`, Slurm's --time-min) starts behind the head of EASY if
it ends in time with a lower limit, which it then gets.

GPUs are counted by pool. If the placement refuses a job for which enough GPUs are free, the job
waits until the next job ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlsched.core.allocation import Grant, Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.calendar import Booking, Calendar
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk

Start = Callable[[int], Placement | Refused]  # starts a row, or says why not
OVERRUN_S = 60.0  # seconds until the end of a job that has outrun its prediction, without rounds


def predicted_ends(units: Units, ctx: RoundContext) -> Floats:
    """When running units are expected to end, in seconds."""
    overhead = np.maximum(units.table.progress_from[units.rows] - ctx.now, 0.0)
    left = units.remaining_work + overhead
    return ctx.now + np.where(left > 0, left, ctx.round_length or OVERRUN_S)


def first_overrun(ctx: RoundContext) -> float:
    """When the first running unit will have outrun its prediction; now, if one has already.

    Until then a plan that counts on the predictions stays as it is.
    """
    running = ctx.running
    ends = ctx.now + running.remaining_work
    return float(ends.min()) if len(running) else np.inf


def clock_text(time: float) -> str:
    """A time as text for users."""
    return f"{time:,.0f} s" if np.isfinite(time) else "an unknown time"


@dataclass(slots=True)
class Shadow:
    """The head's reservation: when it can start, and how many GPUs are left over then."""

    time: float
    extra: int


class Easy(SchedulingPolicy[NoOptions]):
    """Start heads of the queue while they fit; then jobs that do not delay the first misfit."""

    name = "easy"
    summary = "FIFO with backfill that never delays the head (EASY)"
    needs = frozenset({"predicted_work"})

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Decide for each pool by itself, in order of submission."""
        queue = units[np.argsort(units.submit_time, kind="stable")]
        for pool in np.unique(queue.pool).tolist():
            backfill(queue[queue.pool == pool], pool, ctx, walk, walk.place)
        walk.stable_until(first_overrun(ctx))


def backfill(queue: Units, pool: int, ctx: RoundContext, walk: Walk, start: Start) -> None:
    """Start heads of a queue while they fit; then rows that do not delay the first misfit.

    Args:
        queue: waiting units of one pool, best first.
        pool: its number.
        ctx: the snapshot.
        walk: of the decision.
        start: starts a head, or says why not.
    """
    gangs, rows = queue.gang.tolist(), queue.rows.tolist()
    duration = queue.predicted_work + ctx.restart_overhead
    least = queue.time_min + ctx.restart_overhead  # NaN: its limit stays
    started, head = _start_heads(rows, walk, start)
    if head == len(rows):
        return
    shadow = _shadow(queue, started, duration, gangs[head], pool, ctx, walk)
    walk.refuse(rows[head], Refused("Resources", f"starts at about {clock_text(shadow.time)}"))
    for k in range(head + 1, len(rows)):
        free = walk.free_gpus(pool)
        if free == 0:
            break
        ends_in_time = ctx.now + duration[k] <= shadow.time
        is_extra = gangs[k] <= shadow.extra
        may_end_in_time = ctx.now + least[k] <= shadow.time
        if gangs[k] > free or not (ends_in_time or is_extra or may_end_in_time):
            continue
        if isinstance(walk.place(rows[k]), Refused) or ends_in_time:
            continue
        if is_extra:
            shadow.extra -= gangs[k]
        else:
            left = shadow.time - ctx.now - ctx.restart_overhead
            walk.grant(rows[k], Grant(time_limit=left))


def _start_heads(rows: list[int], walk: Walk, start: Start) -> tuple[list[int], int]:
    """Start from the head while it fits; a job that waits for its quota does not block.

    Returns:
        the positions started, and the position of the first job that does not fit.
    """
    started: list[int] = []
    for position, row in enumerate(rows):
        placed = start(row)
        if not isinstance(placed, Refused):
            started.append(position)
        elif placed.reason != "Quota":
            return started, position
        else:
            walk.refuse(row, placed)
    return started, len(rows)


def _shadow(
    queue: Units,
    started: list[int],
    duration: Floats,
    gang: int,
    pool: int,
    ctx: RoundContext,
    walk: Walk,
) -> Shadow:
    """The head's reservation: the earliest time at which enough GPUs are free for it."""
    running = ctx.running
    running = running[(running.pool == pool) & walk.runs(running)]
    ends = np.concatenate([predicted_ends(running, ctx), ctx.now + duration[started]])
    gpus = np.concatenate([running.gpus_now, queue.gang[started]])
    order = np.argsort(ends, kind="stable")
    ends, gpus = ends[order], gpus[order]
    free = walk.free_gpus(pool) + np.cumsum(gpus)
    enough = np.flatnonzero(free >= gang)
    if not enough.size:
        return Shadow(np.inf, 0)
    time = float(ends[enough[0]])
    at_shadow = int(free[np.searchsorted(ends, time, side="right") - 1])
    return Shadow(time, at_shadow - gang)


class Conservative(SchedulingPolicy[NoOptions]):
    """Every job gets a reservation when it arrives, and no job may delay it.

    The plan is kept from decision to decision; it is made again, in order of submission, when a job
    ends earlier or later than planned.
    """

    name = "conservative"
    summary = "FIFO with backfill that delays no job (conservative)"
    needs = frozenset({"predicted_work"})

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._plans: dict[int, Calendar] = {}  # by pool
        self._capacity: dict[int, int] = {}
        self._planned: dict[int, Booking] = {}  # waiting and running rows

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Keep the plan or make a new one, then start the jobs that are due."""
        queue = units[np.argsort(units.submit_time, kind="stable")]
        running = ctx.running
        if self._is_off(queue, running, ctx):
            self._plan_anew(queue, running, ctx, walk)
        for row, duration in zip(queue.rows.tolist(), queue.predicted_work.tolist(), strict=True):
            if row not in self._planned:
                self._book(row, duration, ctx, walk)
        all_started = self._start_due(queue, ctx, walk)
        plans = [self._planned.get(row) for row in queue.rows.tolist()]
        later = [plan.start for plan in plans if plan is not None and plan.start > ctx.now]
        walk.wake_at(min(later, default=np.inf))
        ends = [plan.end for plan in self._planned.values()]
        walk.stable_until(min([*later, *ends]) if all_started and (later or ends) else -np.inf)

    def _is_off(self, queue: Units, running: Units, ctx: RoundContext) -> bool:
        """Whether something happened that the plan did not predict."""
        for pool, capacity in self._capacity.items():
            if capacity != ctx.pools.capacity(pool, ctx.occupancy):
                return True
        present = set(running.rows.tolist()) | set(queue.rows.tolist())
        for row in [row for row in self._planned if row not in present]:
            if self._planned.pop(row).end > ctx.now:
                return True  # ended early
        runs = set(running.rows.tolist())
        for row in present:
            booking = self._planned.get(row)
            if booking is None:
                if row in runs:
                    return True
            elif (booking.end <= ctx.now) if row in runs else (booking.start < ctx.now):
                return True  # runs longer than planned, or did not start when planned
        return False

    def _plan_anew(self, queue: Units, running: Units, ctx: RoundContext, walk: Walk) -> None:
        self._plans.clear()
        self._capacity.clear()
        self._planned.clear()
        ends: Floats = predicted_ends(running, ctx)
        for row, gpus, end in zip(
            running.rows.tolist(), running.gpus_now.tolist(), ends, strict=True
        ):
            booking = Booking(row=row, gpus=gpus, start=ctx.now, end=float(end))
            self._plan_of(int(ctx.table.pool[row]), ctx).book(booking)
            self._planned[row] = booking
        for row, duration in zip(queue.rows.tolist(), queue.remaining_work.tolist(), strict=True):
            self._book(row, duration, ctx, walk)

    def _plan_of(self, pool: int, ctx: RoundContext) -> Calendar:
        if pool not in self._plans:
            self._capacity[pool] = ctx.pools.capacity(pool, ctx.occupancy)
            self._plans[pool] = Calendar(self._capacity[pool], start=ctx.now)
        return self._plans[pool]

    def _book(self, row: int, duration: float, ctx: RoundContext, walk: Walk) -> None:
        """Reserve the earliest time; a job that waits for its quota gets no reservation yet."""
        gang = int(ctx.table.gang[row])
        if walk.tenancy is not None and walk.tenancy.over_ceiling(row, gang) is not None:
            return
        plan = self._plan_of(int(ctx.table.pool[row]), ctx)
        plan.forget_before(ctx.now)
        length = max(duration, 0.0) + ctx.restart_overhead
        start = plan.earliest_start(gang, length, not_before=ctx.now)
        booking = Booking(row=row, gpus=gang, start=start, end=start + length)
        if start < np.inf:
            plan.book(booking)
        self._planned[row] = booking

    def _start_due(self, queue: Units, ctx: RoundContext, walk: Walk) -> bool:
        """Start the jobs that are due; returns whether all of them found their GPUs."""
        all_started = True
        for row in queue.rows.tolist():
            booking = self._planned.get(row)
            if booking is None or booking.start <= ctx.now:
                placed = walk.place(row)
                if isinstance(placed, Refused):
                    walk.refuse(row, placed)
                    all_started = False
            else:
                start = clock_text(booking.start)
                walk.refuse(row, Refused("Resources", f"planned to start at {start}"))
        return all_started

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Follow a table that was packed; a booking of a row that is gone counts as ended early."""
        new = {before: row for row, before in enumerate(old.tolist()) if before >= 0}
        gone = len(old)  # numbers that no row has, so that the next decision finds them ended
        planned: dict[int, Booking] = {}
        for before, booking in self._planned.items():
            row = new.get(before, gone)
            gone += before not in new
            planned[row] = replace(booking, row=row)
        self._planned = planned

    def state_dict(self) -> dict[str, Any]:
        """The plan: bookings as [row, GPUs, start, end], free GPUs as steps, by pool."""
        return {
            "planned": [[b.row, b.gpus, b.start, b.end] for b in self._planned.values()],
            "plans": {pool: plan.steps() for pool, plan in self._plans.items()},
            "capacity": dict(self._capacity),
        }

    def load_state_dict(self, state: Any) -> None:
        """Continue with the plan."""
        self._planned = {
            int(row): Booking(row=int(row), gpus=int(gpus), start=start, end=end)
            for row, gpus, start, end in state["planned"]
        }
        self._capacity = {int(pool): int(gpus) for pool, gpus in state["capacity"].items()}
        self._plans = {
            int(pool): Calendar.of_steps(self._capacity[int(pool)], steps)
            for pool, steps in state["plans"].items()
        }
