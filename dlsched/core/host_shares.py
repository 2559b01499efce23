"""The stage that decides how many processors and how much memory of their nodes units are given.

GPUs are given by the walk, whatever ranks the units. This part says what a unit would like of the
rest of a node, what it must have at least, and whether units that were served before give up what
is above their least. The mechanism is the walk's (`walk/host_sharing.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dlsched.core.allocation import HostShare
from dlsched.core.arrays import Floats
from dlsched.core.stage import Stage

if TYPE_CHECKING:
    from dlsched.core.cluster.occupancy import Placement
    from dlsched.core.context import RoundContext
    from dlsched.core.units import Units

O = TypeVar("O")  # noqa: E741 - the options' type, as in "HostPolicy[O]"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDemand:
    """What units want of their nodes for each GPU, [unit, (processors, GB)]; NaN: nothing counted.

    Attributes:
        best: what they would like.
        least: what they are content with, at most `best`.
    """

    best: Floats
    least: Floats


class HostPolicy(Stage[O], ABC):
    """Decides how many processors and how much memory units are given for each of their GPUs."""

    @property
    @abstractmethod
    def takes_from_peers(self) -> bool:
        """Do units that were served before give up what is above their least for another?

        If not, a unit waits for GPUs whose nodes have its best.
        """

    @property
    def spares_peers(self) -> bool:
        """Are units passed over whose giving up would help nothing?"""
        return True

    @property
    def decides_together(self) -> bool:
        """Are the shares of all units on GPUs decided together (`best_for_all`), not by rank?"""
        return False

    @abstractmethod
    def demand(self, units: Units, ctx: RoundContext) -> HostDemand:
        """What units want, before a decision."""

    def best_for_all(
        self, rows: Sequence[int], placements: Sequence[Placement], ctx: RoundContext
    ) -> Sequence[HostShare]:
        """What each of all rows on GPUs is to have; their placements together hold it."""
        raise NotImplementedError(f"{type(self).__name__} does not decide for all together")
