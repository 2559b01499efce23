"""Jobs are followed to their ends: tasks end, jobs arrive, a discipline begins tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlsched.core.errors import BadInput
from dlsched.policies.scheduling.carbyne.exact import ExactRoom
from dlsched.policies.scheduling.carbyne.stages import Number, Vector, quotas
from simulate.worlds.dags.cluster import Amounts, Cluster, Live
from simulate.worlds.dags.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What has changed.

    Attributes:
        touched: jobs of which tasks ended now, in order of arrival; some are done by it.
        arriving: some job had not arrived before this moment.
    """

    touched: Sequence[Live]
    arriving: bool


# The next moment at which something can change, from the last one (None: there was none), the
# arrival of the next job and the end of the next task (None: there is none); None: never.
Clock = Callable[[Number | None, Number | None, Number | None], Number | None]
Shares = Callable[[Cluster, Moment], list[Vector]]  # what each job of the cluster is owed
Discipline = Callable[[Cluster, Moment], None]  # begins tasks


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


def exact(workload: Workload) -> Profile:
    """The profile in which nothing is rounded: fractions, and events instead of steps."""
    return Profile(
        amounts=Amounts(room=ExactRoom, counted=lambda amount: amount),
        shares=dominant_shares,
        clock=events,
        workload=workload.in_whole_units(),
    )


def dominant_shares(cluster: Cluster, _moment: Moment) -> list[Vector]:
    """Equal dominant shares, made anew at every event."""
    return quotas([job.graph for job in cluster.jobs], cluster.capacity)


def events(_now: Number | None, arrival: Number | None, end: Number | None) -> Number | None:
    """Ends of tasks and arrivals of jobs."""
    return min((each for each in (arrival, end) if each is not None), default=None)


def follow(profile: Profile, discipline: Discipline) -> dict[str, Number]:
    """Follow all jobs; returns when each ends, in seconds.

    Raises:
        BadInput: a job never ends under this discipline.
    """
    workload = profile.workload
    cluster = Cluster(workload.capacity, profile.amounts)
    queue = sorted(workload.jobs, key=lambda dag: dag.arrival)
    ends: dict[str, Number] = {}
    arrived, now = 0, None
    while True:
        arrival = queue[arrived].arrival if arrived < len(queue) else None
        now = profile.clock(now, arrival, cluster.next_end)
        if now is None:
            break
        cluster.now = now
        touched = cluster.end_tasks()
        ends |= {job.dag.id: now for job in touched if job.is_done}
        moment = Moment(touched=touched, arriving=arrived < len(queue))
        while arrived < len(queue) and queue[arrived].arrival <= now:
            cluster.admit(queue[arrived])
            arrived += 1
        discipline(cluster, moment)
    stuck = [job.id for job in workload.jobs if job.id not in ends]
    if stuck:
        raise BadInput(f"jobs {', '.join(stuck)} never end: no task of theirs is ever begun")
    return ends
