"""The library that a training script imports, so that preemption loses none of its work.

A training loop with it::

    from dlsched.job import attach

    with attach() as job:
        job.checkpoint.register("model", save=model.save, load=model.load)
        for step in range(job.restore(), 10_000):
            loss = train_one_batch(step)
            if not job.step(loss=loss):
                break

It uses the standard library only and nothing else of dlsched, and is also packaged alone, as
`dlsched-job`. Without a scheduler the same script runs unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dlsched.job.errors import DamagedCheckpoint, JobError
from dlsched.job.job import Job, Lease
from dlsched.job.runtime import PREEMPTED, Runtime
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
    background: bool = False,
    gang: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Job:
    """Return the job that this process is a rank of, or one that runs alone without a scheduler.

    Args:
        folder: of the checkpoints, where the scheduler names none (DLSCHED_CKPT_DIR). When neither
            names one, nothing is saved.
        every_s: seconds between two periodic checkpoints; None: save only when the job must stop.
        every_steps: steps between two periodic checkpoints; None: by the clock alone.
        keep: how many checkpoints are kept at least; `submit --keep` takes precedence.
        background: copy the states at a periodic checkpoint, and write them while the training
            goes on; needs host memory for the copy.
        gang: whether the ranks train together, and so stop together after the same step.
        environment: variables to read in place of the process's own.

    Raises:
        JobError: when a variable of the environment, or `keep`, is wrong.
    """
    runtime = Runtime.of(os.environ if environment is None else environment)
    if keep < 1:
        raise JobError(f"keep={keep}: at least one checkpoint has to be kept")
    job = Job(runtime, folder=None if folder is None else Path(folder), gang=gang)
    job.checkpoint.every_s = every_s
    job.checkpoint.every_steps = every_steps
    job.checkpoint.keep = runtime.keep_checkpoints or keep
    job.checkpoint.background = background
    return job
