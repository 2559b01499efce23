"""What a plan is made of: jobs with what they still need, and the rounds ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints

__all__ = ["Plan", "Window"]

NEARLY_DONE = 100.0  # what the lateness of a late job in its last round is raised to
NEARLY_DONE_CLIP, CLIP = 1e4, 1e8  # weights beyond would hide all other jobs from a solver


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Jobs and rounds; one entry a job.

    Attributes:
        gang: GPUs.
        epochs: in all.
        finished: whole epochs done.
        epoch_s: mean duration of the epochs seen, seconds.
        left_s: expected seconds to the end.
        target_s: when the job should have finished.
        gpus: of the cluster.
        now_s: the first planned round's start.
        round_s: length of a round.
        rounds: that are planned.
        active: jobs in the cluster, which share it.
    """

    gang: Ints
    epochs: Ints
    finished: Ints
    epoch_s: Floats
    left_s: Floats
    target_s: Floats
    gpus: int
    now_s: float
    round_s: float
    rounds: int
    active: int

    def __len__(self) -> int:
        return len(self.gang)

    @property
    def share(self) -> float:
        """A job's share of GPU time if all are equal."""
        return min(1.0, self.gpus / max(self.active, 1))

    def urgency(self, power: float, limit: float) -> Floats:
        """How much more each late job counts, as logarithms: the powers themselves can overflow.

        Args:
            power: what the lateness is raised to.
            limit: lateness that is still fair.
        """
        late = (self.now_s + self.left_s / self.share) / np.maximum(self.target_s, 1.0)
        ln = np.log(np.maximum(late, 1e-9))
        urgent = power * ln
        last = np.minimum(NEARLY_DONE * ln, np.log(NEARLY_DONE_CLIP))
        urgent = np.where(self.left_s < self.round_s, np.maximum(urgent, last), urgent)
        found: Floats = np.where(late > limit, np.minimum(urgent, np.log(CLIP)), 0.0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who runs in which of the planned rounds.

    Attributes:
        runs: [job, round].
        program: 1 when every target can be met, 2 when not.
        objective: of that program.
        order: objective of program 3; NaN when it was not needed or found nothing.
        gap: how far program 1 or 2 may be from its optimum, relative.
    """

    runs: Bools
    program: int
    objective: float
    order: float
    gap: float
