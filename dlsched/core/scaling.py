"""How a job's speed depends on its number of GPUs, as far as policies may believe.

Who divides GPUs among elastic jobs asks two things of a job: how long a step takes on k GPUs, and
how many steps are left. A step is one of the job's own at its own global batch, whatever its work
is counted in, so that speeds of different jobs compare as times only.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats, Rows
from dlsched.core.occupancy import Occupancy, Placement
from dlsched.core.throughputs import TableSpeed
from dlsched.core.units import Units, UnitTable

__all__ = ["ScaledDuration", "Scaling", "TableScaling"]


class Scaling(Protocol):
    """Speeds by number of GPUs in the fewest nodes, and what is left to do."""

    def step_s(self, rows: Rows, most: int) -> Floats:
        """Seconds a step takes on 1 to `most` GPUs, [row, GPUs - 1].

        Infinity where a row cannot run on so many, NaN where nothing is known.
        """
        ...

    def rates(self, rows: Rows, most: int) -> Floats:
        """Steps per second on 1 to `most` GPUs, [row, GPUs - 1]; 0 and NaN likewise."""
        ...

    def step(self, row: int, gpus: int) -> float:
        """Seconds a step of one row takes, for who asks of few numbers of GPUs only."""
        ...

    def version(self, rows: Rows) -> int:
        """Grows whenever anything believed of these rows changes; 0 where nothing ever does."""
        ...

    def steps_left(self, units: Units) -> Floats:
        """Steps until each unit is done; NaN where nobody knows."""
        ...


class TableScaling:
    """Scaling read off a table of throughputs, linearly between measured numbers of GPUs.

    GPUs beyond the largest number measured are no use; below the least, as many GPUs run so much
    slower in proportion.
    """

    def __init__(self, speed: TableSpeed, gpu_type: str) -> None:
        """Look at one GPU type of a table.

        Args:
            speed: throughputs by number of GPUs.
            gpu_type: whose.
        """
        self._speed = speed
        self._type = gpu_type

    def rates(self, rows: Rows, most: int) -> Floats:
        """Steps per second on 1 to `most` GPUs, [row, GPUs - 1]."""
        return self._speed.by_scale(rows, self._type, most)

    def step_s(self, rows: Rows, most: int) -> Floats:
        """Seconds a step takes on 1 to `most` GPUs, [row, GPUs - 1]."""
        rates = self.rates(rows, most)
        seconds: Floats = np.divide(1.0, rates, out=np.full(rates.shape, np.inf), where=rates != 0)
        return seconds

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


class ScaledDuration:
    """A performance model of durations that are meant on the gang that was asked for.

    On more GPUs a job does more than a second's work a second, as far as it is known how it scales.
    """

    def __init__(self, scaling: Scaling) -> None:
        """Run as is believed.

        Args:
            scaling: what is.
        """
        self._scaling = scaling

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        grant: Grant | None = None,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Seconds of work per second."""
        gpus, gang = placement.gpus, units.gang.item(row)
        if gpus == gang:
            return 1.0
        pace = self._scaling.step(row, gang) / self._scaling.step(row, gpus)
        return pace if math.isfinite(pace) and pace > 0 else 1.0
