"""Trainings that adapt their batch size while they run.

`EpochProfiles` holds the epochs of every job as they are planned. `Adaptation` is what really
happens in a world whose rounds consist of whole steps: after each round a job may ask for another
batch size, and gets it after its next run. Its steps are then counted anew; progress is rounded up
to whole epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlsched.core.speed.epochs import EpochProfile
from dlsched.core.speed.throughput_table import JobKind, TableSpeed
from simulate.profiles.batch_rules import (
    DATASET_SIZE,
    LARGEST,
    BatchPatterns,
    Training,
    in_critical_regime,
    steps_per_epoch,
)


class EpochProfiles:
    """The epochs of every job; work is counted in seconds."""

    def __init__(self, trainings: Sequence[Training], profiles: Sequence[EpochProfile]) -> None:
        """Take both by row: what decides batch sizes, and the epochs without interruption."""
        self._trainings, self._profiles = trainings, profiles

    def profile(self, row: int) -> EpochProfile:
        """All epochs of a row."""
        return self._profiles[row]

    def finished(self, row: int, executed: float) -> int:
        """Whole epochs after so many seconds of work."""
        return self._profiles[row].finished_after(executed)


class Adaptation(EpochProfiles):
    """The same for work in steps, with batch sizes as they come to be."""

    def __init__(
        self,
        trainings: Sequence[Training],
        profiles: Sequence[EpochProfile],
        speed: TableSpeed,
        patterns: BatchPatterns | None,
    ) -> None:
        """Start every job with its initial batch size.

        Args:
            trainings: what decides each job's batch sizes, by row.
            profiles: the epochs of each job if it is not interrupted, by row.
            speed: told of every change.
            patterns: of gns.
        """
        super().__init__(trainings, profiles)
        self._speed, self._patterns = speed, patterns
        self._size = [training.initial for training in trainings]
        self._wants: dict[int, int] = {}  # batch size by row

    def finished(self, row: int, executed: float) -> int:
        """Whole epochs after so many steps."""
        training = self._trainings[row]
        if training.model not in DATASET_SIZE:
            return self._profiles[row].finished_after(
                executed * self._profiles[row].runtime / training.steps
            )
        return int(executed // steps_per_epoch(training.model, self._size[row]))

    def look(self, row: int, executed: float) -> None:
        """A round is over: does the job want another batch size from here on?"""
        training, size = self._trainings[row], self._size[row]
        if not training.adapts:
            return
        epoch = math.ceil(executed / steps_per_epoch(training.model, size))
        if training.mode == "gns":
            assert self._patterns is not None
            grows = max(self._patterns.size(training, e) for e in (epoch, epoch + 1)) > size
            if grows and size < LARGEST[training.model]:
                self._wants[row] = 2 * size
        elif not in_critical_regime(training.model, training.initial, epoch):
            if size == training.initial:
                self._wants[row] = LARGEST[training.model]
        elif size != training.initial:
            self._wants[row] = training.initial

    def adapt(self, row: int, executed: float, steps: float) -> tuple[float, float] | None:
        """Give a job with `executed` of its `steps` done the batch size that it wants.

        Returns:
            both, counted with the new batch size; None when nothing has changed.
        """
        size = self._wants.pop(row, None)
        if size is None:
            return None
        training, before = self._trainings[row], self._size[row]
        if not self._speed.become(row, JobKind(training.model, size), training.gang):
            return None  # its speed with that batch size is not known
        old, new = (steps_per_epoch(training.model, each) for each in (before, size))
        epochs = math.ceil(steps / old)
        total = math.ceil(steps * before / size)
        if math.ceil(total / new) != epochs:
            total = new * epochs
        self._size[row] = size
        return float(math.ceil(executed / old) * new), float(total)
