"""The small library that a training script imports to be preempted without losing work.

    from dlsched.job import attach

    with attach() as job:
        job.checkpoint.register("model", save=model.save, load=model.load)
        for step in range(job.restore(), 10_000):
            loss = train_one_batch(step)
            if not job.step(loss=loss):
                break

Standard library only. Without a scheduler the same script runs as it is. It needs nothing else of
dlsched, and is also packaged alone, as `dlsched-job`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dlsched.job.errors import DamagedCheckpoint, JobError
from dlsched.job.job import PREEMPTED, Job, Lease
from dlsched.job.runtime import Runtime
from dlsched.job.sampler import ElasticSampler

__all__ = [
    "PREEMPTED",
    "DamagedCheckpoint",
    "ElasticSampler",
    "Job",
    "JobError",
    "Lease",
    "attach",
]


def attach(
    *,
    folder: str | os.PathLike[str] | None = None,
    every_s: float | None = 600.0,
    every_steps: int | None = None,
    keep: int = 2,
    gang: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Job:
    """Take part in the job that this process belongs to, or run alone when there is none.

    Args:
        folder: of the checkpoints, where the scheduler names none (DLSCHED_CKPT_DIR). Without
            either nothing is saved.
        every_s: seconds between two periodic checkpoints; None: only when the job has to stop.
        every_steps: steps between two; None: by the clock alone.
        keep: how many checkpoints are kept at least.
        gang: the ranks train together, so they stop together; False: each rank for itself.
        environment: variables to read in place of the process's own.
    """
    runtime = Runtime.of(os.environ if environment is None else environment)
    if keep < 1:
        raise JobError(f"keep={keep}: at least one checkpoint has to be kept")
    job = Job(runtime, folder=None if folder is None else Path(folder), gang=gang)
    job.checkpoint.every_s = every_s
    job.checkpoint.every_steps = every_steps
    job.checkpoint.keep = keep
    return job
