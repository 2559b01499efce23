"""A job as a graph of stages, each of equal tasks; and what each job is owed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dlsched.core.sums import ordered_sum
from dlsched.policies.fairness.drf import dominant_share

Number = int | float | Fraction
Vector = tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """Equal tasks, which are ready when all tasks of all parents are finished.

    Attributes:
        duration: of one task, in seconds, above 0.
        demand: of one task, by resource, in the unit of the capacity.
        tasks: how many, at least 1.
        parents: numbers of the stages before it, in the graph's list.
    """

    duration: Number
    demand: Vector
    tasks: int
    parents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """The stages of one job; no stage comes after itself."""

    stages: Sequence[Stage]

    def children(self) -> list[list[int]]:
        """Of each stage, the numbers of those that wait for it."""
        found: list[list[int]] = [[] for _ in self.stages]
        for number, stage in enumerate(self.stages):
            for parent in stage.parents:
                found[parent].append(number)
        return found


def work_left(graph: Graph, waiting: Sequence[int]) -> float:
    """SRTF score: the sum of the lengths of demands times seconds of tasks that have not begun."""
    return ordered_sum(
        math.sqrt(ordered_sum(float(part) ** 2 for part in stage.demand))
        * left
        * float(stage.duration)
        for stage, left in zip(graph.stages, waiting, strict=True)
    )


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
