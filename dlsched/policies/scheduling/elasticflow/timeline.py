"""Step functions of time: the GPUs that are free, and those that a job is planned to have.

Time is in seconds from now. A step function has its values from each of its times until the next
one; the last value holds for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints

FOREVER = 1e15  # a deadline that is none; finite, so that times of 0 GPUs stay 0
DUST = 1e-9  # a whole number but for rounding, relative to itself


def in_slots(seconds: float, slot: float) -> float:
    """The whole slots that a time takes, in seconds."""
    return float(np.ceil(seconds / slot * (1 - DUST)) * slot)


def differs(values: Floats | Ints) -> Bools:
    """Which values are other than the one before; the first is, too."""
    new: Bools = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


@dataclass(frozen=True, slots=True)
class Steps:
    """GPUs over time.

    Attributes:
        times: ascending, the first is 0.
        gpus: from each time until the next.
    """

    times: Floats
    gpus: Ints

    @staticmethod
    def always(gpus: int) -> Steps:
        """The same for ever."""
        return Steps(np.zeros(1), np.array([gpus], np.int64))

    def at(self, times: Floats) -> Ints:
        """The values at some times."""
        found: Ints = self.gpus[self.times.searchsorted(times, side="right") - 1]
        return found

    def with_time(self, time: float) -> Steps:
        """The same function with a time of its own for one moment."""
        place = int(self.times.searchsorted(time))
        if place < len(self.times) and self.times[place] == time:
            return self
        times, gpus = self.times, self.gpus
        return Steps(
            np.concatenate((times[:place], (time,), times[place:])),
            np.concatenate((gpus[:place], gpus[place - 1 : place], gpus[place:])),
        )

    def plus(self, other: Steps, sign: int = 1) -> Steps:
        """The sum, or the difference (-1), without times at which nothing changes."""
        times = np.concatenate((self.times, other.times))
        times.sort()
        times = times[differs(times)]
        return Steps(times, self.at(times) + sign * other.at(times)).merged()

    def merged(self) -> Steps:
        """The same function without times at which nothing changes."""
        new = differs(self.gpus)
        return self if new.all() else Steps(self.times[new], self.gpus[new])
