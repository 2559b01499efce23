"""How fast a unit really runs where it is: what the world advances units by.

Policies see another handle, what they may believe (`belief.Belief`). A rate is work per second,
where work is in the unit's own measure: seconds of its duration for plain jobs, steps for jobs with
a throughput table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.units import UnitTable


class PerformanceModel(Protocol):
    """Work per second of a unit on a placement."""

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Work per second.

        Args:
            row: the unit.
            placement: the GPUs it holds.
            units: all units, for its model, gang and batch.
            occupancy: the cluster as it is, for GPU types and topology.
            partners: rows that share its GPUs.
        """
        ...

    def rates(
        self, placements: Mapping[int, Placement], units: UnitTable, occupancy: Occupancy
    ) -> Floats:
        """Work per second of units that have their GPUs for themselves, in the same order."""
        pairs = placements.items()
        return np.array([self.rate(row, where, units, occupancy) for row, where in pairs])


class Speeds(Protocol):
    """Where a belief has its rates by GPU type from: steps per second, alone and in pairs.

    0 means that a row cannot run there, or that two do not fit together.
    """

    def alone(self, rows: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of rows that have their GPUs (`scales`) for themselves, [row, type]."""
        ...

    def together(self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of both halves of pairs on the same GPUs, [pair, type, half].

        Args:
            first: one half of each pair.
            second: the other.
            scales: GPUs of each pair.
            types: GPU types, in the order of the columns.
        """
        ...

    def steps_per_work(self, rows: Rows) -> Floats:
        """Steps in one unit of the work that the table counts."""
        ...


class PlainDuration(PerformanceModel):
    """A trace that says how long each job runs on its own gang: one second a second."""

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Always 1.0."""
        return 1.0

    def rates(
        self, placements: Mapping[int, Placement], units: UnitTable, occupancy: Occupancy
    ) -> Floats:
        """Always 1.0."""
        return np.ones(len(placements))
