"""`seff`: how well a job has used its processors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from dlsched.cli.jobs.job_filter import ids_of, job_filter
from dlsched.cli.slurm.arguments import Arguments
from dlsched.cli.slurm.cluster import cluster_name
from dlsched.cli.slurm.people import group_text
from dlsched.cli.slurm.quantities import job_cpus, job_nodes, memory_on_node
from dlsched.cli.slurm.sacct_cells import clock, in_unit
from dlsched.client.daemon_client import Client
from dlsched.client.job_records import Job
from dlsched.core.errors import DlschedError


def seff(words: Sequence[str]) -> int:
    """Tell of one job, or of each element of an array."""
    parser = Arguments("seff", "How well a job has used its processors and memory.")
    parser.add_argument("job", help="7, or an element of an array: 7_3")
    given = parser.read(words)
    ids_of([given.job])
    with Client() as cluster:
        found = list(cluster.history(job_filter([given.job], all_users=True), live_too=True))
    if not found:
        raise DlschedError(f"job {given.job}: there is no such job")
    for job in sorted(found, key=lambda each: each.job_id):
        print("\n".join(_lines(job)))
    return 0


def _lines(job: Job) -> Iterator[str]:
    nodes, cpus, ran_s = job_nodes(job), job_cpus(job), job.run_s or 0.0
    yield f"Job ID: {job.job_id}"
    if job.array_job_id is not None:
        yield f"Array Job ID: {job.shown_id}"
    yield f"Cluster: {cluster_name()}"
    yield f"User/Group: {job.user or ''}/{group_text(job.user)}"
    code = f" (exit code {job.exit_code or 0})" if job.ended_at is not None else ""
    yield f"State: {job.state}{code}"
    if nodes > 1:
        yield f"Nodes: {nodes}"
        yield f"Cores per node: {cpus // nodes}"
    else:
        yield f"Cores: {cpus}"
    walltime = ran_s * cpus
    if job.starts > 1 and job.started_at is not None:  # the CPU time is that of the last run
        walltime = max((job.ended_at or time.time()) - job.started_at, 0.0) * cpus
    if job.cpu_s is not None:  # known once its run has ended
        part = 100 * job.cpu_s / walltime if walltime else 0.0
        yield f"CPU Utilized: {clock(job.cpu_s)}"
        yield f"CPU Efficiency: {part:.2f}% of {clock(walltime)} core-walltime"
    yield f"Job Wall-clock time: {clock(ran_s)}"
    peak, asked = job.peak_memory_bytes, memory_on_node(job)
    if peak:
        yield f"Memory Utilized: {in_unit(peak, 'M')}B (its largest process)"
        if asked:
            yield f"Memory Efficiency: {100 * peak / asked:.2f}% of {in_unit(asked, 'M')}B a node"
    if job.gpus and job.gpu_used is not None:
        yield f"GPU Efficiency: {100 * job.gpu_used:.2f}% of {job.gpus} GPUs"
    if job.ended_at is None:
        yield "WARNING: Efficiency statistics may be misleading for jobs that have not ended."
