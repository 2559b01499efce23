"""What would happen from here: a live snapshot run on by the simulated world.

The same policies decide, predictions stand for durations, and nothing more arrives. So a pending
job's start can be predicted, together with what the prediction rests on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dlsched.composition.parts import twin_of
from dlsched.composition.settings import Costs
from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Rows
from dlsched.core.context import RoundContext
from dlsched.core.gpu_request import FreeGpus, GpuRequest, HostResources
from dlsched.core.round.cycle import Cycle
from dlsched.core.speed.belief import AsBelieved
from dlsched.core.speed.truth import PerformanceModel
from dlsched.core.units import FUTURE, HELD_BACK, RUNNING, WAITING
from dlsched.core.walk.shape import place_shaped
from dlsched.daemon.round.prepared_round import PreparedRound, prepare
from dlsched.daemon.round.snapshot import LiveSnapshot
from simulate.engine import Engine
from simulate.forecast import forecaster
from simulate.results.recorder import Recorder
from simulate.world import World


def engine_of(prepared: PreparedRound) -> Engine:
    """A simulated world in the state of a live one; it has no arrivals of its own."""
    ctx = prepared.ctx
    table = ctx.table
    believed = np.maximum(table.predicted_work, table.executed)
    performance = AsBelieved(ctx.perf)
    _run_as_believed(ctx, performance)
    world = World(
        table,
        ctx.occupancy,
        np.where(np.isnan(believed), prepared.snapshot.settings.unknown_s, believed),
        performance=performance,
        semantics=ctx.semantics,
        costs=Costs(restart_overhead=ctx.restart_overhead, min_run=ctx.min_run),
        recorder=Recorder(timeline=False, segments=False),
    )
    possible = _possible(prepared)
    active, queue = prepared.cycle.active, prepared.cycle.queue
    going = active[possible[active]]
    status = table.status[going]
    running = int(np.count_nonzero(status == RUNNING))
    world.begin_with(running, going[status == WAITING].tolist())
    world.finished = ctx.finished
    cycle = Cycle(
        replace(ctx, active=going), prepared.cycle.parts, held_back=queue[possible[queue]]
    )
    return Engine.resume(world, cycle, visible=table.submit_time)


def _run_as_believed(ctx: RoundContext, performance: PerformanceModel) -> None:
    """What a running job has done counts as it did; from now on it runs as is believed."""
    table, now = ctx.table, ctx.now
    for row, placement in ctx.occupancy.held.items():
        rate = performance.rate(row, placement, table, ctx.occupancy)
        before, since = float(table.rate[row]), float(table.progress_from[row])
        if rate != before and since < now:
            table.executed[row] += (now - since) * before
            table.progress_from[row] = now
        table.rate[row] = rate


def _possible(prepared: PreparedRound) -> Bools:
    """Which rows could be placed if all others left, on the nodes that there are now.

    The others (their node is drained, say) would keep a run-on going for ever.
    """
    ctx, table = prepared.ctx, prepared.ctx.table
    empty = ctx.occupancy.copy()
    for row in list(empty.held):
        empty.release(row)
    for row in list(empty.reserved):
        empty.unreserve(row)
    host = HostResources(empty, table) if empty.cluster.tracks_host else None
    placement = twin_of(prepared.cycle.parts.placement)
    answers: dict[object, bool] = {}
    possible = np.ones(len(table), np.bool_)
    for row in [*ctx.active.tolist(), *prepared.cycle.queue.tolist()]:
        if table.status[row] == RUNNING:
            continue
        pool = int(table.pool[row])
        request = GpuRequest(row, int(table.gang[row]), table)
        key = (pool, placement.sameness(request), request.shape, request.whole, request.host_needs)
        if key not in answers:
            free = FreeGpus(empty, ctx.pools.nodes[pool])
            if host is not None:
                free.limit(request, host)
            if request.is_shaped:
                chosen = place_shaped(placement, request, free)
            else:
                chosen = placement.place(request, free)
            answers[key] = not isinstance(chosen, Refused)
        possible[row] = answers[key]
    return possible


def forecaster_of(prepared: PreparedRound) -> forecaster:
    """For choosers: what other parts would make of the present state."""
    return forecaster(engine_of(prepared))


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
        patience_s: what it may cost; what was not reached by then is left out.
    """
    prepared = prepare(snapshot)
    if prepared is None:
        return []
    table = prepared.ctx.table
    pending = np.isin(table.status, (WAITING, HELD_BACK, FUTURE))
    table.first_start[pending] = np.nan  # of those that ran before, the next start is asked for
    found = forecaster(engine_of(prepared), patience_s=patience_s)(horizon=horizon_s)
    rows: Rows = found.rows
    starts = np.where(pending[rows], found.first_start, np.nan)
    basis = _basis(prepared)
    jobs = snapshot.columns["job"]
    return [
        Foreseen(int(jobs[row]), start, end, basis)
        for row, start, end in zip(
            rows.tolist(), starts.tolist(), found.finish.tolist(), strict=True
        )
        if not (math.isnan(start) and math.isnan(end))
    ]


def _basis(prepared: PreparedRound) -> str:
    """What the durations are that a prediction rests on."""
    table, snapshot = prepared.ctx.table, prepared.snapshot
    live = np.concatenate([prepared.ctx.active, prepared.cycle.queue])
    says = ~np.isnan(snapshot.columns["expected"][live])
    limits = ~np.isnan(table.time_limit[live]) & ~says
    estimator = prepared.cycle.parts.estimator.name
    words = ["expected times"] if says.any() else []
    if not says.all():
        if estimator != "user":
            words.append(estimator)
        elif limits.any():
            words.append("time limits")
        if estimator == "user" and not (says | limits).all():
            words.append("the assumed time of jobs without a limit")
    if prepared.ctx.perf.by_type is not None:
        words.append("measured speeds")
    return ", ".join(words)
