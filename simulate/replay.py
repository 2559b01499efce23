"""One replay: a trace on a cluster under a policy, from settings to a result."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.cluster import Cluster
from dlsched.core.errors import BadInput
from dlsched.core.free import Ask, FreeGpus, HostResources
from dlsched.core.occupancy import Occupancy
from dlsched.core.performance import PerformanceModel, PlainDuration
from dlsched.core.pools import Pools
from dlsched.core.round import Parts
from dlsched.core.semantics import Semantics
from dlsched.core.units import Status, UnitTable
from simulate.cautions import cautions
from simulate.cluster_events import ClusterEvent
from simulate.engine import Engine, Stopped
from simulate.failures import with_failures
from simulate.forecast import forecaster, replace_parts
from simulate.population import offered_load, populate
from simulate.recorder import Recorder
from simulate.results import ClusterShape, JobOutcomes, ReplayResult
from simulate.settings import RunSettings, build_parts, effective_options, resolve_semantics
from simulate.summary import fairness_figures, finite_or_none, job_figures
from simulate.traces.trace import Trace
from simulate.world import World

__all__ = ["prepare", "replay"]


def replay(
    trace: Trace,
    cluster: Cluster,
    settings: RunSettings,
    *,
    events: Sequence[ClusterEvent] = (),
    performance: PerformanceModel | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> ReplayResult:
    """Replay a trace.

    Args:
        trace: the jobs.
        cluster: every node that is ever in service.
        settings: parts, options, semantics, costs.
        events: cluster events; a node whose first event is a join starts out of service.
        performance: how fast jobs really run; plain durations when None.
        on_progress: called now and then with the number of jobs that have ended.

    Raises:
        BadInput: settings that cannot run on this trace and cluster; raised before the start.
        PolicyFailed: a part failed on the way.
    """
    cpu, wall = time.process_time(), time.perf_counter()
    engine = prepare(trace, cluster, settings, events=events, performance=performance)
    engine.on_progress = on_progress
    stopped = engine.run()
    result = _result(trace, cluster, settings, engine, stopped)
    if settings.check:
        from simulate.checking import check_records  # noqa: PLC0415 - tests only

        check_records(result)
    result.summary["wall_seconds"] = time.perf_counter() - wall  # type: ignore[index]  # a dict
    result.summary["cpu_seconds"] = time.process_time() - cpu  # type: ignore[index]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result.summary["peak_rss_bytes"] = peak  # type: ignore[index]
    return result


def prepare(
    trace: Trace,
    cluster: Cluster,
    settings: RunSettings,
    *,
    events: Sequence[ClusterEvent] = (),
    performance: PerformanceModel | None = None,
) -> Engine:
    """Set up an engine, checking everything that can be known before the start.

    Raises:
        BadInput: unknown parts or options, missing columns, unknown tracked jobs, a bad load.
    """
    if settings.load is not None and not 0 < settings.load < math.inf:
        raise BadInput(f"--load must be a positive number, not {settings.load:g}")
    semantics = resolve_semantics(settings)
    quotas = any(vc.gpus >= 0 for vc in cluster.vcs.values())
    parts = build_parts(settings, semantics, has_quotas=quotas)
    units, work, pools, visible = populate(trace, cluster, load=settings.load)
    _check_needs(parts, units, trace)
    scripted = sorted(events, key=lambda event: event.time)
    first = {event.node: event.kind for event in reversed(scripted)}
    absent = cluster.nodes_mask(node for node, kind in first.items() if kind == "join")
    occupancy = Occupancy(cluster, ((1 << len(cluster)) - 1) & ~absent)
    world = World(
        units,
        occupancy,
        work,
        performance=performance or PlainDuration(),
        semantics=semantics,
        costs=settings.costs,
        recorder=Recorder(timeline=settings.record, segments=settings.record),
    )
    refusals = _refuse_impossible(units, _ever(pools, scripted), parts, cluster)
    alive = np.flatnonzero(units.status == Status.FUTURE)
    engine = Engine(
        world=world,
        parts=parts,
        pools=pools,
        arrivals=alive[np.argsort(visible[alive], kind="stable")],
        visible=visible,
        events=_with_chance(scripted, cluster, settings),
        endless=settings.mtbf_s is not None,
        tracked=_tracked(settings.track, trace, alive),
        seed=settings.seed,
        skipping=settings.skipping,
        horizon=settings.horizon,
    )
    engine.refusals.update(refusals)
    engine.make_forecast = forecaster
    engine.rebuild_parts = partial(replace_parts, semantics=semantics)
    if settings.check:
        from simulate.checking import check_after_each_decision  # noqa: PLC0415 - tests only

        check_after_each_decision(engine)
    return engine


def _ever(pools: Pools, scripted: Sequence[ClusterEvent]) -> Pools:
    """The pools with every node that a retype will ever put into them."""
    retypes = [event for event in scripted if event.kind == "retype"]
    if not retypes:
        return pools
    ever, types = Pools(pools.cluster, pools.keys), pools.cluster.node_type.copy()
    nodes = ever.nodes
    for event in retypes:
        types[event.node] = event.gpu_type
        ever.refresh(types)
        nodes = [before | now for before, now in zip(nodes, ever.nodes, strict=True)]
    ever.nodes = nodes
    return ever


def _with_chance(
    scripted: Sequence[ClusterEvent], cluster: Cluster, settings: RunSettings
) -> Iterable[ClusterEvent]:
    """The user's events, and failures by chance where the settings ask for them."""
    if settings.mtbf_s is None:
        return scripted
    return with_failures(
        cluster,
        scripted,
        mtbf_s=settings.mtbf_s,
        mttr_s=settings.mttr_s,
        seed=settings.seed,
    )


