"""The stage that decides who runs: a policy ranks the units, or drives the walk itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, TypeVar

from dlsched.core.allocation import Ranking
from dlsched.core.context import RoundContext
from dlsched.core.following import follow
from dlsched.core.metrics import Metric
from dlsched.core.stage import Stage
from dlsched.core.units import Units
from dlsched.core.walk import Walk

__all__ = ["Chooser", "SchedulingPolicy"]

O = TypeVar("O")  # noqa: E741 - the options' type, as in "SchedulingPolicy[O]"


class SchedulingPolicy(Stage[O], ABC):
    """Decides who runs.

    Most policies only rank; one whose order depends on what was placed overrides `allocate` and
    drives the walk itself.

    Attributes:
        preemptive: may it take GPUs from running rows? If not, only waiting rows are ranked.
        rests: with nobody waiting, a decision changes nothing and keeps no state, so the world
            need not ask.
        metrics: reported keys that it reads, with the values to use before any report.
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()

    preemptive: bool = False
    rests: bool = True

    @property
    def needs_scaling(self) -> bool:
        """Must it be known how fast jobs run on how many GPUs? A replay asks before the run."""
        return False

    @property
    def pairs_units(self) -> bool:
        """Does it decide itself who shares GPUs with whom?"""
        return False

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """Order the units, best first.

        Args:
            units: all active rows (preemptive, mode full) or the waiting rows, in order of
                admission.
            ctx: the round's snapshot.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement rank or allocate")

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Decide, through the walk; the default follows `rank`."""
        follow(walk, units, self.rank(units, ctx))


class Chooser(ABC):
    """A scheduling policy that picks the parts of the round anew before it begins."""

    @property
    @abstractmethod
    def has_chosen(self) -> bool:
        """Has it picked any parts yet?"""

    @abstractmethod
    def choose(self, ctx: RoundContext) -> Mapping[str, str] | None:
        """Parts to install now, by stage; None to keep the present ones."""
