"""Tetris: the task that fits best begins, of all jobs, with a preference for short jobs.

Grandl, Ananthanarayanan, Kandula, Rao, Akella: "Multi-Resource Packing for Cluster Schedulers",
SIGCOMM 2014, sections 3.2 to 3.5. This world has no places, so nothing is said of remote reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.policies.scheduling.carbyne.stages import Vector, work_left
from simulate.dags.cluster import Cluster, Live
from simulate.dags.following import Moment, Shares

BELOW_SHARE = 0.25  # the paper's f
NEARLY_DONE = 0.9  # the paper's b


@dataclass(frozen=True, slots=True, kw_only=True)
class Tetris:
    """One task after the other, the best of all that fit.

    Attributes:
        shares: what jobs are owed.
        fairness: f: only the jobs furthest below their shares are looked at, 1 − f of them.
        barrier: b: tasks of a stage of which so much is finished go before all others, since other
            stages wait for the whole of it.
    """

    shares: Shares
    fairness: float = BELOW_SHARE
    barrier: float = NEARLY_DONE

    def decide(self, cluster: Cluster, moment: Moment) -> None:
        """Begin tasks."""
        quotas = self.shares.quotas(cluster, moment)
        owed = {job.dag.id: quota for job, quota in zip(cluster.jobs, quotas, strict=True)}
        while (chosen := self._chosen(cluster, owed)) and cluster.start(*chosen):
            pass

    def _chosen(self, cluster: Cluster, owed: dict[str, Vector]) -> tuple[Live, int] | None:
        room = cluster.amounts.room(cluster.free)
        missing = {
            name: sum(cluster.amounts.difference(owed[name], job.held))
            for job in cluster.jobs
            if job.ready and (name := job.dag.id)
        }
        ready = [job for job in cluster.jobs if job.ready]
        ready.sort(key=lambda job: -missing[job.dag.id])
        found: list[tuple[bool, float, float, Live, int]] = []
        for job in ready[: math.ceil((1 - self.fairness) * len(ready))]:
            left = work_left(job.graph, job.waiting)
            for number in job.ready:
                stage = job.graph.stages[number]
                score = room.score(room.need(stage.demand))
                if score is not None:
                    rest = job.unfinished[number] / stage.tasks
                    late = rest > 1 - self.barrier + 1e-12
                    found.append((late, float(score), left, job, number))
        if not found:
            return None
        works = sum(left for _, _, left, _, _ in found)
        weight = sum(score for _, score, _, _, _ in found) / works if works else 0.0
        late, _, _, job, number = min(found, key=lambda each: (each[0], weight * each[2] - each[1]))
        return job, number
