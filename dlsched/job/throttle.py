"""How long a job pauses after a step, so that it computes for a share of the time only.

AntMan's arithmetic (its TensorFlow fork), in whole microseconds: a step of `run` microseconds at a
share of p percent takes `run * 100 / p` in all. The fork also spreads a pause over the launches of
the next step; what it has spread there is in that step's duration and is taken off. A training loop
cannot be paused inside a step, so here all of a pause is unspent.
"""

from __future__ import annotations

from dataclasses import dataclass

FULL = 100
SLACK_US = 50  # a step that is longer by no more is not paused


@dataclass(slots=True)
class Throttle:
    """The pauses of one process.

    Attributes:
        inserted_us: the pause that was to be spread over the step that comes next.
    """

    inserted_us: int = 0

    def after_step(self, duration_us: int, share: int, unspent_us: int | None = None) -> int:
        """The pause after a step, in microseconds; 0: none.

        Args:
            duration_us: of the step, with what was spread over it.
            share: percent of the time; below 1 it counts as 1, above 100 as 100.
            unspent_us: of `inserted_us`, what was not spread over the step; None: nothing was.
        """
        left = self.inserted_us if unspent_us is None else unspent_us
        slept = max(0, self.inserted_us - left)
        run = max(1, duration_us - slept)
        total = run * FULL // min(FULL, max(1, share))
        pause = total - duration_us - SLACK_US
        self.inserted_us = max(0, pause)
        return self.inserted_us


def percent_of(share: float | None) -> int:
    """A share of 0 to 1 in whole percent, within 0 to 100; None is all."""
    return FULL if share is None else min(FULL, max(0, round(share * FULL)))
