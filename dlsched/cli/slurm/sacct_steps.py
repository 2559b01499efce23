"""The lines of steps that `sacct` prints below a job: its script, then each call of `srun`.

The nodes tell which calls of `srun` a run has made and, once one has ended, what it has used. The
script's step is the run without these calls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dlsched.client.job_records import Job, Step
from dlsched.core.cluster.host_lists import expand

_STOPPED = {"CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "GPU_FAIL", "DEADLINE", "PENDING"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a job, or a step of it as a job that has only what steps have."""

    job: Job
    step: str = ""  # `batch`, `interactive`, a number; empty: the job

    @property
    def suffix(self) -> str:
        """What follows the job's id."""
        return f".{self.step}" if self.step else ""


def with_steps(job: Job) -> Iterator[Line]:
    """A job's line, and those of the steps of its last run."""
    yield Line(job)
    if job.started_at is None and not job.steps:
        return
    bare = replace(job, user=None, partition=None, priority_class=None, time_limit_s=None)
    if job.asked.get("mode", "batch") != "batch":  # its ranks are its only step
        yield Line(replace(bare, first_started_at=job.started_at), "0")
        return
    script = "interactive" if job.interactive else "batch"
    first = replace(
        bare,
        name=script,
        nodes=job.nodes[:1],
        first_started_at=job.started_at,
        cpu_s=job.script_cpu_s,
        peak_memory_bytes=job.script_peak_bytes,
        asked={**job.asked, "ntasks": 1},
    )
    state = "CANCELLED" if job.state in _STOPPED - {"PENDING"} else job.state
    yield Line(replace(first, state=state, cancelled_by=None), script)
    for step in job.steps:
        yield Line(_call(bare, step), str(step.number))


def _call(bare: Job, step: Step) -> Job:
    """A call of `srun` as a job."""
    began = step.began_at
    state = "RUNNING" if step.running else "COMPLETED"
    if step.signal and bare.state in _STOPPED:
        state = "CANCELLED"
    elif step.code or step.signal:
        state = "FAILED"
    ran_s = step.ran_s
    if step.running and began is not None:
        ran_s = max(time.time() - began, 0.0)
    return replace(
        bare,
        name=step.name,
        state=state,
        cancelled_by=None,
        nodes=tuple(expand("nodes", step.nodes)) if step.nodes else (),
        exit_code=step.code,
        exit_signal=step.signal,
        run_s=ran_s,
        submitted_at=began,
        first_started_at=began,
        ended_at=None if began is None or step.running else began + ran_s,
        asked={"cpus": step.cpus or step.tasks, "ntasks": step.tasks},
        cpu_s=None if step.running else step.cpu_s,
        peak_memory_bytes=None if step.running else step.peak_memory_bytes,
    )
