"""How fast a unit runs where it is: the seam between a plan and its progress.

The world advances units by the *true* model; policies may hold another one, their *belief*. A rate
is work per second, where work is in the unit's own measure: seconds of its duration for plain
jobs, steps for jobs with a throughput table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dlsched.core.allocation import Grant
from dlsched.core.cluster import Cluster
from dlsched.core.occupancy import Occupancy, Placement
from dlsched.core.units import UnitTable

__all__ = ["PerformanceModel", "PlainDuration", "TypeSpeed"]


class PerformanceModel(Protocol):
    """Work per second of a unit on a placement."""

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        grant: Grant | None = None,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Work per second.

        Args:
            row: the unit.
            placement: the GPUs it holds.
            units: all units, for its model, gang and batch.
            occupancy: the cluster as it is, for GPU types and topology.
            grant: batch size, CPUs, memory and share it was given.
            partners: rows that share its GPUs.
        """
        ...


class PlainDuration:
    """A trace that says how long each job runs on its own gang: one second a second."""

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        grant: Grant | None = None,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Always 1.0."""
        return 1.0


@dataclass(frozen=True, slots=True)
class TypeSpeed:
    """Each GPU type has one speed for all models; a gang runs at the pace of its slowest GPU.

    Attributes:
        speed: seconds of reference work a second, by GPU type; a type not named runs at 1.0.
    """

    speed: Mapping[str, float]

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        grant: Grant | None = None,
        partners: tuple[int, ...] = (),
    ) -> float:
        """The slowest of the speeds of the types it holds."""
        cluster: Cluster = occupancy.cluster
        types = {cluster.gpu_types[int(occupancy.type_of[node])] for node in placement.nodes}
        return min(self.speed.get(name, 1.0) for name in types)
