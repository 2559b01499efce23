"""Step functions of time: the GPUs that are free, and those that a job is planned to have.

Time is in seconds from now. A step function has its values from each of its times until the next
one; the last value holds for ever.

Most of them have a few steps, and each decision asks thousands of them. On so few, plain lists are
several times faster than arrays.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

FOREVER = 1e15  # a deadline that is none; finite, so that times of 0 GPUs stay 0
DUST = 1e-9  # a whole number but for rounding, relative to itself


def in_slots(seconds: float, slot: float) -> float:
    """The whole slots that a time takes, in seconds."""
    return math.ceil(seconds / slot * (1 - DUST)) * slot


@dataclass(frozen=True, slots=True)
class Steps:
    """GPUs over time.

    Attributes:
        times: ascending, the first is 0.
        gpus: from each time until the next.
    """

    times: list[float]
    gpus: list[int]

    @staticmethod
    def always(gpus: int) -> Steps:
        """The same for ever."""
        return Steps([0.0], [gpus])

    def with_time(self, time: float) -> Steps:
        """The same function with a time of its own for one moment."""
        times, gpus = self.times, self.gpus
        place = bisect_left(times, time)
        if place < len(times) and times[place] == time:
            return self
        return Steps(
            [*times[:place], time, *times[place:]],
            [*gpus[:place], gpus[place - 1], *gpus[place:]],
        )

    def plus(self, other: Steps, sign: int = 1) -> Steps:
        """The sum, or the difference (-1), without times at which nothing changes."""
        mine, theirs = self.times, other.times
        place, beside = 1, 1
        times, gpus = [0.0], [self.gpus[0] + sign * other.gpus[0]]
        while place < len(mine) or beside < len(theirs):
            next_mine = mine[place] if place < len(mine) else math.inf
            next_other = theirs[beside] if beside < len(theirs) else math.inf
            time = min(next_mine, next_other)
            place += next_mine == time
            beside += next_other == time
            total = self.gpus[place - 1] + sign * other.gpus[beside - 1]
            if total != gpus[-1]:
                times.append(time)
                gpus.append(total)
        return Steps(times, gpus)

    def merged(self) -> Steps:
        """The same function without times at which nothing changes."""
        gpus = self.gpus
        new = [place for place in range(len(gpus)) if not place or gpus[place] != gpus[place - 1]]
        return Steps([self.times[place] for place in new], [gpus[place] for place in new])
