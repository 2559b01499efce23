"""Jobs as epochs: which batch size a training has in each, and how long each takes.

A training that adapts its batch size runs at another speed after each change. A policy that plans
ahead needs to know all epochs of a job, and how many of them are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dlsched.core.arrays import Floats, Ints


@dataclass(frozen=True)
class EpochProfile:
    """The epochs of one job on its own gang.

    Attributes:
        batch_size: of each epoch.
        seconds: that each epoch takes.
    """

    batch_size: Ints
    seconds: Floats

    @staticmethod
    def of_segments(segments: Sequence[tuple[int, int, float]]) -> EpochProfile:
        """From stretches of equal epochs: how many, their batch size, and the seconds of each."""
        counts = [count for count, _, _ in segments]
        return EpochProfile(
            np.repeat(np.array([size for _, size, _ in segments], np.int64), counts),
            np.repeat(np.array([each for _, _, each in segments], np.float64), counts),
        )

    @staticmethod
    def even(seconds: float, each: float, batch_size: int = 1) -> EpochProfile:
        """So many seconds of work in equal epochs of about the same length."""
        count = max(round(seconds / each), 1)
        return EpochProfile.of_segments([(count, batch_size, seconds / count)])

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def runtime(self) -> float:
        """Seconds of all epochs, if the job is not interrupted."""
        return float(self.seconds.sum())

    def finished_after(self, worked: float) -> int:
        """Whole epochs that are done after so many seconds of work."""
        return int(np.searchsorted(np.cumsum(self.seconds), worked * (1 + 1e-12), side="right"))


class Epochs(Protocol):
    """What is known of the epochs of jobs."""

    def profile(self, row: int) -> EpochProfile:
        """All epochs of a row."""
        ...

    def finished(self, row: int, executed: float) -> int:
        """Whole epochs that a row has done after `executed` work, as the unit table counts it."""
        ...
