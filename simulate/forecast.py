"""What would happen from here: the present state run on without further arrivals.

A forecast is a fork of the engine. It believes the predictions (a unit needs what was predicted of
it), knows of no cluster event to come, and leaves the present state untouched. Parts that are not
replaced go on from copies of their state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.allocation import Allocation
from dlsched.core.errors import BadInput
from dlsched.core.forecast import Forecast
from dlsched.core.round import Parts
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.semantics import Semantics
from dlsched.core.stage import Stage
from dlsched.core.units import RUNNING
from dlsched.policies.registry import make
from dlsched.policies.scheduling.what_if import WhatIf
from simulate.engine import Engine, Observer
from simulate.recorder import Recorder
from simulate.settings import default_options, first_option
from simulate.world import World

__all__ = ["forecaster", "part_from_text", "replace_parts", "twin_of"]


def part_from_text(stage: str, text: str, semantics: Semantics) -> Any:
    """Make a part from "name" or "name:value", where the value is its first option's.

    Raises:
        BadInput: an unknown name or value.
    """
    name, colon, value = text.partition(":")
    options: dict[str, object] = default_options(stage, name, semantics)
    if colon:
        options[first_option(stage, name)] = value
    return make(stage, name, options)


def replace_parts(parts: Parts, chosen: Mapping[str, str], semantics: Semantics) -> Parts:
    """The same parts with some replaced; a chooser keeps its seat and gets a new policy inside.

    A part whose text is the same as before is kept, with its state.
    """
    fresh = {stage: part_from_text(stage, text, semantics) for stage, text in chosen.items()}
    scheduling: SchedulingPolicy[Any] = fresh.get("scheduling", parts.scheduling)
    if isinstance(parts.scheduling, WhatIf) and "scheduling" in fresh:
        parts.scheduling.install(scheduling)
        scheduling = parts.scheduling
    return Parts(
        scheduling=scheduling,
        placement=fresh.get("placement", parts.placement),
        admission=fresh.get("admission", parts.admission),
        estimator=parts.estimator,
        launch=parts.launch,
        preemption=parts.preemption,
        metrics=parts.metrics,
        fairness=parts.fairness,
    )


def twin_of(part: Any) -> Any:
    """A part of its own with the same options and state."""
    if part is None:
        return None
    if isinstance(part, WhatIf):
        return twin_of(part.inside)
    twin: Stage[Any] = type(part)(part.options)
    twin.load_state_dict(part.state_dict())
    return twin


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
    fork = Engine(
        world=fork_world,
        parts=parts,
        pools=present.pools,
        arrivals=np.zeros(0, np.int64),
        visible=present.visible,
        seed=present.seed,
        speeds=present.speeds,
        epochs=present.epochs,
        scaling=present.scaling,
        goodput=present.goodput,
        horizon=present.now + horizon,
    )
    fork.take_over(present)
    return fork


def _read(fork: Engine, present: Engine) -> Forecast:
    rows = present.everyone_known
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
