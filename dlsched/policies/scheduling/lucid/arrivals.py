"""How many jobs and GPUs are asked for in the next slots of ten minutes, as Lucid predicts it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dlsched.core.arrays import Floats

SLOT_S = 600.0
AHEAD = 5  # slots that a prediction looks ahead
UNKNOWN = 10.0  # jobs, after the end of a series: Lucid's simulator then goes on packing


class ArrivalForecast(Protocol):
    """A prediction of the load."""

    def jobs(self, now: float) -> float:
        """Mean number of jobs in each of the next slots."""
        ...

    def gpus(self, now: float) -> float:
        """Mean number of GPUs that the jobs of each of the next slots ask for."""
        ...


class GivenSeries:
    """Series that were predicted elsewhere, such as those that Lucid's authors published."""

    def __init__(self, jobs: Sequence[float], gpus: Sequence[float], begin: float) -> None:
        """Take the predictions by slot; the first slot begins at a time in seconds."""
        self._jobs, self._gpus, self._begin = np.array(jobs), np.array(gpus), begin

    def jobs(self, now: float) -> float:
        """Mean of the slots that begin after now; 10 after the end."""
        ahead = self._ahead(self._jobs, now)
        return float(ahead.mean()) if len(ahead) else UNKNOWN

    def gpus(self, now: float) -> float:
        """Mean of the slots that begin after now; infinite after the end."""
        ahead = self._ahead(self._gpus, now)
        return float(ahead.mean()) if len(ahead) else math.inf

    def _ahead(self, series: Floats, now: float) -> Floats:
        first = math.floor((now - self._begin) / SLOT_S) + 1
        return series[max(first, 0) : max(first + AHEAD, 0)]
