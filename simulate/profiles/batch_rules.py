"""How trainings adapt their batch size: Accordion, and the gradient noise scale.

An epoch is one pass over a model's data set. *Accordion* trains with the initial batch size in
critical regimes and with the largest one elsewhere. *gns* doubles it as the gradient noise grows;
a table of patterns says when, since only the training itself could tell.

Source: Zheng, Pan, Khan, Venkataraman, Akella, "Shockwave: Fair and Efficient Cluster Scheduling
for Dynamic Adaptation in Machine Learning", NSDI 2023, and its artifact.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from dlsched.core.errors import BadInput
from dlsched.core.speed.epochs import EpochProfile
from simulate.traces.textfile import lines_of, open_text

DATASET_SIZE = {
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
    "CycleGAN": 6_287,
    "A3C": 4,
}
LARGEST = {
    "ResNet-18": 256,
    "ResNet-50": 128,
    "Transformer": 128,
    "LM": 80,
    "Recommendation": 8192,
}  # batch size; models that are not here never adapt
SETTLED = 0.3  # part of its epochs after which a profile lets Accordion leave the initial size


class Training(NamedTuple):
    """What decides how a job's batch size goes on.

    Attributes:
        model: its name.
        initial: its batch size at the start; 1 where the model has only one.
        gang: GPUs.
        steps: in all, at the initial batch size.
        mode: static, accordion or gns.
    """

    model: str
    initial: int
    gang: int
    steps: int
    mode: str

    @property
    def adapts(self) -> bool:
        """May its batch size change at all?"""
        if self.mode == "static" or self.model not in LARGEST:
            return False
        if self.mode == "accordion" and self.model == "Transformer":
            return False
        return self.initial != LARGEST[self.model]


@dataclass(frozen=True)
class BatchPatterns:
    """Batch sizes under gns: (from epoch, batch size) by model, initial batch size and gang."""

    steps: Mapping[tuple[str, int, int], tuple[tuple[int, int], ...]]

    @staticmethod
    def read(path: str | Path) -> BatchPatterns:
        """Read `model,initial_batch_size,scale_factor,from_epoch,batch_size`.

        Raises:
            BadInput: one line with file and line number.
        """
        found: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        numbers = ("initial_batch_size", "scale_factor", "from_epoch", "batch_size")
        with open_text(Path(path)) as text:
            reader = csv.DictReader(lines_of(Path(path), text))
            for name in ("model", *numbers):
                if name not in (reader.fieldnames or ()):
                    raise BadInput(f"{path}: a table of batch sizes needs a column {name}")
            for row in reader:
                try:
                    initial, gang, epoch, size = (int(row[name]) for name in numbers)
                except (TypeError, ValueError):
                    raise BadInput(
                        f"{path}:{reader.line_num}: {', '.join(numbers)} must be whole numbers"
                    ) from None
                if min(initial, gang, size) < 1 or epoch < 0:
                    raise BadInput(
                        f"{path}:{reader.line_num}: sizes must be from 1 up, epochs from 0"
                    )
                found.setdefault((row["model"], initial, gang), []).append((epoch, size))
        if not found:
            raise BadInput(f"{path}: holds no batch sizes")
        return BatchPatterns({key: tuple(sorted(steps)) for key, steps in found.items()})

    def size(self, training: Training, epoch: int) -> int:
        """The batch size in force in an epoch; the initial one where nothing is known."""
        steps = self.steps.get((training.model, training.initial, training.gang), ())
        place = bisect_right(steps, (epoch, math.inf)) - 1
        return steps[place][1] if place >= 0 else training.initial


def steps_per_epoch(model: str, size: int) -> int:
    """Steps of one pass over the data."""
    return math.ceil(DATASET_SIZE[model] / size)


def epochs_of(training: Training) -> int:
    """Epochs in which the job does its steps at the initial batch size."""
    return math.ceil(training.steps / steps_per_epoch(training.model, training.initial))


def in_critical_regime(model: str, initial: int, epoch: int) -> bool:
    """Does Accordion keep to the initial batch size in this epoch?"""
    if model == "LM":
        return epoch < 10
    if model == "Recommendation":
        return epoch < {512: 30, 1024: 30, 2048: 40}.get(initial, 10)
    if model == "ResNet-50":
        return epoch % 30 < 10
    if model == "ResNet-18":
        first = 20 if initial == 256 else 10
        return epoch < first or 150 <= epoch < 160 or 250 <= epoch < 260
    return True


def _profiled_sizes(training: Training, patterns: BatchPatterns | None) -> list[int]:
    """The batch size of each epoch, as the published profiles have it."""
    model, initial, count = training.model, training.initial, epochs_of(training)
    if not training.adapts:
        return [initial] * count
    if training.mode == "gns":
        assert patterns is not None
        sizes = [patterns.size(training, epoch) for epoch in range(count)]
        if sizes and sizes[-1] > 2 * initial:  # after the second doubling, the last one falls back
            sizes[-1] = initial
        return sizes

    def stays(epoch: int) -> bool:
        late = model == "Recommendation" and (60 <= epoch < 70 or 80 <= epoch < 90)
        return late or in_critical_regime(model, initial, epoch) or epoch <= SETTLED * count

    return [initial if stays(epoch) else LARGEST[model] for epoch in range(count)]


def profile_of(
    training: Training, patterns: BatchPatterns | None, speed: Callable[[int], float]
) -> EpochProfile:
    """The epochs of a job that runs without interruption.

    `patterns` are of gns; `speed` is its steps/s by batch size.
    """
    segments = []
    for size, stretch in groupby(_profiled_sizes(training, patterns)):
        each = DATASET_SIZE[training.model] / size / speed(size)
        segments.append((sum(1 for _ in stretch), size, each))
    return EpochProfile.of_segments(segments)
