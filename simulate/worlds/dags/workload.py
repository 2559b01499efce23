"""A workload of graphs: resources, jobs, stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dlsched.policies.scheduling.carbyne.stages import Graph, Number, Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Dag:
    """A job as it is submitted.

    Attributes:
        id: its name.
        arrival: seconds.
        graph: its stages.
    """

    id: str
    arrival: Number
    graph: Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs for one cluster.

    Attributes:
        resources: their names.
        capacity: of the cluster, by resource, above 0.
        jobs: in input order; every task fits the empty cluster.
    """

    resources: tuple[str, ...]
    capacity: Vector
    jobs: Sequence[Dag]

    def in_whole_units(self) -> Workload:
        """The same in units such that all numbers are whole and all capacities are equal.

        So a score that adds resources counts each as a part of the cluster's.
        """
        sizes = [Fraction(size) for size in self.capacity]
        part_of = [
            [Fraction(part) / size for part, size in zip(stage.demand, sizes, strict=True)]
            for job in self.jobs
            for stage in job.graph.stages
        ]
        full = math.lcm(*(part.denominator for parts in part_of for part in parts))
        counted = iter(part_of)
        jobs = [
            replace(
                job,
                graph=Graph(
                    [
                        replace(stage, demand=tuple(int(part * full) for part in next(counted)))
                        for stage in job.graph.stages
                    ]
                ),
            )
            for job in self.jobs
        ]
        return replace(self, capacity=(full,) * len(sizes), jobs=jobs)
