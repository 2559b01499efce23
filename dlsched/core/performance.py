"""How fast a unit runs where it is: the seam between a plan and its progress.

The world advances units by the *true* model; policies may hold another one, their *belief*. A rate
is work per second, where work is in the unit's own measure: seconds of its duration for plain
jobs, steps for jobs with a throughput table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster import Cluster
from dlsched.core.occupancy import Occupancy, Placement
from dlsched.core.units import UnitTable

__all__ = ["PerformanceModel", "PlainDuration", "Speeds", "TypeSpeed"]


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


class Speeds(Protocol):
    """What policies may believe of speeds: steps per second by GPU type, alone and in pairs.

    0 means that a row cannot run there, or that two do not fit together.
    """

    def alone(self, rows: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of rows that have their GPUs for themselves, [row, type].

        Args:
            rows: units.
            scales: GPUs of each.
            types: GPU types, in the order of the columns.
        """
        ...

    def together(self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of both halves of pairs on the same GPUs, [pair, type, half]."""
        ...

    def steps_per_work(self, rows: Rows) -> Floats:
        """Steps in one unit of the work that the table counts."""
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
