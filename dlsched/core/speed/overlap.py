"""Opportunistic jobs beside guaranteed ones, in whose iterations they use what is idle.

A guaranteed job is as fast as alone. While it computes or exchanges gradients, an opportunistic one
may read data, and so on; an iteration of the latter takes as many whole ones of the former as its
stages need there. Beside another opportunistic job it takes twice as long as alone.

Source: the simulation of AntMan in the artifact of Muri (SIGCOMM 2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.core.speed.interference import limited
from dlsched.core.speed.stages import Stages
from dlsched.core.sums import ordered_sum

BESIDE_ANOTHER = 2.0  # times as long as alone


def iterations_beside(job: Stages, guaranteed: Stages) -> int:
    """How many iterations of a guaranteed job an iteration of an opportunistic one takes.

    Args:
        job: the opportunistic one.
        guaranteed: none of its three sums of two stages is 0.
    """
    data, gpu, network = job
    count, over = _times_and_over(data, guaranteed.gpu + guaranteed.network)
    if over > 0:
        count += 1
        gpu -= min(gpu, guaranteed.network, guaranteed.gpu + guaranteed.network - over)
    whole, over = _times_and_over(gpu, guaranteed.data + guaranteed.network)
    count += whole
    if over > 0:
        count += 1
        if over < guaranteed.data:
            network -= min(network, guaranteed.data + guaranteed.gpu - over)
    whole, over = _times_and_over(network, guaranteed.data + guaranteed.gpu)
    return count + whole + (over > guaranteed.data)


def _times_and_over(stage: float, idle: float) -> tuple[int, float]:
    """How often a stage needs all of an idle time, and what is left, by the rounding of `%`."""
    return math.floor(stage / idle), stage % idle


class OverlappingJobs:
    """Groups of guaranteed and opportunistic units, each with the stages of its iteration."""

    name = "overlap"
    most_together = math.inf

    def __init__(self, stages: Floats, iteration_s: Floats, is_opportunistic: Bools) -> None:
        """Take what was measured of each unit alone, on its own gang.

        Args:
            stages: seconds, [unit, stage] in the order of `Stages`; NaN where not known.
            iteration_s: seconds of an iteration, with what measuring adds.
            is_opportunistic: of each unit.
        """
        self._stages, self._iteration_s = stages, iteration_s
        self._is_opportunistic = is_opportunistic
        self._known: dict[tuple[int, int], float] = {}

    def relative(self, rows: Sequence[int], limits: Floats, gpu_type: str, gpus: int) -> Floats:
        """Guaranteed units as alone, of which a GPU has one; the others as slow as beside each."""
        return limited(np.array([self._speed(row, rows) for row in rows]), limits)

    def _speed(self, row: int, rows: Sequence[int]) -> float:
        others = [other for other in rows if other != row]
        if not self._is_opportunistic[row]:
            return 1.0 if self._is_opportunistic[others].all() else np.nan
        return float(np.min([1.0, *(self._beside(row, other) for other in others)]))

    def _beside(self, row: int, other: int) -> float:
        """The speed of an opportunistic unit beside another unit."""
        if self._is_opportunistic[other]:
            return 1.0 / BESIDE_ANOTHER
        if (row, other) not in self._known:
            self._known[row, other] = self._beside_guaranteed(row, other)
        return self._known[row, other]

    def _beside_guaranteed(self, row: int, other: int) -> float:
        job, guaranteed = Stages(*self._stages[row]), Stages(*self._stages[other])
        measured = [*job, *guaranteed, *self._iteration_s[[row, other]]]
        sums = np.array([ordered_sum(guaranteed) - stage for stage in guaranteed])
        if np.isnan(measured).any() or (sums <= 0).any():
            return np.nan
        together = iterations_beside(job, guaranteed) * self._iteration_s[other]
        return float(self._iteration_s[row] / together) if together > 0 else 1.0
