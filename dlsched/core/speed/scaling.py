"""How a job's speed depends on its number of GPUs: where a belief has its rates by count from.

A policy that divides GPUs among elastic jobs asks two things of a job: how long a step takes on k
GPUs, and how many steps are left. A step is one of the job's own at its own global batch, whatever
its work is counted in, so that speeds of different jobs compare as times only.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.speed.throughput_table import TableSpeed
from dlsched.core.units import Units


class Scaling(Protocol):
    """Speeds by number of GPUs in the fewest nodes, and what is left to do."""

    def rates(self, rows: Rows, most: int) -> Floats:
        """Steps per second on 1 to `most` GPUs, [row, GPUs - 1].

        0 where a row cannot run on so many, NaN where nothing is known.
        """
        ...

    def step(self, row: int, gpus: int) -> float:
        """Seconds a step of one row takes on so many GPUs."""
        ...

    def version(self, rows: Rows) -> int:
        """Grows whenever anything believed of these rows changes; 0 where nothing ever does."""
        ...

    def steps_left(self, units: Units) -> Floats:
        """Steps until each unit is done; NaN where it is not known."""
        ...


class TableScaling:
    """Scaling read off a table of throughputs, linearly between measured numbers of GPUs.

    GPUs beyond the largest number measured are no use; below the least, as many GPUs run so much
    slower in proportion.
    """

    def __init__(self, speed: TableSpeed, gpu_type: str) -> None:
        """Look at one GPU type of a table."""
        self._speed = speed
        self._type = gpu_type

    def rates(self, rows: Rows, most: int) -> Floats:
        """Steps per second on 1 to `most` GPUs, [row, GPUs - 1]."""
        return self._speed.by_scale(rows, self._type, most)

    def step(self, row: int, gpus: int) -> float:
        """Seconds a step of one row takes."""
        rate = self._speed.by_scale(np.array([row]), self._type, gpus).item(0, gpus - 1)
        return 1.0 / rate if rate else math.inf

    def version(self, rows: Rows) -> int:
        """A table stays as it is."""
        return 0

    def steps_left(self, units: Units) -> Floats:
        """What the estimator predicts, in steps."""
        return units.remaining_work * self._speed.steps_per_work(units.rows)
