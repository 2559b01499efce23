"""Units whose pace changes by itself while they run: the seam between the world and trainings.

The world knows when such a unit starts, stops and is slowed down. How much it has done by a moment,
and when it will be done, only the unit's own course can say.
"""

from __future__ import annotations

from typing import Protocol

from dlsched.core.allocation import Grant
from dlsched.core.occupancy import Occupancy, Placement

__all__ = ["SelfPaced"]


class SelfPaced(Protocol):
    """The courses of all units, by row."""

    def begin(
        self,
        row: int,
        placement: Placement,
        occupancy: Occupancy,
        grant: Grant | None,
        ready: float,
    ) -> None:
        """A unit starts; until `ready` it only restarts."""
        ...

    def advance(self, row: int, now: float) -> None:
        """A unit has run until now, where it began."""
        ...

    def reconsider(self, row: int) -> bool:
        """A round has come, as of the last `advance`; is its pace another one from now on?"""
        ...

    def done_so_far(self, row: int) -> float:
        """Work that it has done, as of the last `advance`."""
        ...

    def rate(self, row: int) -> float:
        """Work per second, as of the last `advance`."""
        ...

    def look(self, row: int) -> float:
        """The earliest time at which it could be done, if it goes on as it is."""
        ...

    def finish(self, row: int) -> float | None:
        """When it was done; None if it is not, as of the last `advance`."""
        ...

    def slow_down(self, row: int, part: float) -> None:
        """From the last `advance` on it loses this part of its pace."""
        ...

    def fall_back(self, row: int, done: float) -> None:
        """Work since a checkpoint is lost."""
        ...

    def batch_and_goodput(self, row: int) -> tuple[float, float]:
        """Its batch size in all, and useful samples per second, as of the last `advance`."""
        ...
