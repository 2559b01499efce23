"""Which tasks begin: by Carbyne, or job by job in an order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlsched.core.graphs import ways_to_the_end
from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.carbyne.plan import greedy, plan_backwards
from dlsched.policies.scheduling.carbyne.stages import Graph, Number, Vector, work_left
from simulate.worlds.dags.cluster import Cluster, Live
from simulate.worlds.dags.following import Discipline, Moment, Shares


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

    def __call__(self, cluster: Cluster, moment: Moment) -> None:
        """Begin tasks: first from the shares, then from what all leave."""
        quotas = self._shares(cluster, moment)
        planned = [
            (job, self._own(cluster, job, quota))
            for job, quota in zip(cluster.jobs, quotas, strict=True)
            if job.ready
        ]
        for job, first in planned:
            _start(cluster, job, first)
        for job in shortest_first(cluster, moment):
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


def shortest_first(cluster: Cluster, _moment: Moment) -> list[Live]:
    """Jobs by the work of their tasks that have not begun."""
    return sorted(cluster.jobs, key=lambda job: work_left(job.graph, job.waiting))


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


JobOrder = Callable[[Cluster, Moment], list[Live]]  # all jobs, the one that takes first first
TaskOrder = Callable[[Cluster, Live], None]  # begins all tasks of a job that fit


def in_order(jobs: JobOrder, tasks: TaskOrder) -> Discipline:
    """One job after the other takes what it can of the whole cluster."""

    def decide(cluster: Cluster, moment: Moment) -> None:
        for job in jobs(cluster, moment):
            tasks(cluster, job)

    return decide


def furthest_below(shares: Shares) -> JobOrder:
    """First the job that is furthest below its share."""

    def order(cluster: Cluster, moment: Moment) -> list[Live]:
        missing = {
            job.dag.id: ordered_sum(cluster.amounts.difference(quota, job.held))
            for job, quota in zip(cluster.jobs, shares(cluster, moment), strict=True)
        }
        return sorted(cluster.jobs, key=lambda job: -missing[job.dag.id])

    return order


def critical_path(cluster: Cluster, job: Live) -> None:
    """First the stage with the longest way to the end of its job."""
    length = to_the_end(job.graph)
    for number in sorted(job.ready, key=lambda number: -length[number]):
        while job.waiting[number] and cluster.start(job, number):
            pass


def best_fit(cluster: Cluster, job: Live) -> None:
    """First the task that fits best."""
    room = cluster.amounts.room(cluster.free)
    _start(cluster, job, greedy(job.graph, job.waiting, job.ready, room))


def to_the_end(graph: Graph) -> list[Number]:
    """Of each stage, seconds from its begin to the job's end on endless resources."""
    ways = ways_to_the_end(
        {number: stage.duration for number, stage in enumerate(graph.stages)},
        {number: stage.parents for number, stage in enumerate(graph.stages)},
    )
    return list(ways.values())
