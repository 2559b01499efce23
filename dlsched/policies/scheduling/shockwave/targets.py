"""When a job should be finished: a mean of what an equal share would have promised over time.

Whenever a job comes or goes, everybody's finish under an equal share is estimated anew. A job's
target is mostly the mean of its estimates, weighted by the rounds for which each was the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Target"]

PAST, LATEST = 0.9, 0.1  # how much the mean and the last estimate count


@dataclass(slots=True)
class Target:
    """The estimates of one job, summed up.

    Attributes:
        total: estimates so far but the last, each times its rounds.
        rounds: for which those were the latest.
        last: the latest estimate, seconds.
        since: the round in which it was made.
    """

    total: float = 0.0
    rounds: float = 0.0
    last: float = 0.0
    since: int = -1

    def note(self, estimate: float, number: int) -> None:
        """A new estimate, made in a round."""
        if self.since >= 0:
            self.total += self.last * (number - self.since)
            self.rounds += number - self.since
        self.last, self.since = estimate, number

    def at(self, number: int) -> float:
        """The target as of a round, seconds."""
        held = number - self.since
        rounds = self.rounds + held
        mean = (self.total + self.last * held) / rounds if rounds else self.last
        return PAST * mean + LATEST * self.last
