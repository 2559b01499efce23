"""What would happen from here: the present state run on without further arrivals.

A forecast is a fork of the engine. It believes the predictions (a unit needs what was predicted of
it), knows of no cluster event to come, and leaves the present state untouched. Parts that are not
replaced go on from copies of their state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dlsched.composition.parts import part_from_text, twin_of
from dlsched.core.allocation import Allocation
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.calendar import Calendar
from dlsched.core.errors import BadInput
from dlsched.core.forecast import Forecast
from dlsched.core.round.cycle import Cycle
from dlsched.core.round.steps import Parts
from dlsched.core.units import RUNNING, Status
from simulate.engine import Engine
from simulate.results.recorder import Recorder
from simulate.world import World


class forecaster:  # noqa: N801 - used like a function: forecaster(engine)(overrides)
    """Forecasts for one engine, as the `Forecaster` protocol of core asks."""

    def __init__(self, engine: Engine) -> None:
        """Forecast from an engine's present state, which is left as it is."""
        self._engine = engine

    def __call__(
        self, overrides: Mapping[str, str] | None = None, *, horizon: float = math.inf
    ) -> Forecast:
        """Run the present state on, with some parts replaced.

        Args:
            overrides: other parts by stage, as "name" or "name:value".
            horizon: stop after so many seconds.

        Raises:
            BadInput: an unknown stage or part.
        """
        return read(self.run(overrides, horizon=horizon).engine, self._engine)

    def run(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        horizon: float = math.inf,
        patience_s: float = math.inf,
        true_work: Floats | None = None,
        until_ended: int | None = None,
        until_before: float | None = None,
        segments: bool = False,
        arrivals: Rows | None = None,
        without: Rows | None = None,
    ) -> RanOn:
        """Run a copy of the present state on; returns the copy where it stopped.

        Args:
            overrides: other parts by stage, as "name" or "name:value".
            horizon: stop after so many seconds.
            patience_s: what it may cost, in seconds of the wall's clock; then it stops where it is,
                as at a horizon.
            true_work: what each row really needs, in seconds of work; None: what is predicted.
            until_ended: stop soon after this row has ended, or was refused; None: when all have.
            until_before: stop right before this moment, so that a copy of the copy can go on.
            segments: record when each row has which GPUs.
            arrivals: rows that still arrive, in order; the copy then goes on as the present would,
                where the policy stays, without a decision to begin with.
            without: rows without GPUs that leave at once, or never arrive.

        Raises:
            BadInput: an unknown stage or part.
        """
        present = self._engine
        semantics = present.world.semantics
        for stage in overrides or {}:
            if stage not in ("scheduling", "placement", "admission"):
                raise BadInput(
                    f"a forecast can replace scheduling, placement and admission, not {stage}"
                )
        fresh = {s: part_from_text(s, text, semantics) for s, text in (overrides or {}).items()}
        scheduling = fresh.get("scheduling") or twin_of(present.parts.scheduling)
        admission = fresh.get("admission") or twin_of(present.parts.admission)
        if type(admission) is type(scheduling):  # one part fills both stages
            admission = scheduling
        host = twin_of(present.parts.host)
        if type(host) is type(scheduling):
            host = scheduling
        parts = Parts(
            scheduling=scheduling,
            placement=fresh.get("placement") or twin_of(present.parts.placement),
            admission=admission,
            estimator=present.parts.estimator,
            launch=present.parts.launch,
            preemption=present.parts.preemption,
            fairness=twin_of(present.parts.fairness),
            host=host,
        )
        recorder = Recorder(timeline=False, segments=segments)
        if without is not None and arrivals is not None:
            arrivals = arrivals[~np.isin(arrivals, without)]
        fork = _fork(present, parts, horizon, recorder, true_work, arrivals)
        if without is not None:
            _take_out(fork, without)
        goes_on = arrivals is not None and not overrides
        if goes_on:
            fork.keep_agenda_of(present)
            fork.cycle.ctx.changes.extend(present.cycle.ctx.changes)
        watch = _Watch(patience_s, until_ended)
        if math.isfinite(patience_s) or until_ended is not None:
            fork.observers.append(watch)
        start = None if goes_on else present.now
        if until_before is None:
            fork.run(start)
        else:
            fork.run_until_before(until_before, start)
        return RanOn(fork, watch.is_over)


