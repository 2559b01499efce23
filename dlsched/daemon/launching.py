"""How a run is launched: what its keeper needs beyond the desired set.

The environment is the user's, complete, and goes nowhere else; output patterns are expanded here
but for what differs between nodes and ranks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dlsched.protocol.ledger import Job, Run
from dlsched.rpc.v1 import control_pb2, run_pb2

if TYPE_CHECKING:
    from dlsched.daemon.cluster import Cluster
    from dlsched.db.records import JobSpec

__all__ = ["expand_pattern", "launch_spec", "output_pattern"]

_PATTERN = re.compile(r"%(\d{0,2})([%jAaxu])")
DEFAULT_OUTPUT = "dlsched-%j.out"
DEFAULT_ARRAY_OUTPUT = "dlsched-%A_%a.out"


def expand_pattern(pattern: str, job: int, spec: JobSpec) -> str:
    """An output pattern with the job's own values; %N, %n and %t stay for the node."""
    name = spec.body.name.replace("/", "_")
    values: dict[str, str | int] = {
        "j": job,
        "A": job - spec.index if spec.array is not None else job,
        "a": spec.task if spec.task is not None else 0,
        "x": name,
        "u": spec.user,
        "%": "%%",  # the node expands once more
    }

    def value(match: re.Match[str]) -> str:
        found = values[match[2]]
        width = min(int(match[1] or 0), 10)
        return f"{found:0{width}d}" if isinstance(found, int) else str(found)

    return _PATTERN.sub(value, pattern)


def output_pattern(job: int, spec: JobSpec) -> str:
    """Where a job's output goes, as `expand_pattern` leaves it."""
    default = DEFAULT_ARRAY_OUTPUT if spec.array is not None else DEFAULT_OUTPUT
    return expand_pattern(spec.body.output or default, job, spec)


def launch_spec(cluster: Cluster, job: Job, run: Run) -> control_pb2.LaunchSpec:
    """The spec of a run, from what is committed."""
    table = cluster.shell.table
    spec, facts = table.spec(job), table.of(job.job)
    body = spec.body
    message = control_pb2.LaunchSpec(
        key=run_pb2.RunKey(job=run.key.job, run=run.key.run, run_id=run.key.run_id),
        user=spec.user,
        uid=spec.uid,
        argv=body.argv,
        script=body.script,
        environment=[
            control_pb2.EnvironmentVariable(name=name, value=value)
            for name, value in body.environment.items()
        ],
        working_directory=body.working_directory,
        output=output_pattern(job.job, spec),
        error=expand_pattern(body.error, job.job, spec),
        append=run.key.run > 1 or not body.truncate,
        warn_signal=body.warn_signal,
        warn_before_s=body.warn_before_s,
        job_name=table.field(job, "name"),
        partition=table.field(job, "partition") or "",
        submit_directory=body.working_directory,
        submit_host=body.submit_host,
        slurm_environment=body.slurm_environment,
        deadline_at=table.field(job, "deadline_at"),
        vc=table.field(job, "vc") or "",
        cluster=cluster.settings.cluster.name,
        node_addresses=[cluster.address(name) for name in run.members],
        executed_s=facts.executed_s,
    )
    if spec.array is not None and spec.task is not None:
        message.array_job = job.job - spec.index
        message.array_task = spec.task
        message.array_count = len(spec.array.tasks)
        message.array_min = min(spec.array.tasks)
        message.array_max = max(spec.array.tasks)
        message.array_step = spec.array.step
    message.fixed_batch = bool(table.field(job, "fixed_batch"))
    training = cluster.trainings.trainings.get(job.job)
    batch = None if training is None else training.better_batch(cluster.training_place(run))
    if batch is not None:
        message.batch.local, message.batch.accumulation = batch
    if facts.checkpoint is not None:
        message.resume_from = facts.checkpoint.path
        message.resume_step = facts.checkpoint.step
    return message
