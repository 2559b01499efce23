"""The trainings of a trace whose jobs may adapt their batch size, and the epochs of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.core.errors import BadInput
from dlsched.core.speed.epochs import EpochProfile
from dlsched.core.speed.throughput_table import JobKind, ThroughputTable
from simulate.profiles.batch_rules import DATASET_SIZE, BatchPatterns, Training, profile_of
from simulate.traces.trace import Trace

MODES = ("static", "accordion", "gns")
EVEN_EPOCH_S = 60.0  # of trainings about whose epochs nothing is known


def trainings(
    trace: Trace, kinds: Sequence[JobKind], gangs: Ints, patterns: BatchPatterns | None
) -> list[Training]:
    """What decides each job's batch size, by row.

    Args:
        trace: the jobs.
        kinds: their models and batch sizes, by row.
        gangs: their GPUs, by row.
        patterns: how gradient noise lets batch sizes grow; None where no table is given.

    Raises:
        BadInput: one line that names the job: an unknown mode, a model whose epochs are not known,
            gns without a table of patterns.
    """
    found = []
    steps = np.asarray(trace.columns["total_iterations"], np.float64)
    for row, text in enumerate(trace.columns["batch_mode"].tolist()):
        mode, kind = str(text).strip() or "static", kinds[row]
        job = Training(kind.model, kind.batch_size or 1, int(gangs[row]), int(steps[row]), mode)
        if mode not in MODES:
            raise BadInput(
                f"{_job(trace, row)}: batch_mode must be {', '.join(MODES)}, not {mode!r}"
            )
        if mode != "static" and job.model not in DATASET_SIZE:
            raise BadInput(
                f"{_job(trace, row)} adapts its batch size ({mode}), and nothing is known of the "
                f"epochs of {job.model}; known: {', '.join(DATASET_SIZE)}"
            )
        if mode == "gns" and job.adapts and patterns is None:
            raise BadInput(
                f"{_job(trace, row)} adapts its batch size (gns): --profiles needs a table of "
                "batch sizes too, as THROUGHPUTS,BATCH_SIZES"
            )
        found.append(job)
    return found


def epoch_profile(
    trace: Trace,
    row: int,
    job: Training,
    table: ThroughputTable,
    gpu_type: str,
    patterns: BatchPatterns | None,
) -> EpochProfile:
    """The epochs of a job on a GPU type.

    Args:
        trace: the jobs.
        row: of the job.
        job: what decides its batch size.
        table: throughputs.
        gpu_type: where it runs.
        patterns: how gradient noise lets batch sizes grow.

    Raises:
        BadInput: a batch size that it will have was not measured.
    """

    def speed(size: int | None) -> float:
        kind = table.codes([JobKind(job.model, size)])
        return float(table.speeds(kind, np.array([job.gang]), [gpu_type])[0, 0])

    if job.model not in DATASET_SIZE:
        size = trace.columns["batch_size"][row] if "batch_size" in trace.columns else np.nan
        runtime = job.steps / speed(None if np.isnan(size) else job.initial)
        return EpochProfile.even(runtime, EVEN_EPOCH_S, job.initial)
    try:
        return profile_of(job, patterns, speed)
    except BadInput as error:
        raise BadInput(f"{_job(trace, row)}: {error}") from None


def _job(trace: Trace, row: int) -> str:
    return f"{trace.name}: job {trace.job_id[row]}"
