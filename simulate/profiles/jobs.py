"""From a throughput table and a trace: how fast each job runs where, and how much work it is.

The work of a job is its steps (column `total_iterations`); what kind it is, the columns `model` and
`batch_size` say. Where rounds consist of whole steps, work is counted in steps. Else it is counted
in seconds on the fastest type of the cluster, so that durations mean the same to every policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput, plural
from dlsched.core.speed.throughput_table import JobKind, TableSpeed, ThroughputTable
from simulate.profiles.adaptation import Adaptation, EpochProfiles
from simulate.profiles.batch_rules import BatchPatterns
from simulate.profiles.trainings import epoch_profile, trainings
from simulate.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The jobs of a trace under a table.

    Attributes:
        speed: how fast they run.
        work: how much each has to do, in the unit that `speed` counts.
        best_s: seconds that each takes on its fastest type.
        types: GPU types, in the cluster's order.
        rate: steps/s alone, [job, type].
        epochs: how the trainings go on, where the trace says whether they adapt.
    """

    speed: TableSpeed
    work: Floats
    best_s: Floats
    types: tuple[str, ...]
    rate: Floats
    epochs: EpochProfiles | None = None

    def allowed(self, row: int) -> str:
        """The types on which a job runs, joined by "|"; "" for all."""
        runs = self.rate[row] > 0
        if runs.all():
            return ""
        return "|".join(name for name, can in zip(self.types, runs.tolist(), strict=True) if can)


def profiled(
    trace: Trace,
    cluster: Cluster,
    table: ThroughputTable,
    *,
    in_steps: bool,
    patterns: BatchPatterns | None = None,
) -> Profiled:
    """Look up every job.

    Args:
        trace: the jobs.
        cluster: its GPU types.
        table: throughputs.
        in_steps: count work in steps.
        patterns: how gradient noise lets batch sizes grow.

    Raises:
        BadInput: one line that names the trace and the job: it has no model or steps, the table
            lacks its kind, its number of GPUs or a type of the cluster, or it runs nowhere.
    """
    kinds = _kinds(trace)
    steps = np.asarray(trace.columns.get("total_iterations", np.full(len(trace), np.nan)))
    unknown = np.flatnonzero(np.isnan(steps))
    if unknown.size:
        raise BadInput(
            f"{_job(trace, int(unknown[0]))} has no total_iterations; a profile needs it"
        )
    none = np.flatnonzero(steps <= 0)
    if none.size:
        row = int(none[0])
        raise BadInput(
            f"{_job(trace, row)} has {steps[row]:g} total_iterations; it must have more than 0"
        )
    types = _types(cluster, table)
    gangs = np.maximum(np.ceil(trace.num_gpus), 1).astype(np.int64)
    rate = _rates(trace, table, kinds, gangs, types)
    best = rate.max(axis=1, initial=0.0)
    nowhere = np.flatnonzero(best <= 0)
    if nowhere.size:
        row = int(nowhere[0])
        raise BadInput(
            f"{_job(trace, row)} can run nowhere: {kinds[row]} on {plural(gangs[row], 'GPU')} has "
            f"throughput 0 on {', '.join(types)}"
        )
    unit = np.ones(len(trace)) if in_steps else best
    speed = TableSpeed(table, kinds, unit=unit, types=types)
    work, best_s = steps / unit, steps / best
    epochs: EpochProfiles | None = None
    if "batch_mode" in trace.columns:
        jobs = trainings(trace, kinds, gangs, patterns)
        fastest = [types[int(place)] for place in rate.argmax(axis=1)]
        profiles = [
            epoch_profile(trace, row, job, table, fastest[row], patterns)
            for row, job in enumerate(jobs)
        ]
        own = np.array([profile.runtime for profile in profiles])
        if in_steps:
            epochs, best_s = Adaptation(jobs, profiles, speed, patterns), own
        else:
            adapts = np.array([job.adapts for job in jobs], np.bool_)
            work = best_s = np.where(adapts, own, best_s)
            epochs = EpochProfiles(jobs, profiles)
    return Profiled(speed=speed, work=work, best_s=best_s, types=types, rate=rate, epochs=epochs)


def _job(trace: Trace, row: int) -> str:
    return f"{trace.name}: job {trace.job_id[row]}"


def _kinds(trace: Trace) -> list[JobKind]:
    count = len(trace)
    models = trace.columns.get("model", np.full(count, "", np.object_)).tolist()
    sizes = np.asarray(trace.columns.get("batch_size", np.full(count, np.nan)), np.float64)
    kinds = []
    for row, (model, size) in enumerate(zip(models, sizes.tolist(), strict=True)):
        if not model:
            raise BadInput(f"{_job(trace, row)} has no model; a profile needs it")
        kinds.append(JobKind(str(model), None if math.isnan(size) else int(size)))
    return kinds


def _types(cluster: Cluster, table: ThroughputTable) -> tuple[str, ...]:
    lacking = [name for name in cluster.gpu_types if name not in table.types]
    if lacking:
        raise BadInput(
            f"--profiles: the cluster has GPUs of type {lacking[0]}, the profile knows "
            f"{', '.join(table.types)}"
        )
    return cluster.gpu_types


def _rates(
    trace: Trace,
    table: ThroughputTable,
    kinds: list[JobKind],
    gangs: Ints,
    types: tuple[str, ...],
) -> Floats:
    """Throughputs of all jobs, [job, type].

    Raises:
        BadInput: the table lacks an entry; the message names the first job that needs it.
    """
    try:
        return table.speeds(table.codes(kinds), gangs, types)
    except BadInput:
        for row, kind in enumerate(kinds):  # one by one, to name the job
            try:
                table.speeds(table.codes([kind]), gangs[[row]], types)
            except BadInput as error:
                raise BadInput(f"{_job(trace, row)}: {error}") from None
        raise
