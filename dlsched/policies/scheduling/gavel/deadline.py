"""How long a solve may take, in CPU seconds of this process.

A policy has no clock; so the clock is handed in, and without one there is no limit. Replays use
none, since a limit that strikes makes results depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dlsched.core.errors import Unavailable

__all__ = ["NO_DEADLINE", "Deadline", "OutOfTime"]


class OutOfTime(Unavailable):
    """A solve took longer than it may; the last allocation stays."""


class Deadline:
    """A moment of a clock after which solving stops."""

    def __init__(self, limit_s: float, clock: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._until = clock() + limit_s

    def left(self) -> float:
        """Seconds left.

        Raises:
            OutOfTime: none are.
        """
        left = self._until - self._clock()
        if left <= 0:
            raise OutOfTime(f"no allocation within {self._limit_s:g} s")
        return left

    def check(self) -> None:
        """Raise OutOfTime if the moment has passed."""
        self.left()


def _stopped_clock() -> float:
    return 0.0


NO_DEADLINE = Deadline(math.inf, _stopped_clock)
