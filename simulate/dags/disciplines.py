"""Which tasks begin: by Carbyne, or job by job in an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dlsched.policies.scheduling.carbyne.plan import greedy, plan_backwards
from dlsched.policies.scheduling.carbyne.stages import Graph, Number, Vector, work_left
from simulate.dags.cluster import Cluster, Live
from simulate.dags.following import Moment, Shares


class Carbyne:
    """Jobs begin what must begin now; what is left goes to the shortest jobs (section 4)."""

    def __init__(self, shares: Shares, *, altruism: float = 1.0, seed: int = 0) -> None:
        """Plans within shares.

        Args:
            shares: what jobs are owed.
            altruism: the probability that a job leaves what it can leave, at each event; otherwise
                it begins all that fits its share.
            seed: of the draws.
        """
        self._shares = shares
        self._altruism = altruism
        self._generator = np.random.default_rng(seed)

    def decide(self, cluster: Cluster, moment: Moment) -> None:
        """Begin tasks: first from the shares, then from what all leave."""
        quotas = self._shares.quotas(cluster, moment)
        planned = [
            (job, self._own(cluster, job, quota))
            for job, quota in zip(cluster.jobs, quotas, strict=True)
            if job.ready
        ]
        for job, first in planned:
            _start(cluster, job, first)
        for job in shortest_first(cluster.jobs):
            free = cluster.free
            if not any(part > 0 for part in free):
                break
            if job.ready:
                _start(cluster, job, _altruistic(cluster, job, free))

    def _own(self, cluster: Cluster, job: Live, quota: Vector) -> list[int]:
        size = cluster.amounts.minus(quota, job.held)
        if self._altruism < 1 and self._generator.random() >= self._altruism:
            return greedy(job.graph, job.waiting, job.ready, cluster.amounts.room(size))
        return _altruistic(cluster, job, size)


def shortest_first(jobs: Sequence[Live]) -> list[Live]:
    """Jobs by the work of their tasks that have not begun."""
    return sorted(jobs, key=lambda job: work_left(job.graph, job.waiting))


def _altruistic(cluster: Cluster, job: Live, size: Vector) -> list[int]:
    """The stages of tasks that must begin now, one entry a task."""
    plan = plan_backwards(job.graph, job.waiting, cluster.amounts.room(size))
    if plan is None:
        return []
    return [
        number
        for number, count in enumerate(plan.first)
        if number in job.ready
        for _ in range(count)
    ]


def _start(cluster: Cluster, job: Live, stages: Sequence[int]) -> None:
    """Begin tasks up to the first one that does not fit."""
    for number in stages:
        if not cluster.start(job, number):
            break


class JobOrder(Protocol):
    """Which job may take first."""

    def order(self, cluster: Cluster, moment: Moment) -> list[Live]:
        """All jobs, the first one first."""


class TaskOrder(Protocol):
    """Which tasks of one job are begun first."""

    def start(self, cluster: Cluster, job: Live) -> None:
        """Begin all tasks that fit."""


class InOrder:
    """One job after the other takes what it can of the whole cluster."""

    def __init__(self, jobs: JobOrder, tasks: TaskOrder) -> None:
        """Two orders."""
        self._jobs, self._tasks = jobs, tasks

    def decide(self, cluster: Cluster, moment: Moment) -> None:
        """Begin tasks."""
        for job in self._jobs.order(cluster, moment):
            self._tasks.start(cluster, job)


class FurthestBelow:
    """First the job that is furthest below its share."""

    def __init__(self, shares: Shares) -> None:
        """Reads shares."""
        self._shares = shares

    def order(self, cluster: Cluster, moment: Moment) -> list[Live]:
        """All jobs."""
        quotas = self._shares.quotas(cluster, moment)
        missing = {
            job.dag.id: sum(cluster.amounts.difference(quota, job.held))
            for job, quota in zip(cluster.jobs, quotas, strict=True)
        }
        return sorted(cluster.jobs, key=lambda job: -missing[job.dag.id])


class ShortestFirst:
    """First the job with the least work."""

    def order(self, cluster: Cluster, moment: Moment) -> list[Live]:
        """All jobs."""
        return shortest_first(cluster.jobs)


class CriticalPath:
    """First the stage with the longest way to the end of its job."""

    def start(self, cluster: Cluster, job: Live) -> None:
        """Begin all tasks that fit."""
        length = to_the_end(job.graph)
        for number in sorted(job.ready, key=lambda number: -length[number]):
            while job.waiting[number] and cluster.start(job, number):
                pass


class BestFit:
    """First the task that fits best."""

    def start(self, cluster: Cluster, job: Live) -> None:
        """Begin all tasks that fit."""
        room = cluster.amounts.room(cluster.free)
        _start(cluster, job, greedy(job.graph, job.waiting, job.ready, room))


def to_the_end(graph: Graph) -> list[Number]:
    """Of each stage, seconds from its begin to the job's end on endless resources."""
    children = graph.children()
    found: dict[int, Number] = {}
    ahead = list(range(len(children)))
    while ahead:
        number = ahead[-1]
        missing = [child for child in children[number] if child not in found]
        if missing:
            ahead += missing
            continue
        ahead.pop()
        rest = max((found[child] for child in children[number]), default=0)
        found[number] = graph.stages[number].duration + rest
    return [found[number] for number in range(len(children))]
