"""How fast a unit runs where it is: the seam between a plan and its progress.

The world advances units by the *true* model; policies may hold another one, their *belief*. A rate
is work per second, where work is in the unit's own measure: seconds of its duration for plain
jobs, steps for jobs with a throughput table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster import Cluster
from dlsched.core.occupancy import Occupancy, Placement
from dlsched.core.units import UnitTable

__all__ = ["BelievedSpeed", "PerformanceModel", "PlainDuration", "Speeds", "TypeSpeed"]


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


class BelievedSpeed:
    """What is believed of speeds, taken for true: for who asks what would become of a plan.

    Work counts as `steps_per_work` says, which is in seconds on the fastest type of those that are
    known. A gang over several types runs at the pace of the slowest. A row beside another is as
    fast as the pair is known to be; as if alone where nobody knows. Where a row is believed not to
    run at all, but does, the belief is wrong: it runs as elsewhere.
    """

    def __init__(self, speeds: Speeds, by_size: PerformanceModel) -> None:
        """Combine two beliefs.

        Args:
            speeds: by GPU type.
            by_size: how a row runs on other numbers of GPUs than it asked for.
        """
        self._speeds, self._by_size = speeds, by_size
        self._known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], float] = {}

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        grant: Grant | None = None,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Work per second."""
        kinds = tuple(sorted({int(occupancy.type_of[node]) for node in placement.nodes}))
        key = row, kinds, partners
        pace = self._known.get(key)
        if pace is None:
            names = [occupancy.cluster.gpu_types[kind] for kind in kinds]
            pace = self._known[key] = self._pace(row, int(units.gang[row]), names, partners)
        return pace * self._by_size.rate(row, placement, units, occupancy, grant, partners)

    def _pace(self, row: int, gang: int, types: Sequence[str], partners: tuple[int, ...]) -> float:
        rows, scales = np.array([row]), np.array([gang])
        steps = float(self._speeds.alone(rows, scales, types).min())
        if len(partners) == 1:
            pair = self._speeds.together(rows, np.array(partners), scales, types)
            beside = float(pair[0, :, 0].min())
            steps = beside if beside > 0 else steps
        pace = steps / float(self._speeds.steps_per_work(rows)[0])
        return pace if pace > 0 else 1.0
