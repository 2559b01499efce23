"""From an engine that has stopped to a result: one row a job, and the run's figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.composition.parts import effective_options
from dlsched.composition.settings import Costs
from dlsched.core.arrays import Bools, Floats
from dlsched.core.cluster.description import Cluster
from dlsched.core.parts import part_of
from dlsched.core.round.steps import Parts
from dlsched.core.semantics import Semantics
from dlsched.core.units import Status, UnitTable
from simulate.engine import Engine, Stopped
from simulate.population import offered_load
from simulate.progress.whole_steps import WholeSteps
from simulate.results.assumptions import assumptions
from simulate.results.co_residence import co_residence_columns, co_residence_figures
from simulate.results.deadlines import deadline_columns, deadline_figures
from simulate.results.finish_time_fairness import fairness_variants
from simulate.results.summary import cautions, finite_or_none, job_figures, unpaired
from simulate.results.tables import ClusterShape, JobOutcomes, ReplayResult
from simulate.services.figures import service_figures
from simulate.settings import RunSettings
from simulate.traces.trace import Trace


def result_of(
    trace: Trace, cluster: Cluster, settings: RunSettings, engine: Engine, stopped: Stopped
) -> ReplayResult:
    """The result of a replay, for tables, files and pictures.

    Args:
        trace: the jobs.
        cluster: as it was at the beginning, with every node that ever joins.
        settings: of the run.
        engine: after its end.
        stopped: why it ended.
    """
    world, semantics = engine.world, engine.world.semantics
    segments = world.recorder.segments(engine.now)
    world.shared.settle(engine.now)
    for row in np.flatnonzero(world.table.status == Status.RUNNING).tolist():
        _settle_for_output(world.table, row, engine.now)
    counted = _counted(settings, engine)
    jobs = _outcomes(trace, engine, counted)
    load = offered_load(trace, cluster, settings.load)
    figures = job_figures(jobs, counted)
    due = deadline_figures(deadline_columns(world.table), jobs.jct, counted)
    span = figures["makespan"]
    used: Floats = jobs.gpu_seconds[counted]
    whole = len(engine.tracked) == 0 and settings.warmup_s == 0
    held = float(used.sum()) - world.shared.counted_twice
    utilization = held / (cluster.total_gpus * span) if span and whole else math.nan
    steps = world.progress if isinstance(world.progress, WholeSteps) else None
    active = None if steps is None else steps.mean_active(len(jobs))
    headline, variants = fairness_variants(jobs, counted, cluster.total_gpus, active)
    summary: dict[str, Any] = {
        "policy": settings.policy,
        "semantics": semantics.name,
        "options": _shown_options(settings, world.costs, semantics, engine.parts),
        "placement": engine.parts.placement.name,
        "admission": engine.parts.admission.name,
        "fairness": engine.parts.fairness.name if engine.parts.fairness is not None else "none",
        "estimate": engine.parts.estimator.name,
        **({} if engine.parts.host is None else {"host": engine.parts.host.name}),
        "trace": trace.name,
        "cluster": cluster.spec,
        "load": settings.load,
        "offered_load": finite_or_none(load),
        "seed": settings.seed,
        **figures,
        "gpu_utilization": finite_or_none(utilization),
        **co_residence_figures(world.shared, world.table),
        **service_figures(engine.lending, engine.now),
        "rounds": _rounds(engine, semantics),
        "decisions": engine.decisions,
        **({} if due is None else {"deadlines": due}),
        "finish_time_fairness": headline,
        "finish_time_fairness_variants": variants,
        "end_time": engine.now,
        "stopped": stopped.reason,
        "assumptions": list(assumptions(engine)),
    }
    warnings = (
        *trace.notes,
        *cautions(
            engine.parts,
            world.table,
            world.true_work,
            fed=cluster.tracks_host,
            typed=engine.cycle.ctx.perf.by_type is None and len(cluster.gpu_types) > 1,
        ),
        *unpaired(engine.columns, trace.job_id),
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
        trajectories=world.recorder.trajectories(),
    )


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
    extra = deadline_columns(units) | co_residence_columns(engine.world.shared, units, trace.job_id)
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
        duration=engine.world.true_work if engine.best_s is None else engine.best_s,
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
    if isinstance(engine.world.progress, WholeSteps):
        return engine.world.progress.rounds
    if semantics.grid is None:
        return engine.decisions
    return max(math.ceil((engine.now - semantics.origin) / semantics.grid), 0)


def _worth_a_warning(stopped: Stopped) -> bool:
    return bool(stopped.reason) and not stopped.reason.startswith("all tracked")


def _settle_for_output(units: UnitTable, row: int, now: float) -> None:
    held = now - float(units.since[row])
    units.attained[row] += held * units.gpus_now[row] * part_of(float(units.gpu_share[row]))
    units.held_s[row] += held


def _shown_options(
    settings: RunSettings, costs: Costs, semantics: Semantics, parts: Parts
) -> Mapping[str, str | float | None]:
    run: dict[str, str | float | None] = {
        "round": semantics.round_length or None,
        "restart_overhead": costs.restart_overhead,
        "checkpoint_interval": costs.checkpoint_interval,
        "min_run": costs.min_run,
        **({"interference": said} if (said := settings.interference or costs.interference) else {}),
        "warmup": settings.warmup_s,
        "mtbf": settings.mtbf_s,
        "mttr": settings.mttr_s if settings.mtbf_s is not None else None,
    }
    return run | dict(effective_options(parts))
