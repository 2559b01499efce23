"""What would happen from here: a live snapshot run on by the simulated world.

The same policies decide, predictions stand for durations, and nothing more arrives. So a pending
job's start can be told before it happens, together with what the telling rests on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Rows
from dlsched.core.context import RoundContext
from dlsched.core.free import Ask, FreeGpus, HostResources
from dlsched.core.performance import BelievedSpeed, PerformanceModel, PlainDuration
from dlsched.core.scaling import ScaledDuration
from dlsched.core.shape import place_shaped
from dlsched.core.units import FUTURE, HELD_BACK, RUNNING, WAITING
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.standing import Standing, stand
from simulate.engine import Engine
from simulate.forecast import forecaster, twin_of
from simulate.recorder import Recorder
from simulate.world import Costs, World

__all__ = ["Foreseen", "engine_of", "forecaster_of", "foreseen", "predicted_starts"]


def engine_of(standing: Standing) -> Engine:
    """A simulated world in the state of a live one; it has no arrivals of its own."""
    ctx = standing.ctx
    table = ctx.table
    believed = np.maximum(table.predicted_work, table.executed)
    performance = _believed_pace(standing)
    _pace_those_that_run(ctx, performance)
    world = World(
        table,
        ctx.occupancy,
        np.where(np.isnan(believed), standing.snapshot.settings.unknown_s, believed),
        performance=performance,
        semantics=ctx.semantics,
        costs=Costs(restart_overhead=ctx.restart_overhead, min_run=ctx.min_run),
        recorder=Recorder(timeline=False, segments=False),
    )
    possible = _possible(standing)
    going = ctx.active[possible[ctx.active]]
    active = table.status[going]
    world.running = int(np.count_nonzero(active == RUNNING))
    world.waiting = int(np.count_nonzero(active == WAITING))
    world.waiting_gpus = int(table.gang[going[active == WAITING]].sum())
    world.finished = list(ctx.finished)
    engine = Engine(
        world=world,
        parts=standing.parts,
        pools=ctx.pools,
        arrivals=np.zeros(0, np.int64),
        visible=table.submit_time,
        seed=ctx.seed,
        speeds=ctx.speeds,
        scaling=ctx.scaling,
        goodput=ctx.goodput,
    )
    engine.now = ctx.now
    engine._active = going
    engine.held_back = standing.queue[possible[standing.queue]]
    return engine


def _believed_pace(standing: Standing) -> PerformanceModel:
    """How fast jobs are thought to run: by GPUs as they scale, by types as they were measured."""
    ctx = standing.ctx
    by_size = PlainDuration() if ctx.scaling is None else ScaledDuration(ctx.scaling)
    return by_size if ctx.speeds is None else BelievedSpeed(ctx.speeds, by_size)


def _pace_those_that_run(ctx: RoundContext, performance: PerformanceModel) -> None:
    """What a running job has done counts as it did; from now on it runs as is believed."""
    table, now = ctx.table, ctx.now
    for row, placement in ctx.occupancy.held.items():
        pace = performance.rate(row, placement, table, ctx.occupancy)
        before, since = float(table.rate[row]), float(table.progress_from[row])
        if pace != before and since < now:
            table.executed[row] += (now - since) * before
            table.progress_from[row] = now
        table.rate[row] = pace


def _possible(standing: Standing) -> Bools:
    """Which rows could be placed if all others left, on the nodes that there are now.

    The others (their node is drained, say) would keep a run-on going for ever.
    """
    ctx, table = standing.ctx, standing.ctx.table
    empty = ctx.occupancy.copy()
    for row in list(empty.held):
        empty.release(row)
    for row in list(empty.reserved):
        empty.unreserve(row)
    host = HostResources(empty, table) if empty.cluster.tracks_host else None
    placement = twin_of(standing.parts.placement)
    answers: dict[object, bool] = {}
    possible = np.ones(len(table), np.bool_)
    for row in [*ctx.active.tolist(), *standing.queue.tolist()]:
        if table.status[row] == RUNNING:
            continue
        pool = int(table.pool[row])
        ask = Ask(row, int(table.gang[row]), table)
        key = (pool, placement.sameness(ask), ask.shape, ask.whole, ask.host_needs)
        if key not in answers:
            free = FreeGpus(empty, ctx.pools.nodes[pool])
            if host is not None:
                free.limit(ask, host)
            if ask.is_shaped:
                chosen = place_shaped(placement, ask, free)
            else:
                chosen = placement.place(ask, free)
            answers[key] = not isinstance(chosen, Refused)
        possible[row] = answers[key]
    return possible


def forecaster_of(standing: Standing) -> forecaster:
    """For choosers: what other parts would make of the present state."""
    return forecaster(engine_of(standing))


class Foreseen(NamedTuple):
    """What a run-on came to, of one job; seconds of the policy's clock.

    Attributes:
        job: its id.
        start_at: of one that is pending; NaN of others, and where it did not come to that.
        end_at: NaN where it did not come to that.
        basis: what it rests on.
    """

    job: int
    start_at: float
    end_at: float
    basis: str


def predicted_starts(
    snapshot: LiveSnapshot,
    *,
    horizon_s: float = 30 * 86400.0,
    patience_s: float = math.inf,
) -> list[tuple[int, float, str]]:
    """When each pending job would start under the snapshot's policy.

    Args:
        snapshot: the present.
        horizon_s: look no further.
        patience_s: what it may cost; starts that were not come to by then are not told.

    Returns:
        job, seconds of the policy's clock, and the basis; jobs that would not start by then are
        left out.
    """
    found = foreseen(snapshot, horizon_s=horizon_s, patience_s=patience_s)
    return [(job, start, basis) for job, start, _, basis in found if not math.isnan(start)]


def foreseen(
    snapshot: LiveSnapshot,
    *,
    horizon_s: float = 30 * 86400.0,
    patience_s: float = math.inf,
) -> list[Foreseen]:
    """When each pending job would start, and each job end, under the snapshot's policy.

    Args:
        snapshot: the present.
        horizon_s: look no further.
        patience_s: what it may cost; what was not come to by then is not told.
    """
    standing = stand(snapshot)
    if standing is None:
        return []
    table = standing.ctx.table
    pending = np.isin(table.status, (WAITING, HELD_BACK, FUTURE))
    table.first_start[pending] = np.nan  # of those that ran before, the next start is asked for
    found = forecaster(engine_of(standing), patience_s=patience_s)(horizon=horizon_s)
    rows: Rows = found.rows
    starts = np.where(pending[rows], found.first_start, np.nan)
    basis = _basis(standing)
    jobs = snapshot.columns["job"]
    return [
        Foreseen(int(jobs[row]), start, end, basis)
        for row, start, end in zip(
            rows.tolist(), starts.tolist(), found.finish.tolist(), strict=True
        )
        if not (math.isnan(start) and math.isnan(end))
    ]


def _basis(standing: Standing) -> str:
    """What the durations are that a prediction rests on."""
    table, snapshot = standing.ctx.table, standing.snapshot
    live = np.concatenate([standing.ctx.active, standing.queue])
    says = ~np.isnan(snapshot.columns["expected"][live])
    limits = ~np.isnan(table.time_limit[live]) & ~says
    estimator = standing.parts.estimator.name
    words = ["expected times"] if says.any() else []
    if not says.all():
        if estimator != "user":
            words.append(estimator)
        elif limits.any():
            words.append("time limits")
        if estimator == "user" and not (says | limits).all():
            words.append("the assumed time of jobs without a limit")
    if standing.ctx.speeds is not None:
        words.append("measured speeds")
    return ", ".join(words)
