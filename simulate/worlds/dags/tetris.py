"""Tetris: the task that fits best begins, of all jobs, with a preference for short jobs.

Grandl, Ananthanarayanan, Kandula, Rao, Akella: "Multi-Resource Packing for Cluster Schedulers",
SIGCOMM 2014, sections 3.2 to 3.5. This world has no places, so nothing is said of remote reads.
"""

from __future__ import annotations

import math

from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.carbyne.stages import Vector, work_left
from simulate.worlds.dags.cluster import Cluster, Live
from simulate.worlds.dags.following import Discipline, Moment, Shares

BELOW_SHARE = 0.25  # the paper's f: only the 1 − f of the jobs furthest below their shares count
NEARLY_DONE = 0.9  # the paper's b: tasks of a stage of which so much is finished go before others


def tetris(shares: Shares) -> Discipline:
    """One task after the other, the best of all that fit.

    Tasks of a stage that is nearly done go first, since other stages wait for the whole of it.
    """

    def decide(cluster: Cluster, moment: Moment) -> None:
        quotas = shares(cluster, moment)
        owed = {job.dag.id: quota for job, quota in zip(cluster.jobs, quotas, strict=True)}
        while (chosen := _chosen(cluster, owed)) and cluster.start(*chosen):
            pass

    return decide


def _chosen(cluster: Cluster, owed: dict[str, Vector]) -> tuple[Live, int] | None:
    room = cluster.amounts.room(cluster.free)
    ready = [job for job in cluster.jobs if job.ready]
    missing = {
        job.dag.id: ordered_sum(cluster.amounts.difference(owed[job.dag.id], job.held))
        for job in ready
    }
    ready.sort(key=lambda job: -missing[job.dag.id])
    found: list[tuple[bool, float, float, Live, int]] = []
    for job in ready[: math.ceil((1 - BELOW_SHARE) * len(ready))]:
        left = work_left(job.graph, job.waiting)
        for number in job.ready:
            stage = job.graph.stages[number]
            score = room.score(room.need(stage.demand))
            if score is not None:
                rest = job.unfinished[number] / stage.tasks
                late = rest > 1 - NEARLY_DONE + 1e-12
                found.append((late, float(score), left, job, number))
    if not found:
        return None
    works = ordered_sum(left for _, _, left, _, _ in found)
    weight = ordered_sum(score for _, score, _, _, _ in found) / works if works else 0.0
    late, _, _, job, number = min(found, key=lambda each: (each[0], weight * each[2] - each[1]))
    return job, number
