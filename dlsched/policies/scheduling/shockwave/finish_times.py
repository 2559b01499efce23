"""How long a job still takes, and by when it should be finished.

Remaining time: a Dirichlet prior gives every batch size of a job's profile the same weight, and
each epoch seen adds to the weight of its own. The expected epochs to come, by batch size, are
multiplied by their mean durations.

Target: whenever a job comes or goes, the finish times of all jobs under an equal share are
estimated again. The target of a job is mostly the mean of its estimates, weighted by the rounds for
which each was the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.speed.epochs import EpochProfile

PAST, LATEST = 0.9, 0.1  # weights of the mean and of the last estimate


def whole_seconds(profile: EpochProfile) -> Floats:
    """Epoch durations as the planner uses them: whole seconds, at least one."""
    return np.maximum(np.round(profile.seconds), 1.0)


def remaining_seconds(profile: EpochProfile, finished: int) -> float:
    """Expected seconds until the end on the job's own gang, after `finished` whole epochs.

    The profile has all its epochs; the order of future ones is not used.
    """
    count = len(profile)
    left = count - finished
    if left <= 0:
        return 1.0
    sizes, mode = np.unique(profile.batch_size, return_inverse=True)
    seen = np.bincount(mode[: finished + 1], minlength=len(sizes)).astype(np.float64)
    weight = count / len(sizes) + seen
    expected = count * weight / weight.sum()
    # each epoch seen reduces the epochs to come of its batch size, down to 0
    expected -= np.minimum(seen, np.floor(expected))
    mean = np.bincount(mode, whole_seconds(profile)) / np.bincount(mode)
    inflated = max(int(expected.sum() + 1), left)
    return float(expected @ mean) * left / inflated


@dataclass(slots=True)
class Target:
    """The finish time estimates of one job, added up.

    Attributes:
        total: all estimates except the last, each times the rounds for which it was the latest.
        rounds: the sum of these rounds.
        last: the latest estimate, seconds.
        since: the round in which it was made.
    """

    total: float = 0.0
    rounds: float = 0.0
    last: float = 0.0
    since: int = -1

    def note(self, estimate: float, number: int) -> None:
        """Enter a new estimate, made in the round of this number."""
        if 0 <= self.since < number:
            self.total += self.last * (number - self.since)
            self.rounds += number - self.since
        self.last, self.since = estimate, number

    def at(self, number: int) -> float:
        """The target as of a round, seconds."""
        held = max(number - self.since, 0)
        rounds = self.rounds + held
        mean = (self.total + self.last * held) / rounds if rounds else self.last
        return PAST * mean + LATEST * self.last
