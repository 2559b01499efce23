"""A job as a graph of stages, each of equal tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

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
    return sum(
        math.sqrt(sum(float(part) ** 2 for part in stage.demand)) * left * float(stage.duration)
        for stage, left in zip(graph.stages, waiting, strict=True)
    )
