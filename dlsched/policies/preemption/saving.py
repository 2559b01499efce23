"""How much work survives a suspension: all of it, up to the last checkpoint, or none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.core.options import NoOptions, option
from dlsched.core.stage import PreemptionPart


class Checkpoint(PreemptionPart[NoOptions]):
    """The job is notified, saves all its work, and leaves."""

    name = "checkpoint"
    summary = "a suspended job saves all its work (default)"
    saves_all = True

    def saved(self, before: float, now: float, interval: float | None) -> float:
        """All the work."""
        return now


class Periodic(PreemptionPart[NoOptions]):
    """The job is stopped and continues from its last periodic checkpoint.

    Checkpoints are taken every `--checkpoint-interval` seconds of work since the start; without an
    interval nothing of this start survives.
    """

    name = "periodic"
    summary = "a suspended job falls back to its last periodic checkpoint"

    def saved(self, before: float, now: float, interval: float | None) -> float:
        """The work of whole intervals since the start."""
        if interval is None:
            return before
        return before + math.floor((now - before) / interval) * interval


class Kill(PreemptionPart[NoOptions]):
    """The job is killed and repeats all work since its last start."""

    name = "kill"
    summary = "a suspended job loses everything since its last start"

    def saved(self, before: float, now: float, interval: float | None) -> float:
        """No work of this start."""
        return before


@dataclass(frozen=True, slots=True, kw_only=True)
class RedoOptions:
    """What a suspension costs."""

    small_s: float = option(40.0, "seconds of work done again by a job of few GPUs", low=0.0)
    large_s: float = option(60.0, "seconds of work done again by a job of more GPUs", low=0.0)
    few: int = option(8, "most GPUs of a job of few GPUs", low=1)


class Redo(PreemptionPart[RedoOptions]):
    """A suspended job loses some seconds of its work, by its size.

    Lucid's simulator charges its preemptive policies so: what a job has left grows by 40 s, or by
    60 s on more than 8 GPUs.
    """

    name = "redo"
    summary = "a suspended job does some seconds of work again, by its size (Lucid)"

    def saved(self, before: float, now: float, interval: float | None) -> float:
        """All the work; `redone` says what it costs."""
        return now

    def redone(self, gpus: int) -> float:
        """Seconds, by size."""
        return self.options.small_s if gpus <= self.options.few else self.options.large_s