def _check_needs(parts: Parts, units: UnitTable, trace: Trace) -> None:
    """Refuse a run whose parts need a column that some job lacks."""
    for stage, part in parts.stages().items():
        for column in sorted(part.needs - {"predicted_work"}):
            missing = np.flatnonzero(~units.has(column))
            if missing.size:
                first = trace.job_id[missing[0]]
                raise BadInput(
                    f"{stage} {part.name} needs the column {column}, which {missing.size} of "
                    f"{len(units)} jobs of {trace.name} lack (first: job {first})"
                )


def _refuse_impossible(
    units: UnitTable, pools: Pools, parts: Parts, cluster: Cluster
) -> dict[int, Refused]:
    """Refuse units that could not run even on the empty cluster with every node in service."""
    refusals = _unplaceable(units, pools, parts, cluster) | _unentitled(units, parts, cluster)
    units.status[list(refusals)] = Status.REFUSED
    return refusals


def _unplaceable(
    units: UnitTable, pools: Pools, parts: Parts, cluster: Cluster
) -> dict[int, Refused]:
    """Units that the placement refuses on the empty cluster."""
    empty = Occupancy(cluster)
    host = HostResources(empty, units) if cluster.tracks_host else None
    answers: dict[object, Refused | None] = {}
    shapes = np.stack([units.pool, units.gang])
    needs = np.zeros((2, len(units)))
    if host is not None:
        needs = np.nan_to_num(np.stack([units.cpus, units.memory_gb]), nan=-1.0)
    plain = parts.placement.spans

    def question(row: int) -> tuple[Ask, object]:
        ask = Ask(row, int(units.gang[row]), units)
        pool, sameness = int(units.pool[row]), parts.placement.sameness(ask)
        return ask, (pool, sameness, *needs[:, row].tolist())

    for row in _representatives(np.vstack([shapes, needs])) if plain else range(len(units)):
        ask, key = question(row)
        if key not in answers:
            pool = int(units.pool[row])
            free = FreeGpus(empty, pools.nodes[pool])
            if host is not None:
                free.limit(ask, host)
            placed = parts.placement.place(ask, free)
            answers[key] = _never(placed, ask, pools, pool) if isinstance(placed, Refused) else None
    if not any(answers.values()):
        return {}
    whys = ((row, answers[question(row)[1]]) for row in range(len(units)))
    return {row: why for row, why in whys if why is not None}


