"""Jobs are followed to their ends: tasks end, jobs arrive, a discipline begins tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dlsched.core.errors import BadInput
from dlsched.policies.scheduling.carbyne.stages import Number, Vector
from simulate.dags.cluster import Amounts, Cluster, Live
from simulate.dags.workload import Dag, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What has changed.

    Attributes:
        touched: jobs of which tasks ended now, in order of arrival; some are done by it.
        arriving: some job had not arrived before this moment.
    """

    touched: Sequence[Live]
    arriving: bool


class Clock(Protocol):
    """The moments at which something can change."""

    def next(self, now: Number | None, arrival: Number | None, end: Number | None) -> Number | None:
        """The next moment.

        Args:
            now: the last one; None: there was none.
            arrival: of the next job; None: none is to come.
            end: of the next task; None: none runs.

        Returns:
            seconds; None: nothing will happen any more.
        """


class Shares(Protocol):
    """What jobs are owed."""

    def quotas(self, cluster: Cluster, moment: Moment) -> list[Vector]:
        """Resources of each job of the cluster, in its order."""


class Discipline(Protocol):
    """Which tasks begin."""

    def decide(self, cluster: Cluster, moment: Moment) -> None:
        """Begin tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The world's arithmetic.

    Attributes:
        amounts: how resources are counted.
        shares: what jobs are owed.
        clock: when something can change.
        workload: the jobs in the units of this profile.
    """

    amounts: Amounts
    shares: Shares
    clock: Clock
    workload: Workload


def follow(profile: Profile, discipline: Discipline) -> dict[str, Number]:
    """Follow all jobs; returns when each ends, in seconds.

    Raises:
        BadInput: a job never ends under this discipline.
    """
    workload, clock = profile.workload, profile.clock
    cluster = Cluster(workload.capacity, profile.amounts)
    queue = sorted(workload.jobs, key=_arrival)
    ends: dict[str, Number] = {}
    arrived, now = 0, None
    while True:
        arrival = queue[arrived].arrival if arrived < len(queue) else None
        now = clock.next(now, arrival, cluster.next_end)
        if now is None:
            break
        cluster.now = now
        touched = cluster.end_tasks()
        ends |= {job.dag.id: now for job in touched if job.is_done}
        moment = Moment(touched=touched, arriving=arrived < len(queue))
        while arrived < len(queue) and queue[arrived].arrival <= now:
            cluster.admit(queue[arrived])
            arrived += 1
        discipline.decide(cluster, moment)
    stuck = [job.id for job in workload.jobs if job.id not in ends]
    if stuck:
        raise BadInput(f"jobs {', '.join(stuck)} never end: no task of theirs is ever begun")
    return ends


def _arrival(dag: Dag) -> Number:
    return dag.arrival