class RanOn(NamedTuple):
    """A copy of the present state that was run on, and whether its time was over before."""

    engine: Engine
    was_cut: bool


class _Watch:
    """An observer: a run stops when its time is over, or when a row has ended or was refused."""

    def __init__(self, seconds: float, row: int | None) -> None:
        self.is_over = False
        self._until = time.monotonic() + seconds
        self._row = row

    def __call__(self, engine: Engine, allocation: Allocation) -> None:
        self.is_over = time.monotonic() > self._until
        if self.is_over or (self._row is not None and self._has_ended(engine, self._row)):
            engine.horizon = min(engine.horizon, engine.now)

    @staticmethod
    def _has_ended(engine: Engine, row: int) -> bool:
        table = engine.world.table
        is_refused = table.status[row] == Status.REFUSED
        return bool(is_refused or table.finish[row] <= engine.now)


def _fork(
    present: Engine,
    parts: Parts,
    horizon: float,
    recorder: Recorder,
    true_work: Floats | None,
    arrivals: Rows | None,
) -> Engine:
    world = present.world
    table = world.table.copy()
    running: list[int] = np.flatnonzero(table.status == RUNNING).tolist()
    if true_work is None:
        believed = np.maximum(table.predicted_work, table.executed)
        true_work = np.where(np.isnan(believed), world.true_work, believed)
    fork_world = World(
        table,
        world.occupancy.copy(),
        true_work,
        performance=world.performance,
        semantics=world.semantics,
        costs=world.costs,
        recorder=recorder,
    )
    fork_world.go_on(world, running)
    for row in running:
        recorder.began(row, world.occupancy.held[row], present.now)
    ctx = replace(
        present.cycle.ctx,
        table=table,
        active=present.active.copy(),
        occupancy=fork_world.occupancy,
        changes=[],
        finished=fork_world.finished,
        calendar=Calendar(world.occupancy.cluster.total_gpus),
        forecast=None,
        cpu_clock=None,
    )
    cycle = Cycle(ctx, parts, held_back=present.cycle.queue)
    cycle.decisions = present.decisions
    visible, until = present.coming.visible, present.now + horizon
    return Engine.resume(fork_world, cycle, visible=visible, horizon=until, arrivals=arrivals)


def _take_out(fork: Engine, rows: Rows) -> None:
    """Rows that wait for GPUs, or for admission, are cancelled before anything else happens."""
    world, cycle = fork.world, fork.cycle
    ctx, queue = cycle.ctx, cycle.queue
    leaving = rows[np.isin(rows, np.concatenate([ctx.active, queue]))]
    for row in leaving.tolist():
        if row in world.waiting:
            world.leave_queue(row)
        world.finished.append(row)
    world.table.status[leaving] = Status.CANCELLED
    ctx.active = ctx.active[~np.isin(ctx.active, leaving)]
    cycle.held_back = queue[~np.isin(queue, leaving)]


def read(fork: Engine, present: Engine, rows: Rows | None = None) -> Forecast:
    """What became of units (None: those of the present) in a copy that was run on."""
    rows = present.all_known if rows is None else rows
    table = fork.world.table
    finish = table.finish[rows]
    jct = finish - table.submit_time[rows]
    ended = jct[~np.isnan(jct)]
    executed = table.executed[rows].copy()
    runs = table.status[rows] == RUNNING
    executed[runs] += np.maximum(fork.now - table.progress_from[rows[runs]], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        progress = np.minimum(executed / fork.world.true_work[rows], 1.0)
    return Forecast(
        rows=rows,
        first_start=table.first_start[rows],
        finish=finish,
        progress=progress,
        mean_jct=float(ended.mean()) if ended.size else math.inf,
    )
