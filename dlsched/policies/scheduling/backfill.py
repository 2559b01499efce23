"""EASY backfill, and what its relatives share.

Sources: Lifka, JSSPP 1995, and Mu'alem & Feitelson, TPDS 2001. First come, first served, but a job
behind the head may start if it does not delay the head. It needs predicted durations, in seconds;
a job that has outrun its prediction counts as ending one round from now (60 s where there are no
rounds).

A job whose limit may be lowered (`time_min`, Slurm's --time-min) starts behind the head of EASY if
it ends in time with a lower limit, which it then gets.

GPUs are counted by pool. If the placement refuses a job for which enough GPUs are free, the job
waits until the next job ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from dlsched.core.allocation import Grant, Refused
from dlsched.core.arrays import Floats
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk

Start = Callable[[int], Placement | Refused]  # starts a row, or says why not
_WALL_CLOCK = 1e9  # seconds: a policy's clock beyond it is the wall's, of a live cluster
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
    """A time as text for users: of a live cluster in UTC, of a replay in seconds."""
    if not math.isfinite(time):
        return "an unknown time"
    if time < _WALL_CLOCK:
        return f"{time:,.0f} s"
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(slots=True)
class Shadow:
    """The head's reservation: when it can start, and how many GPUs are left over then."""

    time: float
    extra: int


class Easy(SchedulingPolicy[NoOptions]):
    """Start heads of the queue while they fit; then jobs that do not delay the first misfit."""

    name = "easy"
    summary = "FIFO with backfill that never delays the head (EASY)"
    at_limits = "tries"
    needs = frozenset({"predicted_work"})

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Decide for each pool by itself, in order of submission."""
        queue = units[np.argsort(units.submit_time, kind="stable")]
        for pool in pools_in_order(queue, walk):
            backfill(queue[queue.pool == pool], pool, ctx, walk, walk.place)
        walk.stable_until(first_overrun(ctx))


def pools_in_order(queue: Units, walk: Walk) -> list[int]:
    """The pools of a queue, best first; under limits, which hold over all, by their best rows."""
    if walk.limits is not None:
        return list(dict.fromkeys(queue.pool.tolist()))
    pools: list[int] = np.unique(queue.pool).tolist()
    return pools


def backfill(queue: Units, pool: int, ctx: RoundContext, walk: Walk, start: Start) -> None:
    """Start heads of a queue while they fit; then rows that do not delay the first misfit.

    Args:
        queue: waiting units of one pool, best first.
        pool: its number.
        ctx: the snapshot.
        walk: of the decision.
        start: starts a head, or says why not.
    """
    queue = queue[walk.within_limits(queue.rows)] if walk.limits is not None else queue
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
