"""What steps take, by batch size: means that a model of the training's speed is fitted to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["BatchLimits", "StepTimes", "split"]

MOST_SIZES = 64  # batch sizes that are remembered


@dataclass(slots=True)
class _Sums:
    steps: int = 0
    optimiser_s: float = 0.0
    passes: int = 0
    accumulation_s: float = 0.0


@dataclass(slots=True)
class StepTimes:
    """Of one run, whose GPUs stay the same.

    A step is one or more passes forward and backward; the last one also synchronises the replicas
    and ends with the optimiser's step.
    """

    _by_size: dict[int, _Sums] = field(default_factory=dict)

    def passed(self, local: int, seconds: float) -> None:
        """A pass that did not synchronise."""
        sums = self._of(local, seconds)
        if sums is not None:
            sums.passes += 1
            sums.accumulation_s += seconds

    def stepped(self, local: int, seconds: float, sync_s: float) -> None:
        """The last pass of a step, and how long of it the replicas waited for each other."""
        sums = self._of(local, seconds)
        if sums is not None and math.isfinite(sync_s) and 0 <= sync_s < seconds:
            sums.steps += 1
            sums.optimiser_s += seconds
            sums.passes += 1
            sums.accumulation_s += seconds - sync_s

    def _of(self, local: int, seconds: float) -> _Sums | None:
        """Where a time belongs; none for one that cannot be."""
        if not (math.isfinite(seconds) and seconds > 0):
            return None
        if local not in self._by_size and len(self._by_size) >= MOST_SIZES:
            return None
        return self._by_size.setdefault(local, _Sums())

    def columns(
        self,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
        """Batch sizes, steps measured, seconds of a pass, seconds of the last pass of a step.

        The last pass of a step does all that another does, and more: where it seems to take less,
        chance has slowed the others down, and it is taken to be alike.
        """
        known = {local: sums for local, sums in sorted(self._by_size.items()) if sums.steps}
        passes = tuple(sums.accumulation_s / sums.passes for sums in known.values())
        last = (sums.optimiser_s / sums.steps for sums in known.values())
        return (
            tuple(known),
            tuple(sums.steps for sums in known.values()),
            passes,
            tuple(map(max, last, passes)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Batch sizes that a training may have.

    Attributes:
        initial: samples a step, all replicas together, that the user has tuned the training for.
        maximum: at most, when the batch adapts.
        local_min: samples a replica and pass, at least.
        local_max: at most, which the memory of a GPU bounds.
        may_accumulate: several passes may make a step.
        fixed: always as many as `initial`.
    """

    initial: int
    maximum: int
    local_min: int
    local_max: int
    may_accumulate: bool
    fixed: bool

    def allows(self, replicas: int, local: int, accumulation: int) -> bool:
        """Whether replicas may have so many samples a pass, with so many passes before the last."""
        if not self.local_min <= local <= self.local_max or accumulation < 0:
            return False
        if accumulation and not self.may_accumulate:
            return False
        total = replicas * local * (accumulation + 1)
        rounding = replicas * (accumulation + 1)  # parts are rounded up
        return total <= self.maximum + rounding and total > self.initial - rounding


def split(total: int, replicas: int, local_max: int, *, may_accumulate: bool) -> tuple[int, int]:
    """Samples a replica and pass, and passes before the last, that make up a batch.

    Parts are rounded up, so that the batch may be a few samples larger.
    """
    part = -(-total // replicas)
    passes = max(1, -(-part // local_max)) if may_accumulate else 1
    return -(-part // passes), passes - 1
