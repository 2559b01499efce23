"""Measured speeds of pairs of jobs on the same GPUs, relative to each one alone.

A *workload* is what a job trains: its model, data set, batch size, and whether it uses mixed
precision; a table may leave any of the last three out. The layout is that of Lucid's measurements
(ASPLOS 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.speed.interference import limited

WORKLOAD = ("model", "dataset", "batch_size", "amp")  # what may tell workloads apart

Workload = tuple[str | float, ...]
Pair = tuple[Workload, Workload, int]  # two workloads, and the GPUs that they share


@dataclass(frozen=True, slots=True)
class ColocationTable:
    """Relative speeds of pairs.

    Attributes:
        keys: which of `WORKLOAD` tell its workloads apart.
        speeds: of the first and of the second workload, by pair.
        sizes: the numbers of GPUs that were measured.
    """

    keys: tuple[str, ...]
    speeds: Mapping[Pair, tuple[float, float]]
    sizes: frozenset[int]

    def pair(self, first: Workload, second: Workload, gpus: int) -> tuple[float, float]:
        """Speeds of two workloads relative to alone; NaN where they were not measured.

        A table of one number of GPUs speaks of all of them.
        """
        if len(self.sizes) == 1:
            (gpus,) = self.sizes
        found = self.speeds.get((first, second, gpus))
        if found is not None:
            return found
        found = self.speeds.get((second, first, gpus))
        return (np.nan, np.nan) if found is None else found[::-1]


class MeasuredPairs:
    """The units of a run under a table of pairs; a larger group is not known."""

    name = "measured"
    most_together = 2.0

    def __init__(self, table: ColocationTable, workloads: Sequence[Workload]) -> None:
        """Take the workload of each unit, as the table's keys tell them apart."""
        self._table, self._workloads = table, workloads

    def relative(self, rows: Sequence[int], limits: Floats, gpu_type: str, gpus: int) -> Floats:
        """As measured of pairs, on any type of GPU."""
        if len(rows) == 1:
            return limits
        if len(rows) > 2:
            return np.full(len(rows), np.nan)
        first, second = (self._workloads[row] for row in rows)
        return limited(np.array(self._table.pair(first, second, gpus)), limits)
