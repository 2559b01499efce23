"""What configurations are worth to all jobs of a round: G, and what a move costs.

Elastic jobs whose goodput can be known are worth their goodput; the others run on all the GPUs of
their gang or not at all, and are worth their throughput by type, so that the slowest type counts as
many as they have GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.goodput.belief import GoodputBelief
from dlsched.core.units import Units
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations
from dlsched.policies.scheduling.sia.goodputs import Adaptive, goodput_rows, normalised
from dlsched.policies.scheduling.sia.options import SiaOptions
from dlsched.policies.scheduling.sia.program import MISSING
from dlsched.policies.scheduling.sia.restarts import restart_factor

__all__ = ["Worth", "worth_of"]

Known = Callable[[Adaptive, Configurations], Floats]


class Worth(NamedTuple):
    """A round's jobs.

    Attributes:
        rows: who.
        elastic: whose GPUs may be chosen.
        adapts: who chooses its own batch size.
        worth: G, before moves are charged.
        factor: r, what is left of it after a move.
    """

    rows: Rows
    elastic: Bools
    adapts: Bools
    worth: Floats
    factor: Floats


def worth_of(units: Units, ctx: RoundContext, room: Configurations, options: SiaOptions) -> Worth:
    """G of all jobs.

    Args:
        units: who.
        ctx: the round.
        room: configurations, those of the gangs of jobs that cannot change among them.
        options: what may be chosen.
    """
    table, rows = ctx.table, units.rows
    elastic = elastic_rows(units, ctx, options)
    worth = np.full((len(rows), len(room)), MISSING)
    restart_s = np.full(len(rows), ctx.restart_overhead)
    adapts = np.zeros(len(rows), np.bool_)
    if ctx.goodput is not None:
        restart_s = np.maximum(np.nan_to_num(ctx.goodput.restart_s(rows)), 0.0)
        some = np.flatnonzero(elastic)
        jobs = _adaptive(rows[some], ctx, ctx.goodput, options, room)
        adapts[some] = np.isnan(jobs.batch)
        found = goodput_rows(jobs, ctx.goodput, room, share_largest=options.share_largest)
        worth[some] = normalised(found, jobs.unit, room)
    rigid = np.flatnonzero(~elastic)
    worth[rigid] = _throughput_rows(rows[rigid], ctx, room)
    _keep_to_pools(worth, units, ctx, room)
    factor = restart_factor(
        ctx.now - units.submit_time,
        np.maximum(table.starts[rows] - 1, 0),
        restart_s,
        np.where(elastic, ctx.now - units.submit_time, units.attained),
    )
    return Worth(rows, elastic, adapts, worth, factor)


def elastic_rows(units: Units, ctx: RoundContext, options: SiaOptions) -> Bools:
    """Whose number of GPUs may be chosen: it says so, and its goodput can be known."""
    if ctx.goodput is None or options.jobs == "rigid":
        return np.zeros(len(units), np.bool_)
    fewest, most = ctx.table.min_gpus[units.rows], ctx.table.max_gpus[units.rows]
    limits = ctx.goodput.limits(units.rows)
    known = np.isfinite(np.broadcast_to(np.asarray(limits.initial, np.float64), fewest.shape))
    return np.asarray(known & (fewest >= 0) & (most > fewest))


def _adaptive(
    rows: Rows,
    ctx: RoundContext,
    belief: GoodputBelief,
    options: SiaOptions,
    room: Configurations,
) -> Adaptive:
    table = ctx.table
    batch = np.full(len(rows), np.nan)
    if options.jobs == "fixed-batch":
        asked = table.extra.get("batch_size")
        if asked is not None:
            batch = np.asarray(asked[rows], np.float64)
    return Adaptive(
        rows=rows,
        unit=np.array([belief.replica_gpus(rows, kind) for kind in room.types], np.int64).T.reshape(
            len(rows), len(room.types)
        ),
        batch=batch,
        fewest=np.maximum(table.min_gpus[rows], 1),
        most=table.max_gpus[rows],
    )


def _throughput_rows(rows: Rows, ctx: RoundContext, room: Configurations) -> Floats:
    """Throughput by type of jobs that keep their gang."""
    worth = np.full((len(rows), len(room)), MISSING)
    gang = ctx.table.gang[rows]
    rate = np.ones((len(rows), len(room.types)))
    if ctx.speeds is not None and len(rows):
        rate = ctx.speeds.alone(rows, gang, room.types)
    at = np.array(
        [[room.index(kind, gpus) for kind in range(len(room.types))] for gpus in gang.tolist()],
        np.int64,
    ).reshape(rate.shape)
    possible = (at != NONE) & (rate > 0)
    least = np.where(possible, rate, np.inf).min(axis=1, initial=np.inf)
    job, kind = np.nonzero(possible)
    worth[job, at[job, kind]] = gang[job] * rate[job, kind] / least[job]
    return worth


def _keep_to_pools(worth: Floats, units: Units, ctx: RoundContext, room: Configurations) -> None:
    """Whoever may not use a type gets nothing there."""
    if ctx.pools.whole:
        return
    occupancy = ctx.occupancy
    nodes = [
        occupancy.cluster.nodes_mask(np.flatnonzero(occupancy.type_of == kind).tolist())
        for kind in range(len(room.types))
    ]
    pools: Ints = units.pool
    for pool in np.unique(pools).tolist():
        shut = [kind for kind, own in enumerate(nodes) if not ctx.pools.nodes[pool] & own]
        worth[np.ix_(pools == pool, np.isin(room.kind, shut))] = MISSING
