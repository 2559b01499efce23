"""The times of steps by batch size: means to which a model of the training's speed is fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MOST_SIZES = 64  # batch sizes that are kept


@dataclass(slots=True)
class _Sums:
    steps: int = 0
    optimiser_s: float = 0.0
    passes: int = 0
    accumulation_s: float = 0.0


@dataclass(slots=True)
class StepTimes:
    """The times of one run, in which the GPUs do not change.

    A step is one or more passes forward and backward; the last one also synchronises the replicas
    and ends with the optimiser's step.
    """

    _by_size: dict[int, _Sums] = field(default_factory=dict)

    def passed(self, local: int, seconds: float) -> None:
        """Add a pass that did not synchronise; `local` is its batch size."""
        sums = self._of(local, seconds)
        if sums is not None:
            sums.passes += 1
            sums.accumulation_s += seconds

    def stepped(self, local: int, seconds: float, sync_s: float) -> None:
        """Add the last pass of a step; in `sync_s` of its seconds replicas waited for others."""
        sums = self._of(local, seconds)
        if sums is not None and math.isfinite(sync_s) and 0 <= sync_s < seconds:
            sums.steps += 1
            sums.optimiser_s += seconds
            sums.passes += 1
            sums.accumulation_s += seconds - sync_s

    def _of(self, local: int, seconds: float) -> _Sums | None:
        """Return the sums that a time belongs to; None for an impossible time."""
        if not (math.isfinite(seconds) and seconds > 0):
            return None
        if local not in self._by_size and len(self._by_size) >= MOST_SIZES:
            return None
        return self._by_size.setdefault(local, _Sums())

    def columns(
        self,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
        """Return batch sizes, steps measured, seconds of a pass, seconds of a step's last pass.

        The last pass of a step does more than any other. Where it was measured to take less, chance
        has slowed the others down, and it gets their time.
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
        initial: samples of a step, all replicas together, that the training was tuned for.
        maximum: samples of a step at most, when the batch size adapts.
        local_min: samples of each replica and pass at least.
        local_max: samples of each replica and pass at most; the memory of a GPU bounds them.
        may_accumulate: whether several passes may make a step.
        fixed: whether every step has `initial` samples.
    """

    initial: int
    maximum: int
    local_min: int
    local_max: int
    may_accumulate: bool
    fixed: bool

    def allows(self, replicas: int, local: int, accumulation: int) -> bool:
        """Whether a batch size is within the limits.

        `local` is the samples of each replica and pass, `accumulation` the passes before the last.
        """
        if not self.local_min <= local <= self.local_max or accumulation < 0:
            return False
        if accumulation and not self.may_accumulate:
            return False
        total = replicas * local * (accumulation + 1)
        rounding = replicas * (accumulation + 1)  # parts are rounded up
        return total <= self.maximum + rounding and total > self.initial - rounding


def split(total: int, replicas: int, local_max: int, *, may_accumulate: bool) -> tuple[int, int]:
    """Divide a batch into equal passes; parts are rounded up, so it may become a little larger.

    Args:
        total: samples of the batch.
        replicas: number of ranks.
        local_max: samples of each replica and pass at most, if passes may accumulate.
        may_accumulate: whether several passes may make a step.

    Returns:
        Samples of each replica and pass, and passes before the last.
    """
    part = -(-total // replicas)
    passes = max(1, -(-part // local_max)) if may_accumulate else 1
    return -(-part // passes), passes - 1