def _unentitled(units: UnitTable, parts: Parts, cluster: Cluster) -> dict[int, Refused]:
    """Units larger than what their virtual cluster may ever hold."""
    if parts.fairness is None or not units.names["vc"]:
        return {}
    names = units.names["vc"]
    most = np.array([*(parts.fairness.most(name, cluster) for name in names), np.inf])
    over = np.flatnonzero(units.gang > most[units.vc])  # no virtual cluster is code -1, the last
    return {
        row: Refused(
            "Never",
            f"asks for {units.gang[row]} GPUs, vc {names[units.vc[row]]} may use "
            f"{most[units.vc[row]]:g}",
        )
        for row in over.tolist()
    }


def _representatives(shapes: np.ndarray[Any, np.dtype[Any]]) -> list[int]:
    """One row for each distinct column of shapes."""
    found: list[int] = np.unique(shapes, axis=1, return_index=True)[1].tolist()
    return found


def _never(refused: Refused, ask: Ask, pools: Pools, pool: int) -> Refused:
    vc, types = pools.keys[pool]
    where = f" of vc {vc}" if vc else ""
    where += f" of type {types}" if types else ""
    most = pools.largest_gang(pool)
    if ask.gang > most:
        return Refused("Never", f"asks for {ask.gang} GPUs, the cluster has {most}{where}")
    return Refused("Never", f"cannot be placed even on the empty cluster: {refused.detail}")


def _tracked(track: tuple[str, str] | None, trace: Trace, alive: Rows) -> Rows:
    """Rows of the tracked jobs: ids between two, as numbers when both are, else by trace order."""
    if track is None:
        return np.zeros(0, np.int64)
    first, last = track
    ids: list[str] = [str(job) for job in trace.job_id.tolist()]
    if first.isdigit() and last.isdigit() and all(job.isdigit() for job in ids):
        low, high = int(first), int(last)
        rows = [row for row, job in enumerate(ids) if low <= int(job) <= high]
    else:
        for name in (first, last):
            if name not in ids:
                raise BadInput(f"--track: job {name} is not in {trace.name}")
        rows = list(range(ids.index(first), ids.index(last) + 1))
    if not rows:
        raise BadInput(f"--track {first}:{last} names no job of {trace.name}")
    return np.intersect1d(np.array(rows, np.int64), alive)


def _outcomes(trace: Trace, engine: Engine, counted: Bools) -> JobOutcomes:
    units = engine.world.table
    status = np.full(len(trace), "unfinished", np.object_)
    status[units.status == Status.COMPLETED] = "completed"
    status[units.status == Status.REFUSED] = "refused"
    reason = np.full(len(trace), "", np.object_)
    reason[units.status == Status.HELD_BACK] = "Admission: waits behind others"
    for row, why in engine.refusals.items():
        if status[row] != "completed":
            reason[row] = str(why)
    extra = {}
    for column, values in engine.columns.items():
        filled = np.zeros(len(trace))
        filled[list(values)] = list(values.values())
        whole = bool(np.all(filled == np.floor(filled)))
        extra[column] = filled.astype(np.int64) if whole else filled
    return JobOutcomes(
        job_id=trace.job_id,
        user=trace.user,
        vc=trace.vc,
        num_gpus=units.gang,
        submit_time=units.submit_time,
        first_start_time=units.first_start,
        finish_time=units.finish,
        gpu_seconds=units.attained,
        starts=units.starts,
        preemptions=units.preemptions,
        migrations=units.migrations,
        resizes=units.resizes,
        lost_seconds=units.lost_s + units.restart_s,
        status=status,
        reason=reason,
        duration=engine.world.true_work,
        counted=counted,
        extra=extra,
    )


