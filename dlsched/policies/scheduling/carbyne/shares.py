"""What each job is owed: dominant resource fairness over the mean demands of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dlsched.policies.fairness.drf import dominant_share
from dlsched.policies.scheduling.carbyne.stages import Graph, Vector


def quotas(graphs: Sequence[Graph], capacity: Vector) -> list[Vector]:
    """Resources of each job when all have one dominant share, and the first resource is full.

    A job wants resources in the proportion of its mean task.

    Args:
        graphs: of the jobs; each one has a demand above 0 of something.
        capacity: of the cluster, by resource, above 0.
    """
    if not graphs:
        return []
    sizes = [Fraction(part) for part in capacity]
    wanted = [_profile(graph, sizes) for graph in graphs]
    fullest = max(sum(column, Fraction(0)) for column in zip(*wanted, strict=True))
    return [
        tuple(part * size / fullest for part, size in zip(job, sizes, strict=True))
        for job in wanted
    ]


def _profile(graph: Graph, capacity: Sequence[Fraction]) -> list[Fraction]:
    """Shares of the resources, of which the largest is 1."""
    total = [
        sum((Fraction(stage.demand[j]) * stage.tasks for stage in graph.stages), Fraction(0))
        for j in range(len(capacity))
    ]
    largest = dominant_share(total, capacity)
    return [part / size / largest for part, size in zip(total, capacity, strict=True)]
