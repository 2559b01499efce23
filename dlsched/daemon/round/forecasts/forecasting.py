"""What would happen from here: a live snapshot run on by the simulated world.

The same policies decide, predictions stand for durations, and nothing more arrives. So a pending
job's start can be predicted, together with what the prediction rests on.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from dlsched.composition.parts import twin_of
from dlsched.composition.settings import Costs
from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Rows
from dlsched.core.context import RoundContext
from dlsched.core.forecast import Forecast
from dlsched.core.gpu_request import FreeGpus, GpuRequest, HostResources
from dlsched.core.round.cycle import Cycle
from dlsched.core.scenarios import INTERVAL, SCENARIOS
from dlsched.core.speed.belief import AsBelieved
from dlsched.core.speed.truth import PerformanceModel
from dlsched.core.units import RUNNING, WAITING
from dlsched.core.walk.shape import place_shaped
from dlsched.daemon.round.forecasts.foreseen import Foreseen
from dlsched.daemon.round.forecasts.later_arrivals import LaterArrivals
from dlsched.daemon.round.prepared_round import PreparedRound, has_known_steps, prepare
from dlsched.daemon.round.snapshot import LiveSnapshot
from simulate.engine import Engine
from simulate.forecast import forecaster, read
from simulate.future import Future
from simulate.results.recorder import Recorder
from simulate.scenarios import Scenarios
from simulate.world import World

HORIZON_S = 30 * 86400.0


def engine_of(prepared: PreparedRound, later: LaterArrivals | None = None) -> Engine:
    """A simulated world in the state of a live one; it has no arrivals of its own.

    `later` says when jobs become visible that no round sees yet; without it, they never do.
    """
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
    possible = possible_rows(prepared)
    active, queue = prepared.cycle.active, prepared.cycle.queue
    going = active[possible[active]]
    status = table.status[going]
    running = int(np.count_nonzero(status == RUNNING))
    world.begin_with(running, going[status == WAITING].tolist())
    world.finished = ctx.finished
    cycle = Cycle(
        replace(ctx, active=going), prepared.cycle.parts, held_back=queue[possible[queue]]
    )
    visible = table.submit_time if later is None else later.visible
    return Engine.resume(world, cycle, visible=visible)


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


def possible_rows(prepared: PreparedRound, further: Rows | None = None) -> Bools:
    """Which rows could be placed if all others left, on the nodes that there are now.

    Asked are those that a round sees, and `further` ones; others count as possible.

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
    more: list[int] = [] if further is None else further.tolist()
    for row in [*ctx.active.tolist(), *prepared.cycle.queue.tolist(), *more]:
        if table.status[row] == RUNNING:
            continue
        pool = int(table.pool[row])
        request = GpuRequest(row, int(table.gang[row]), table)
        key = (pool, placement.sameness(request), request.layout, request.host_needs)
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


def forecast_with(prepared: PreparedRound, later: LaterArrivals, horizon_s: float) -> Forecast:
    """What becomes of all jobs, those that come later included, within a horizon in seconds."""
    coming = later.rows[possible_rows(prepared, later.rows)[later.rows]]
    engine = engine_of(prepared, later)
    ran = forecaster(engine).run(horizon=horizon_s, arrivals=coming)
    return read(ran.engine, engine, np.concatenate([engine.all_known, coming]))


def future_of(prepared: PreparedRound, row: int, *, segments: bool) -> Future:
    """What becomes of a job's row, and of all others; `segments` has placements recorded."""
    snapshot = prepared.snapshot
    return Future(
        engine_of(prepared),
        snapshot.settings.unknown_s,
        row,
        snapshot.table.job,
        horizon_s=HORIZON_S,
        segments=segments,
    )


def foreseen(
    snapshot: LiveSnapshot,
    *,
    horizon_s: float = HORIZON_S,
    patience_s: float = math.inf,
) -> list[Foreseen]:
    """When each pending job would start, and each job end, under the snapshot's policy.

    Jobs that it would refuse are told, too, with the reason.

    Args:
        snapshot: the present.
        horizon_s: look no further.
        patience_s: what it may cost; what was not reached by then is left out.
    """
    prepared = prepare(snapshot)
    if prepared is None:
        return []
    until = time.monotonic() + patience_s
    scenarios = Scenarios(engine_of(prepared), snapshot.settings.unknown_s)
    for factor, _ in SCENARIOS:
        if not scenarios.look(factor, horizon_s, until - time.monotonic()):
            break
    start, finish = scenarios.starts[0], scenarios.ends[0]
    early, late = (scenarios.quantile(scenarios.starts, q) for q in INTERVAL)
    first, last = (scenarios.quantile(scenarios.ends, q) for q in INTERVAL)
    basis = basis_of(prepared)
    on_time = scenarios.chance_to_meet_deadlines()
    gpus, sources = prepared.ctx.table.gang[scenarios.rows], _sources(prepared, scenarios.rows)
    refused = [scenarios.refused.get(row, "") for row in scenarios.rows.tolist()]
    jobs = snapshot.table.job[scenarios.rows]
    columns = (
        *(jobs, start, finish, early, late, first, last, on_time, gpus),
        *(np.array(texts, np.object_) for texts in (sources, refused)),
    )
    return [
        Foreseen(job, start_at, end_at, basis, *rest)
        for job, start_at, end_at, *rest in zip(*(c.tolist() for c in columns), strict=True)
        if rest[-1] or not (math.isnan(start_at) and math.isnan(end_at))
    ]


def _sources(prepared: PreparedRound, rows: Rows) -> list[str]:
    """What the duration of each row comes from, as `prepare` has predicted it."""
    table, expected = prepared.ctx.table, prepared.snapshot.table.expected
    by_steps, estimator = has_known_steps(prepared), prepared.cycle.parts.estimator.name
    other = np.where(np.isnan(table.time_limit), "assumed", "time limit")
    if estimator != "user":
        other = np.full(len(table), estimator)
    unsaid = np.where(by_steps, "measured speed", other)
    found = np.where(np.isnan(expected), unsaid, "expected time")
    sources: list[str] = found[rows].tolist()
    return sources


def basis_of(prepared: PreparedRound) -> str:
    """What the durations are that a prediction rests on."""
    table, snapshot = prepared.ctx.table, prepared.snapshot
    live = np.concatenate([prepared.ctx.active, prepared.cycle.queue])
    says = ~np.isnan(snapshot.table.expected[live])
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
