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

import numpy as np

from dlsched.composition.parts import part_from_text, twin_of
from dlsched.core.allocation import Allocation
from dlsched.core.cluster.calendar import Calendar
from dlsched.core.errors import BadInput
from dlsched.core.forecast import Forecast
from dlsched.core.round.cycle import Cycle
from dlsched.core.round.steps import Parts
from dlsched.core.units import RUNNING
from simulate.engine import Engine, Observer
from simulate.results.recorder import Recorder
from simulate.world import World


class forecaster:  # noqa: N801 - used like a function: forecaster(engine)(overrides)
    """Forecasts for one engine, as the `Forecaster` protocol of core asks."""

    def __init__(self, engine: Engine, *, patience_s: float = math.inf) -> None:
        """Forecast from an engine's present state.

        Args:
            engine: it is left as it is.
            patience_s: what a forecast may cost, in seconds of the wall's clock; then it ends where
                it is, as at a horizon.
        """
        self._engine = engine
        self._patience_s = patience_s

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
        present = self._engine
        semantics = present.world.semantics
        for stage in overrides or {}:
            if stage not in ("scheduling", "placement", "admission"):
                raise BadInput(
                    f"a forecast can replace scheduling, placement and admission, not {stage}"
                )
        fresh = {s: part_from_text(s, text, semantics) for s, text in (overrides or {}).items()}
        parts = Parts(
            scheduling=fresh.get("scheduling") or twin_of(present.parts.scheduling),
            placement=fresh.get("placement") or twin_of(present.parts.placement),
            admission=fresh.get("admission") or twin_of(present.parts.admission),
            estimator=present.parts.estimator,
            launch=present.parts.launch,
            preemption=present.parts.preemption,
            fairness=twin_of(present.parts.fairness),
        )
        fork = _fork(present, parts, horizon)
        if math.isfinite(self._patience_s):
            fork.observers.append(_stop_after(self._patience_s))
        fork.run(start=present.now)
        return _read(fork, present)


def _stop_after(patience_s: float) -> Observer:
    """An observer under which a run stops where it is when its time is over."""
    until = time.monotonic() + patience_s

    def look(engine: Engine, allocation: Allocation) -> None:
        if time.monotonic() > until:
            engine.horizon = min(engine.horizon, engine.now)

    return look


def _fork(present: Engine, parts: Parts, horizon: float) -> Engine:
    world = present.world
    table = world.table.copy()
    running = np.flatnonzero(table.status == RUNNING)
    believed = np.maximum(table.predicted_work, table.executed)
    fork_world = World(
        table,
        world.occupancy.copy(),
        np.where(np.isnan(believed), world.true_work, believed),
        performance=world.performance,
        semantics=world.semantics,
        costs=world.costs,
        recorder=Recorder(timeline=False, segments=False),
    )
    fork_world.go_on(world, running.tolist())
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
    return Engine.resume(
        fork_world, cycle, visible=present.coming.visible, horizon=present.now + horizon
    )


def _read(fork: Engine, present: Engine) -> Forecast:
    rows = present.all_known
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
