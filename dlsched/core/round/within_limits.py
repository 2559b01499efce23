"""A decision under limits on the GPUs of classes, users and other holders, and under ceilings.

A policy that tries rows one by one sees all of them. One that divides GPUs among the rows that it
sees would divide them among rows that can't start together, so it sees only waiting rows that can;
what it leaves idle goes to the others. In both no row that waits takes room from another.

A policy that divides does see rows over the ceiling of their tenant, as running rows of the same
tenant may lose their GPUs to them. What it would give to a row that its ceiling refuses goes to
others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Rows
from dlsched.core.context import RoundContext
from dlsched.core.scheduling import Chooser, SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.room_under_limits import RoomUnderLimits
from dlsched.core.walk.walk import Walk


def within_limits(
    policy: SchedulingPolicy[Any], ctx: RoundContext, walk: Walk, allocate: Callable[[], None]
) -> None:
    """Have a policy `allocate` so that no limit is passed; then say which rows wait for one."""
    limits = walk.limits
    inside = policy.inside if isinstance(policy, Chooser) else policy
    hidden: Rows = np.zeros(0, np.int64)
    if limits is None or inside.sees_over_limits:
        allocate()
    else:
        hidden = _hidden(inside, ctx, limits)
        with _without(hidden, ctx, limits):
            allocate()
        if hidden.size:
            _rank_too(hidden, inside, ctx, walk)
    unseen = hidden
    if inside.at_limits == "divides" and not inside.sees_over_limits:
        if walk.tenancy is not None and walk.tenancy.has_refused:
            units = Units(ctx.table, _waiting(ctx), ctx.now)
            unseen = units.rows[inside.order_at_limits(units, ctx)]
        _fill(unseen, ctx, walk)
    if unseen.size or (limits is not None and walk.suspended):
        # promised by a policy that has not seen them; or rows that have left make room for others
        walk.stable_until(-math.inf)
    if limits is not None:
        walk.tell_limits(limits.tell(_waiting(ctx), ctx.occupancy))


def _waiting(ctx: RoundContext) -> Rows:
    """The rows without GPUs, as of now."""
    found: Rows = ctx.active[~ctx.table.marks(ctx.occupancy.held)[ctx.active]]
    return found


def _hidden(policy: SchedulingPolicy[Any], ctx: RoundContext, limits: RoomUnderLimits) -> Rows:
    """The waiting rows that a policy does not see, in its order."""
    waiting = ctx.waiting
    rows = waiting.rows[policy.order_at_limits(waiting, ctx)]
    whole = policy.preemptive and ctx.mode == "full"
    hidden: Rows = rows[~limits.chosen(rows, _may_start(rows, ctx, whole=whole))]
    return hidden


def _may_start(rows: Rows, ctx: RoundContext, *, whole: bool) -> Bools:
    """Are there enough GPUs for each of some rows, counted by pool?

    On `whole` nodes that take work, where a policy may take GPUs from others; else free ones.
    """
    table, occupancy, pools = ctx.table, ctx.occupancy, ctx.pools.nodes
    pool = table.pool[rows]
    count = occupancy.capacity_in if whole else occupancy.free_in
    most = {each: count(pools[each] & occupancy.open_nodes) for each in np.unique(pool).tolist()}
    gpus = np.array([most[each] for each in pool.tolist()], np.int64)
    least = np.where(table.min_gpus[rows] > 0, table.min_gpus[rows], table.gang[rows])
    found: Bools = np.minimum(least, table.gang[rows]) <= gpus
    return found


def _rank_too(hidden: Rows, policy: SchedulingPolicy[Any], ctx: RoundContext, walk: Walk) -> None:
    """Put hidden rows where they stand among those that a policy has ranked, if it ranks any."""
    ranked = walk.order_so_far
    if ranked is None:
        return
    is_there = ctx.table.marks([*ranked.tolist(), *hidden.tolist()])
    every = Units(ctx.table, ctx.active[is_there[ctx.active]], ctx.now)
    walk.ranked(every.rows[policy.order_at_limits(every, ctx)])


@contextmanager
def _without(hidden: Rows, ctx: RoundContext, limits: RoomUnderLimits) -> Iterator[None]:
    """Show a policy no hidden rows, and elastic rows that grow no farther than limits allow."""
    table, active = ctx.table, ctx.active
    shown = active[~table.marks(hidden.tolist())[active]] if hidden.size else active
    elastic, most = limits.bounds(shown)
    before = table.max_gpus[elastic]
    ctx.active, table.max_gpus[elastic] = shown, most
    try:
        yield
    finally:
        ctx.active, table.max_gpus[elastic] = active, before


def _fill(rows: Rows, ctx: RoundContext, walk: Walk) -> None:
    """Give idle GPUs to rows for which limits have room after all."""
    for row in rows[walk.within_limits(rows)].tolist():
        if not ctx.free_gpus:
            return
        walk.place(row)
