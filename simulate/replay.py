"""One replay: a trace on a cluster under a policy, from settings to a result."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypedDict, Unpack
from weakref import proxy

import numpy as np

from dlsched.composition.host_tables import HostTables
from dlsched.composition.parts import build_parts, replace_parts
from dlsched.composition.settings import Costs
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.calendar import Calendar
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Occupancy
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.goodput.scaling import TrainingScaling
from dlsched.core.round.cycle import Cycle
from dlsched.core.round.steps import Parts, refuse_chosen_gpus
from dlsched.core.scheduling import Chooser, FirstStage, Staged, StageOfPolicy
from dlsched.core.semantics import Semantics
from dlsched.core.speed.belief import Belief
from dlsched.core.speed.colocation import ColocationTable
from dlsched.core.speed.interference import Interference, NoInterference, SharedSpeed, TablePairs
from dlsched.core.speed.scaling import Scaling, TableScaling
from dlsched.core.speed.sensitivity import SensitiveSpeed
from dlsched.core.speed.throughput_table import ThroughputTable
from dlsched.core.speed.truth import PerformanceModel, PlainDuration, Speeds
from dlsched.core.units import Status, UnitTable
from dlsched.policies.node.salus.lane_table import TakesTurns
from simulate.clusters.cluster_events import ClusterEvent
from simulate.clusters.failures import with_failures
from simulate.engine import Engine
from simulate.feasibility import check_needs, pools_ever, refuse_host_part, refuse_impossible
from simulate.forecast import forecaster
from simulate.goodput.application import Application
from simulate.goodput.trainings import Oracle, Trainings, trainings_of
from simulate.goodput.typed_trainings import TypedSpeeds, TypedTrainings, typed
from simulate.interference import interference_of
from simulate.population import populate, restarts_of
from simulate.profiled_first import Begin, nothing_before, prepare_in_two
from simulate.profiles.adaptation import Adaptation
from simulate.profiles.batch_rules import BatchPatterns
from simulate.profiles.host import HostProfiled, host_profiled
from simulate.profiles.jobs import Profiled, profiled
from simulate.progress.divided import DividedProgress
from simulate.progress.lanes import LaneProgress
from simulate.progress.measured import MeasuredProgress
from simulate.progress.strategy import Progress, Setting
from simulate.progress.whole_steps import WholeSteps
from simulate.published.profiles import semantics_of
from simulate.results.outcomes import result_of
from simulate.results.recorder import Recorder
from simulate.results.tables import ReplayResult
from simulate.services.description import Service
from simulate.services.lending import Lending
from simulate.settings import RunSettings
from simulate.traces.trace import Trace
from simulate.world import World


class ReplayInputs(TypedDict, total=False):
    """What a replay may have besides a trace, a cluster and settings.

    Attributes:
        events: cluster events; a node whose first event is a join starts out of service.
        performance: how fast jobs really run; plain durations without it.
        throughputs: a table that says it by model, GPU type and partner; work is then steps.
        patterns: how the batch sizes of trainings grow with their gradient noise.
        pairs: speeds of pairs of workloads on the same GPUs, relative to each one alone.
        applications: measured trainings; every job is then one of them, with epochs and batch sizes
            of its own.
        host: profiles of how fast models run with more or fewer processors and memory.
        services: whose replicas lend GPUs to the jobs.
    """

    events: Sequence[ClusterEvent]
    performance: PerformanceModel | None
    throughputs: ThroughputTable | None
    patterns: BatchPatterns | None
    pairs: ColocationTable | None
    applications: Mapping[str, Application] | None
    host: HostTables | None
    services: Sequence[Service]


def replay(
    trace: Trace,
    cluster: Cluster,
    settings: RunSettings,
    *,
    on_progress: Callable[[int], None] | None = None,
    **inputs: Unpack[ReplayInputs],
) -> ReplayResult:
    """Replay a trace.

    Args:
        trace: the jobs.
        cluster: every node that is ever in service.
        settings: parts, options, semantics, costs.
        on_progress: called now and then with the number of jobs that have ended.
        inputs: see `ReplayInputs`.

    Raises:
        BadInput: settings that cannot run on this trace and cluster; raised before the start.
        PolicyFailed: a part failed on the way.
    """
    cpu, wall = time.process_time(), time.perf_counter()
    stage = _first_stage(settings, cluster)
    if stage is not None and inputs.get("services"):
        raise BadInput(f"{settings.policy} profiles jobs first, and services take no part in that")
    if stage is None:
        engine = prepare(trace, cluster, settings, **inputs)
    else:
        events = inputs.pop("events", ())
        known = partial(prepare, **inputs)
        engine = prepare_in_two(trace, cluster, settings, stage, known, events)
    engine.on_progress = on_progress
    stopped = engine.run()
    result = result_of(trace, cluster, settings, engine, stopped)
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
    throughputs: ThroughputTable | None = None,
    patterns: BatchPatterns | None = None,
    pairs: ColocationTable | None = None,
    applications: Mapping[str, Application] | None = None,
    host: HostTables | None = None,
    services: Sequence[Service] = (),
    stage: StageOfPolicy = "both",
    begin: Begin = nothing_before,
) -> Engine:
    """Set up an engine, checking everything that can be known before the start.

    Args:
        trace: the jobs.
        cluster: every node that is ever in service.
        settings: parts, options, semantics, costs.
        events: this and the next seven: see `ReplayInputs`.
        performance: how fast jobs really run.
        throughputs: a table that says it.
        patterns: how the batch sizes of trainings grow.
        pairs: speeds of pairs of workloads, relative to alone.
        applications: measured trainings.
        host: profiles of processors and memory.
        services: whose replicas lend GPUs to the jobs.
        stage: which stage of the policy is replayed, where it has two.
        begin: enters in the table and in the occupancy what has happened before.

    Raises:
        BadInput: unknown parts or options, missing columns, unknown tracked jobs, a bad load.
    """
    if settings.load is not None and not 0 < settings.load < math.inf:
        raise BadInput(f"--load must be a positive number, not {settings.load:g}")
    semantics = semantics_of(settings)
    measured = restarts_of(trace)
    parts = _parts_of(settings, semantics, cluster, has_restarts=measured is not None, stage=stage)
    jobs = None
    if throughputs is not None:
        jobs = profiled(trace, cluster, throughputs, in_steps=semantics.drift, patterns=patterns)
    trainings = None if applications is None else _trainings(trace, cluster, applications)
    fed = _fed(trace, cluster, host, semantics, jobs, parts)
    units, work, pools, visible = populate(
        trace,
        cluster,
        load=settings.load,
        profiled=jobs,
        work=next((each.work for each in (trainings, fed) if each is not None), None),
    )
    best_s = None if jobs is None else jobs.best_s
    sharing = _sharing(settings, trace, pairs, jobs, trainings, semantics)
    alone = _alone(performance, jobs, fed, semantics)
    if trainings is not None:
        trainings.bound(units)
        best_s = trainings.alone_s(units.gang, cluster.largest_node)
    check_needs(parts, units, trace)
    refuse_chosen_gpus(parts, cluster)
    if parts.scheduling.weighs_usage or isinstance(parts.scheduling, Chooser):
        units.keep_usage(parts.scheduling.half_life_s(cluster))
    scripted = sorted(events, key=lambda event: event.time)
    first = {event.node: event.kind for event in reversed(scripted)}
    absent = cluster.nodes_mask(node for node, kind in first.items() if kind == "join")
    occupancy = Occupancy(cluster, ((1 << len(cluster)) - 1) & ~absent)
    world = World(
        units,
        occupancy,
        work,
        performance=SharedSpeed(alone, sharing or NoInterference(), trace.job_id.tolist()),
        semantics=semantics,
        costs=settings.costs,
        progress=_progress_of(trainings, settings, semantics, parts),
        recorder=Recorder(timeline=settings.record, segments=settings.record),
    )
    if trainings is not None:
        _say_what_is_known(trainings, world.costs, settings, measured, parts)
    begin(units, occupancy, work)
    refusals = refuse_impossible(units, pools_ever(pools, scripted), parts, cluster)
    alive = np.flatnonzero(units.status == Status.FUTURE)
    perf = Belief(
        by_type=_speeds(jobs, trainings),
        by_count=_scaling(jobs, trainings, units, cluster),
        sharing=None if isinstance(sharing, TablePairs) else sharing,  # `by_type` says it
        goodput=trainings,
        epochs=None if jobs is None else jobs.epochs,
        by_host=None if fed is None else fed.speeds,
    )
    ctx = RoundContext(
        now=0.0,
        number=0,
        mode="full",
        table=units,
        active=np.zeros(0, np.int64),
        occupancy=occupancy,
        pools=pools,
        semantics=semantics,
        changes=[],
        finished=world.finished,
        calendar=Calendar(cluster.total_gpus),
        restart_overhead=world.costs.restart_overhead or 0.0,
        min_run=world.costs.min_run,
        seed=settings.seed,
        perf=parts.estimator.believed(perf),
        may_share=trainings is None,
    )
    lending = Lending(services, settings.seed) if services else None
    engine = Engine(
        world=world,
        cycle=Cycle(ctx, parts, replace=partial(replace_parts, semantics=semantics)),
        arrivals=alive[np.argsort(visible[alive], kind="stable")],
        visible=visible,
        events=_with_chance(scripted, cluster, settings)
        if lending is None
        else lending.follow(_with_chance(scripted, cluster, settings), world),
        endless=settings.mtbf_s is not None or (lending is not None and lending.endless),
        lending=lending,
        tracked=_tracked(settings.track, trace, alive),
        best_s=best_s,
        skipping=settings.skipping,
        horizon=settings.horizon,
    )
    steps = world.progress
    if jobs is not None and isinstance(jobs.epochs, Adaptation) and isinstance(steps, WholeSteps):
        steps.adaptation, steps.limits_s = jobs.epochs, jobs.best_s
    engine.refusals.update(refusals)
    if trainings is None:  # trainings cannot be forked
        # the engine holds what holds the forecaster: without a cycle, both go with their replay
        ctx.forecast = forecaster(proxy(engine))
    elastic = perf.by_count is not None and bool((units.max_gpus > units.gang).any())
    world.recorder.keeps_trajectories = settings.record and (trainings is not None or elastic)
    if parts.scheduling.needs_scaling and perf.by_count is None:
        raise BadInput(
            f"policy {parts.scheduling.name} needs to know how fast jobs run on how many GPUs: "
            f"{_knowing(trainings)}"
        )
    if settings.check:
        from simulate.checking import check_after_each_decision  # noqa: PLC0415 - tests only

        check_after_each_decision(engine)
    return engine


def _fed(
    trace: Trace,
    cluster: Cluster,
    host: HostTables | None,
    semantics: Semantics,
    jobs: Profiled | None,
    parts: Parts,
) -> HostProfiled | None:
    """The jobs of a trace under profiles of processors and memory; None where there are none.

    Raises:
        BadInput: a model without a profile; whole rounds of steps; throughputs beside; a host part
            where nodes do not say what they have.
    """
    refuse_host_part(parts, cluster, semantics)
    if host is None:
        return None
    if semantics.drift:
        raise BadInput(
            f"semantics {semantics.name} has rounds of whole steps, in which processors and memory "
            "do not change; leave out the profiles of processors and memory"
        )
    if jobs is not None:
        raise BadInput(
            "--profiles: throughputs by GPU type and profiles of processors and memory count work "
            "in different ways; name one of them"
        )
    return host_profiled(trace, cluster, host, semantics)


def _alone(
    performance: PerformanceModel | None,
    jobs: Profiled | None,
    fed: HostProfiled | None,
    semantics: Semantics,
) -> PerformanceModel:
    """How fast jobs really run that have their GPUs to themselves."""
    inside = performance or (PlainDuration() if jobs is None else jobs.speed)
    if fed is None:
        return inside
    round_s = semantics.grid_length if semantics.whole_steps else None
    return SensitiveSpeed(inside, fed.speeds, round_s=round_s)


def _parts_of(
    settings: RunSettings,
    semantics: Semantics,
    cluster: Cluster,
    *,
    has_restarts: bool = False,
    stage: StageOfPolicy = "both",
) -> Parts:
    """The parts of a run on a cluster; a policy of two stages decides only the one named."""
    quotas = any(vc.gpus >= 0 for vc in cluster.vcs.values())
    parts = build_parts(settings, semantics, has_quotas=quotas, has_restarts=has_restarts)
    if isinstance(parts.scheduling, Staged):
        parts.scheduling.stage = stage
    return parts


def _first_stage(settings: RunSettings, cluster: Cluster) -> FirstStage | None:
    """The stage of the policy that is to be replayed first; None: there is none."""
    parts = _parts_of(settings, semantics_of(settings), cluster)
    policy = parts.scheduling
    return policy.first_stage(cluster) if isinstance(policy, Staged) else None


def _sharing(
    settings: RunSettings,
    trace: Trace,
    pairs: ColocationTable | None,
    jobs: Profiled | None,
    trainings: Trainings | None,
    semantics: Semantics,
) -> Interference | None:
    """How jobs on the same GPUs slow each other down; trainings that were measured share none.

    Raises:
        BadInput: the user says it of such trainings, or nothing is known of what is asked for.
    """
    if trainings is None:
        return interference_of(settings.interference, trace, pairs, jobs, semantics.harmless)
    if settings.interference:
        raise BadInput("--interference: trainings that were measured share no GPUs")
    return None


def _progress_of(
    trainings: Trainings | None, settings: RunSettings, semantics: Semantics, parts: Parts
) -> Callable[[Setting], Progress] | None:
    """How units get on; None: as the semantics say.

    Raises:
        BadInput: trainings that were measured do not go on in whole steps.
    """
    if isinstance(parts.scheduling, TakesTurns):
        if trainings is not None or semantics.drift:
            raise BadInput(
                f"{parts.scheduling.name}: jobs take turns at any moment, which neither semantics "
                "of whole steps nor trainings that were measured (--profiles of applications) know"
            )
        return partial(LaneProgress, rules=parts.scheduling.turns)
    node = parts.node
    if node is not None and (trainings is not None or semantics.drift):
        raise BadInput(
            f"node policy {node.name} divides GPUs among jobs at any moment: neither semantics of "
            "whole steps nor trainings that were measured (--profiles of applications) know that"
        )
    if trainings is None:
        return None if node is None else partial(DividedProgress, policy=node)
    if semantics.drift:
        raise BadInput(
            f"semantics {semantics.name} has rounds of whole steps, and trainings that were "
            "measured (--profiles of applications) have none"
        )
    interference = settings.costs.interference
    return partial(MeasuredProgress, trainings=trainings, interference=interference)


def _say_what_is_known(
    trainings: Trainings,
    costs: Costs,
    settings: RunSettings,
    measured: Floats | None,
    parts: Parts,
) -> None:
    """Tell trainings what their starts cost, and whether policies may know the truth of them.

    Args:
        trainings: all of them.
        costs: of the world.
        settings: what the run says itself.
        measured: seconds that the trace says each job's start takes; None where it says nothing.
        parts: an estimator that knows the truth lets policies know it too.
    """
    trainings.restart_overhead = costs.restart_overhead or 0.0
    if settings.costs.restart_overhead is None:
        trainings.own_restarts = measured
    knows = parts.estimator.knows and not isinstance(trainings, TypedTrainings)
    trainings.oracle = Oracle(trainings.of) if knows else None  # it speaks of one type


def _trainings(
    trace: Trace, cluster: Cluster, applications: Mapping[str, Application]
) -> Trainings:
    """The trainings of a trace; where they were measured on several types, their GPUs have one."""
    if not typed(applications):
        return trainings_of(trace, applications)
    found = trainings_of(trace, applications, TypedTrainings)
    if isinstance(found, TypedTrainings):
        found.check(trace, cluster)
    return found


def _speeds(jobs: Profiled | None, trainings: Trainings | None) -> Speeds | None:
    """What policies may know of speeds by GPU type, where something knows it."""
    if isinstance(trainings, TypedTrainings):
        return TypedSpeeds(trainings)
    return None if jobs is None else jobs.speed


def _scaling(
    jobs: Profiled | None, trainings: Trainings | None, units: UnitTable, cluster: Cluster
) -> Scaling | None:
    """What policies may know of speeds by number of GPUs, where something knows it."""
    if trainings is not None and trainings.oracle is not None:
        return TrainingScaling(trainings.oracle, trainings, units, cluster.largest_node)
    return None if jobs is None else TableScaling(jobs.speed, cluster.gpu_types[0])


def _knowing(trainings: Trainings | None) -> str:
    """What would let policies know how fast jobs run on how many GPUs."""
    if trainings is None:
        return "--profiles"
    if isinstance(trainings, TypedTrainings):
        return "the truth is known of one GPU type only"
    return "--estimate oracle"


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
