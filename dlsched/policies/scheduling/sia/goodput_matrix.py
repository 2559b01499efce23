"""The matrix G: the value of every configuration for every job of a round, and the cost of a move.

The value for an elastic job with a goodput model is its goodput. Other jobs run on the GPUs of
their gang or not at all; the value is their throughput on the type, in multiples such that the
slowest type counts as many as the gang has GPUs.

A move costs a job a part of its value. A configuration that the job does not have now is worth r
times as much, with

    r = max(T − N·S, 0) / (T + S)

T seconds since its submission, N restarts so far, S seconds that one takes. A job younger than S
(one that cannot adapt: with less service than S) loses nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.goodput.belief import GoodputBelief
from dlsched.core.units import Units
from dlsched.policies.scheduling.sia.adaptive_goodput import Adaptive, goodput_rows, normalised
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations
from dlsched.policies.scheduling.sia.integer_program import EXACT, MISSING, Terms
from dlsched.policies.scheduling.sia.options import SiaOptions


def restart_factor(
    age: Floats, restarts: Ints, restart_s: Floats, service: Floats | None = None
) -> Floats:
    """The factor r of each job.

    Args:
        age: seconds since the submission.
        restarts: number of restarts so far.
        restart_s: seconds that a restart costs.
        service: seconds that are compared with `restart_s` to find young jobs; the age when None.
    """
    young = (age if service is None else service) < restart_s
    kept = np.maximum(age - restarts * restart_s, 0.0) / np.maximum(age + restart_s, 1e-9)
    return np.where(young, 1.0, kept)


def charge_moves(worth: Floats, now: Ints, factor: Floats, *, terms: Terms = EXACT) -> Floats:
    """G with all but the present configuration scaled by r; jobs without GPUs lose nothing.

    Args:
        worth: G, [job, configuration].
        now: the present configuration of each job, or NONE.
        factor: r.
        terms: how G is multiplied.
    """
    some: Bools = now != NONE
    scale = np.where(some, factor, 1.0)[:, None]
    charged = terms.charged(worth, scale)
    at = np.flatnonzero(some)
    charged[at, now[at]] = worth[at, now[at]]
    return charged


class Worth(NamedTuple):
    """The jobs of a round, with their part of G.

    Attributes:
        rows: the jobs.
        elastic: jobs with a free number of GPUs.
        adapts: jobs that adapt their batch size.
        worth: G, before moves are charged.
        factor: r.
    """

    rows: Rows
    elastic: Bools
    adapts: Bools
    worth: Floats
    factor: Floats


def worth_of(units: Units, ctx: RoundContext, room: Configurations, options: SiaOptions) -> Worth:
    """G of all jobs.

    Args:
        units: the jobs.
        ctx: the round.
        room: configurations, including the gangs of jobs that cannot change.
        options: the choices for elastic jobs.
    """
    table, rows = ctx.table, units.rows
    elastic = elastic_rows(units, ctx, options)
    worth = np.full((len(rows), len(room)), MISSING)
    restart_s = np.full(len(rows), ctx.restart_overhead)
    adapts = np.zeros(len(rows), np.bool_)
    if ctx.perf.goodput is not None:
        restart_s = np.maximum(np.nan_to_num(ctx.perf.goodput.restart_s(rows)), 0.0)
        some = np.flatnonzero(elastic)
        jobs = _adaptive(rows[some], ctx, ctx.perf.goodput, options, room)
        adapts[some] = np.isnan(jobs.batch)
        found = goodput_rows(jobs, ctx.perf.goodput, room, share_largest=options.share_largest)
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
    """Jobs with a free number of GPUs: they were submitted so, and have a goodput model."""
    if ctx.perf.goodput is None or options.jobs == "rigid":
        return np.zeros(len(units), np.bool_)
    fewest, most = ctx.table.min_gpus[units.rows], ctx.table.max_gpus[units.rows]
    limits = ctx.perf.goodput.limits(units.rows)
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
        unit=np.array(
            [belief.replica_gpus(rows, gpu_type) for gpu_type in room.types], np.int64
        ).T.reshape(len(rows), len(room.types)),
        batch=batch,
        fewest=np.maximum(table.min_gpus[rows], 1),
        most=table.max_gpus[rows],
    )


def _throughput_rows(rows: Rows, ctx: RoundContext, room: Configurations) -> Floats:
    """G of jobs that keep their gang, from their throughput by type."""
    worth = np.full((len(rows), len(room)), MISSING)
    gang = ctx.table.gang[rows]
    rate = np.ones((0, len(room.types)))
    if len(rows):
        rate = ctx.perf.rate(rows, room.types, gang)
    at = np.array(
        [
            [room.index(gpu_type, gpus) for gpu_type in range(len(room.types))]
            for gpus in gang.tolist()
        ],
        np.int64,
    ).reshape(rate.shape)
    possible = (at != NONE) & (rate > 0)
    least = np.where(possible, rate, np.inf).min(axis=1, initial=np.inf)
    job, gpu_type = np.nonzero(possible)
    worth[job, at[job, gpu_type]] = gang[job] * rate[job, gpu_type] / least[job]
    return worth


def _keep_to_pools(worth: Floats, units: Units, ctx: RoundContext, room: Configurations) -> None:
    """Exclude the types that are not in a job's pool."""
    if ctx.pools.whole:
        return
    occupancy = ctx.occupancy
    nodes = [
        occupancy.cluster.nodes_mask(np.flatnonzero(occupancy.type_of == gpu_type).tolist())
        for gpu_type in range(len(room.types))
    ]
    pools: Ints = units.pool
    for pool in np.unique(pools).tolist():
        shut = [gpu_type for gpu_type, own in enumerate(nodes) if not ctx.pools.nodes[pool] & own]
        worth[np.ix_(pools == pool, np.isin(room.gpu_type, shut))] = MISSING
