"""What jobs have used of the cluster in a period, for `sreport`.

A job's figures are those of `dlsched usage` and `sacct`. Of a job that began before the period or
goes on after it, its use is spread evenly over its time from its first start to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from dlsched.cli.slurm.quantities import job_cpus, job_nodes
from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.job_records import Job
from dlsched.client.records import Node
from dlsched.core.errors import BadInput, not_known


@dataclass(frozen=True, slots=True)
class Resource:
    """What is counted: its name, how much a job has used, its size, and what a node has."""

    name: str
    title: str
    used_s: Callable[[Job], float]
    size: Callable[[Job], int]
    of_node: Callable[[Node], int]


def _cpu_s(job: Job) -> float:
    return (job.run_s or 0) * job_cpus(job)


RESOURCES = {
    "cpu": Resource("cpu", "CPU", _cpu_s, job_cpus, lambda node: node.cpus or 0),
    "billing": Resource("billing", "TRES", _cpu_s, job_cpus, lambda node: node.cpus or 0),
    "node": Resource(
        "node", "TRES", lambda job: (job.run_s or 0) * job_nodes(job), job_nodes, lambda node: 1
    ),
    "gres/gpu": Resource(
        "gres/gpu", "TRES", lambda job: job.gpu_s or 0, lambda job: job.gpus, lambda node: node.gpus
    ),
}


def resource(text: str) -> Resource:
    """The resource of `-T`.

    Raises:
        BadInput: one that is not counted, or several.
    """
    if "," in text or text.lower() == "all":
        raise BadInput(f"-T: {text!r}: one at a time")
    if text.lower() not in RESOURCES:
        raise not_known("-T", text, RESOURCES)
    return RESOURCES[text.lower()]


@dataclass(frozen=True, slots=True)
class Period:
    """From a moment up to another, in seconds since the epoch."""

    start: float
    end: float

    @property
    def length_s(self) -> float:
        """How long it is."""
        return self.end - self.start

    def part_of(self, job: Job, now: float) -> float:
        """The part of a job's time that lies in it, 0 to 1."""
        if job.first_started_at is None:
            return 0.0
        began, ended = job.first_started_at, now if job.ended_at is None else job.ended_at
        if ended <= began:
            return float(self.start <= began < self.end)
        return max(min(ended, self.end) - max(began, self.start), 0.0) / (ended - began)


@dataclass(frozen=True, slots=True)
class Use:
    """What one job has used in the period."""

    user: str
    account: str
    seconds: float
    size: int


def uses(
    cluster: Client,
    period: Period,
    counted: Resource,
    *,
    users: Collection[str] = (),
    accounts: Collection[str] = (),
) -> Iterator[Use]:
    """What each job has used, of those that ran in the period."""
    now = time.time()
    chosen = filter_of(users=users, all_users=True)
    for job in cluster.history(chosen, since=period.start, live_too=True):
        account = job.account or job.vc or ""
        part = period.part_of(job, now)
        if part and (not accounts or account in accounts):
            yield Use(job.user or "", account, part * counted.used_s(job), counted.size(job))
