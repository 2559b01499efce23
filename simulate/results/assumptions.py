"""What a replay takes for granted, in sentences: costs of starts, durations, speeds.

A reader of its figures should see at once in what the simulated cluster may differ from a real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dlsched.core.cluster.site_rules import live_only
from dlsched.core.speed.interference import SharedSpeed
from simulate.engine import Engine
from simulate.results.tables import ReplayResult


def assumptions(engine: Engine) -> tuple[str, ...]:
    """Return what a run takes for granted, after its end."""
    return (_starts(engine), *_durations(engine), *_speeds(engine), *_services(engine))


def _starts(engine: Engine) -> str:
    launch, usual = engine.parts.launch, engine.world.costs.restart_overhead or 0.0
    cost = f"{usual:g} s" if usual else "nothing"
    if launch is None or launch.usual:
        return f"a start costs {cost}"
    return f"a start costs what {launch.name} says, and else {cost}"


def _durations(engine: Engine) -> Iterator[str]:
    table, parts = engine.world.table, engine.parts
    if any("predicted_work" in part.needs for part in parts.stages().values()):
        if parts.estimator.knows:
            yield "durations are known beforehand"
        else:
            yield f"durations are believed as {parts.estimator.name} has them"
    if not np.isnan(table.time_limit).all():
        yield "no time limit ends a job"
    if table.names.get("priority_class"):
        yield from _classes(engine)


def _classes(engine: Engine) -> Iterator[str]:
    table, classes = engine.world.table, engine.world.occupancy.cluster.rules.classes
    if not table.gpu_limits:
        yield "no limit of a priority class holds"
        return
    others = dict.fromkeys(name for each in classes for name in live_only(each))
    yield (
        "of limits of priority classes, only those on GPUs hold"
        + (f" (not {', '.join(others)})" if others else "")
    )


def _speeds(engine: Engine) -> Iterator[str]:
    belief, cluster = engine.cycle.ctx.perf, engine.world.occupancy.cluster
    truth = engine.world.performance
    if engine.world.shared.stretches and isinstance(truth, SharedSpeed):
        name = truth.interference.name
        says = "alone" if name == "none" else f"{name} says"
        yield f"jobs on the same GPUs are as fast as {says}"
    if belief.by_type is None and belief.goodput is None:
        if len(cluster.gpu_types) > 1:
            yield f"jobs are as fast on {' as on '.join(cluster.gpu_types)} (no --profiles)"
        yield "jobs are as fast wherever their GPUs lie"


def _services(engine: Engine) -> Iterator[str]:
    if engine.lending is not None:
        yield "requests of services wait in one queue, and no window burdens the next one"


def assumed(results: Sequence[ReplayResult]) -> str:
    """Return what runs take for granted in one line, with the runs' labels where they differ."""
    labels: dict[str, dict[str, None]] = {}
    for result in results:
        for sentence in result.summary.get("assumptions", ()):
            labels.setdefault(sentence, {})[result.label] = None
    every = {result.label for result in results}
    return "; ".join(
        sentence if set(labelled) == every else f"{sentence} ({', '.join(labelled)})"
        for sentence, labelled in labels.items()
    )
