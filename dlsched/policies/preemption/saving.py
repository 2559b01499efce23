"""How much work survives a suspension: all of it, up to the last checkpoint, or none."""

from __future__ import annotations

import math

from dlsched.core.options import NoOptions
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
