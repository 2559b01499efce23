"""What would happen from here: a live snapshot run on by the simulated world.

The same policies decide, predictions stand for durations, and nothing more arrives. So a pending
job's start can be told before it happens, together with what the telling rests on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlsched.core.arrays import Rows
from dlsched.core.performance import PlainDuration
from dlsched.core.units import FUTURE, HELD_BACK, RUNNING, WAITING
from dlsched.daemon.round.snapshot import LiveSnapshot
from simulate.engine import Engine
from simulate.forecast import forecaster
from simulate.recorder import Recorder
from simulate.world import Costs, World

if TYPE_CHECKING:
    from dlsched.daemon.round.decide import Standing

__all__ = ["engine_of", "forecaster_of", "predicted_starts"]


def engine_of(standing: Standing) -> Engine:
    """A simulated world in the state of a live one; it has no arrivals of its own."""
    ctx = standing.ctx
    table = ctx.table
    believed = np.maximum(table.predicted_work, table.executed)
    world = World(
        table,
        ctx.occupancy,
        np.where(np.isnan(believed), standing.snapshot.settings.unknown_s, believed),
        performance=PlainDuration(),
        semantics=ctx.semantics,
        costs=Costs(restart_overhead=ctx.restart_overhead, min_run=ctx.min_run),
        recorder=Recorder(timeline=False, segments=False),
    )
    active = table.status[ctx.active]
    world.running = int(np.count_nonzero(active == RUNNING))
    world.waiting = int(np.count_nonzero(active == WAITING))
    world.waiting_gpus = int(table.gang[ctx.active[active == WAITING]].sum())
    world.finished = list(ctx.finished)
    engine = Engine(
        world=world,
        parts=standing.parts,
        pools=ctx.pools,
        arrivals=np.zeros(0, np.int64),
        visible=table.submit_time,
        seed=ctx.seed,
    )
    engine.now = ctx.now
    engine._active = ctx.active
    engine.held_back = standing.queue
    return engine


def forecaster_of(standing: Standing) -> forecaster:
    """For choosers: what other parts would make of the present state."""
    return forecaster(engine_of(standing))


def predicted_starts(
    snapshot: LiveSnapshot, *, horizon_s: float = 30 * 86400.0
) -> list[tuple[int, float, str]]:
    """When each pending job would start under the snapshot's policy.

    Args:
        snapshot: the present.
        horizon_s: look no further.

    Returns:
        job, seconds of the policy's clock, and the basis; jobs that would not start by then are
        left out.
    """
    from dlsched.daemon.round.decide import stand  # noqa: PLC0415 - it imports this module

    standing = stand(snapshot)
    if standing is None:
        return []
    table = standing.ctx.table
    pending = np.isin(table.status, (WAITING, HELD_BACK, FUTURE))
    found = forecaster(engine_of(standing))(horizon=horizon_s)
    rows: Rows = found.rows
    starts = _next_starts(standing, found, rows)
    basis = _basis(standing)
    jobs = snapshot.columns["job"]
    return [
        (int(jobs[row]), float(start), basis)
        for row, start in zip(rows.tolist(), starts.tolist(), strict=True)
        if pending[row] and not np.isnan(start)
    ]


def _next_starts(standing: Standing, found: Any, rows: Rows) -> Any:
    """First starts, of those that have not started yet; others' next start is not told."""
    started = standing.ctx.table.starts[rows] > 0
    return np.where(started, np.nan, found.first_start)


def _basis(standing: Standing) -> str:
    """What the durations are that a prediction rests on."""
    table, snapshot = standing.ctx.table, standing.snapshot
    live = standing.ctx.active
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
    return ", ".join(words)
