"""The input of a plan (jobs with their remaining work, rounds ahead), and the plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints

NEARLY_DONE = 100.0  # exponent of the lateness of a late job in its last round
NEARLY_DONE_CLIP, CLIP = 1e4, 1e8  # with larger weights a solver would ignore all other jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Jobs and rounds; arrays have one entry for each job.

    Attributes:
        gang: GPUs.
        epochs: all epochs of the job.
        finished: whole epochs done.
        epoch_s: mean duration of the epochs seen, seconds.
        left_s: expected seconds to the end.
        target_s: when the job should have finished.
        gpus: GPUs of the cluster.
        now_s: start of the first planned round.
        round_s: length of a round.
        rounds: number of planned rounds.
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
        """A job's part of its time on GPUs under an equal share."""
        return min(1.0, self.gpus / max(self.active, 1))

    def urgency(self, power: float, limit: float) -> Floats:
        """The logarithm of the weight of each late job; the weights themselves could overflow.

        `power` is the exponent of the lateness, `limit` the lateness that is still fair.
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
    """The jobs that run in each planned round.

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
