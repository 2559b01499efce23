"""The exact profile: fractions, and events instead of steps."""

from __future__ import annotations

from dlsched.policies.scheduling.carbyne.exact import ExactRoom
from dlsched.policies.scheduling.carbyne.plan import Room
from dlsched.policies.scheduling.carbyne.shares import quotas
from dlsched.policies.scheduling.carbyne.stages import Number, Vector
from simulate.dags.cluster import Cluster
from simulate.dags.following import Moment, Profile
from simulate.dags.workload import Workload


class ExactAmounts:
    """Sums and differences as they are."""

    def plus(self, a: Vector, b: Vector) -> Vector:
        """The sum."""
        return tuple(x + y for x, y in zip(a, b, strict=True))

    def difference(self, a: Vector, b: Vector) -> Vector:
        """The difference, which may be below 0."""
        return tuple(x - y for x, y in zip(a, b, strict=True))

    def minus(self, a: Vector, b: Vector) -> Vector:
        """The difference, at least 0."""
        return tuple(max(0, x - y) for x, y in zip(a, b, strict=True))

    def room(self, size: Vector) -> Room:
        """An empty virtual machine."""
        return ExactRoom(size)


class DominantShares:
    """Equal dominant shares, made anew at every event."""

    def quotas(self, cluster: Cluster, moment: Moment) -> list[Vector]:
        """Resources of each job of the cluster, in its order."""
        return quotas([job.graph for job in cluster.jobs], cluster.capacity)


class Events:
    """Ends of tasks and arrivals of jobs."""

    def next(self, now: Number | None, arrival: Number | None, end: Number | None) -> Number | None:
        """The next moment."""
        return min((each for each in (arrival, end) if each is not None), default=None)


def exact(workload: Workload) -> Profile:
    """The profile in which nothing is rounded."""
    return Profile(
        amounts=ExactAmounts(),
        shares=DominantShares(),
        clock=Events(),
        workload=workload.in_whole_units(),
    )