def _counted(settings: RunSettings, engine: Engine) -> Bools:
    """Jobs that the figures are about: the tracked ones, or those after the warm-up."""
    submits = engine.world.table.submit_time
    if len(engine.tracked):
        counted = np.zeros(len(submits), np.bool_)
        counted[engine.tracked] = True
        return counted
    begin = float(submits.min()) if len(submits) else 0.0
    return np.asarray(submits >= begin + settings.warmup_s)


def _rounds(engine: Engine, semantics: Semantics) -> int:
    if semantics.grid is None or semantics.drift:
        return engine.decisions
    return max(math.ceil((engine.now - semantics.origin) / semantics.grid), 0)


def _result(
    trace: Trace, cluster: Cluster, settings: RunSettings, engine: Engine, stopped: Stopped
) -> ReplayResult:
    world, semantics = engine.world, engine.world.semantics
    segments = world.recorder.segments(engine.now)
    for row in np.flatnonzero(world.table.status == Status.RUNNING).tolist():
        _settle_for_output(world.table, row, engine.now)
    counted = _counted(settings, engine)
    jobs = _outcomes(trace, engine, counted)
    load = offered_load(trace, cluster, settings.load)
    figures = job_figures(jobs, counted)
    span = figures["makespan"]
    used: Floats = jobs.gpu_seconds[counted]
    whole = len(engine.tracked) == 0 and settings.warmup_s == 0
    utilization = float(used.sum()) / (cluster.total_gpus * span) if span and whole else math.nan
    summary: dict[str, Any] = {
        "policy": settings.policy,
        "semantics": semantics.name,
        "options": _shown_options(settings, semantics, engine.parts),
        "placement": engine.parts.placement.name,
        "admission": engine.parts.admission.name,
        "fairness": engine.parts.fairness.name if engine.parts.fairness is not None else "none",
        "estimate": engine.parts.estimator.name,
        "trace": trace.name,
        "cluster": cluster.spec,
        "load": settings.load,
        "offered_load": finite_or_none(load),
        "seed": settings.seed,
        **figures,
        "gpu_utilization": finite_or_none(utilization),
        "rounds": _rounds(engine, semantics),
        "decisions": engine.decisions,
        "finish_time_fairness": fairness_figures(jobs, counted, cluster.total_gpus),
        "end_time": engine.now,
        "stopped": stopped.reason,
    }
    warnings = (
        *trace.notes,
        *cautions(engine.parts, world.table, world.true_work),
        *([stopped.reason] if _worth_a_warning(stopped) else []),
    )
    return ReplayResult(
        label=settings.label,
        policy=settings.policy,
        trace=trace.name,
        load=settings.load,
        seed=settings.seed,
        jobs=jobs,
        timeline=world.recorder.timeline(),
        segments=segments,
        cluster=ClusterShape(
            spec=cluster.spec,
            node_name=np.array(cluster.names, np.object_),
            node_gpus=cluster.gpus,
            node_type=np.array([node.gpu_type for node in cluster.nodes], np.object_),
        ),
        summary=summary,
        warnings=warnings,
    )


def _worth_a_warning(stopped: Stopped) -> bool:
    return bool(stopped.reason) and not stopped.reason.startswith("all tracked")


def _settle_for_output(units: UnitTable, row: int, now: float) -> None:
    held = now - float(units.since[row])
    units.attained[row] += held * units.gpus_now[row]
    units.held_s[row] += held


def _shown_options(
    settings: RunSettings, semantics: Semantics, parts: Parts
) -> Mapping[str, str | float | None]:
    costs = settings.costs
    run: dict[str, str | float | None] = {
        "round": semantics.grid,
        "restart_overhead": costs.restart_overhead,
        "checkpoint_interval": costs.checkpoint_interval,
        "min_run": costs.min_run,
        "warmup": settings.warmup_s,
        "mtbf": settings.mtbf_s,
        "mttr": settings.mttr_s if settings.mtbf_s is not None else None,
    }
    return run | dict(effective_options(parts))
