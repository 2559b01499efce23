"""Gang-aware stride: whoever has had least for its tickets goes next, gangs whole or not at all.

Every contender has a *pass*, which grows by what it receives over its tickets. A quantum goes down
the passes in ascending order (ties by arrival); a gang that does not fit is skipped, keeps its
pass, and so soon is first, with the whole server free.

Invariant: a pass never falls, and no contender begins below the lowest pass there is, so that
nobody saves up turns by being away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["Contender", "Passes", "in_turn", "served"]

SAME_PASS = 1e-9  # passes closer than this are equal: they are sums of fractions


class Contender(NamedTuple):
    """Somebody who wants GPUs of one server.

    Attributes:
        who: its number.
        gang: GPUs that it needs at once.
        arrival: ties go to the lowest.
    """

    who: int
    gang: int
    arrival: int


class Passes:
    """The passes of those who compete for the same GPUs."""

    def __init__(self, known: Mapping[int, float] | None = None) -> None:
        self.of: dict[int, float] = dict(known or {})

    @property
    def lowest(self) -> float:
        """Where a newcomer begins."""
        return min(self.of.values(), default=0.0)

    def join(self, who: int, lead: float = 0.0) -> None:
        """Enter somebody new, or who was away.

        Args:
            who: its number.
            lead: begin so far above the lowest pass.
        """
        if who not in self.of:
            self.of[who] = self.lowest + lead

    def leave(self, who: int) -> float:
        """Strike somebody out; returns how far it was above the lowest."""
        gone = self.of.pop(who)
        return max(gone - self.lowest, 0.0) if self.of else 0.0

    def charge(self, who: int, received: float, tickets: float) -> None:
        """Somebody received so many GPU quanta."""
        self.of[who] += received / tickets


def in_turn(contenders: Iterable[Contender], passes: Passes) -> list[Contender]:
    """Ascending by pass; of equal ones the earlier arrival first."""
    ascending = sorted(contenders, key=lambda one: (passes.of[one.who], one.arrival, one.who))
    ordered: list[Contender] = []
    tied: list[Contender] = []
    for one in ascending:
        if tied and passes.of[one.who] - passes.of[tied[0].who] > SAME_PASS:
            ordered += sorted(tied, key=lambda other: (other.arrival, other.who))
            tied = []
        tied.append(one)
    return ordered + sorted(tied, key=lambda other: (other.arrival, other.who))


def served(contenders: Iterable[Contender], passes: Passes, free: int) -> list[int]:
    """Who runs in this quantum on a server with so many free GPUs, in the order of service."""
    chosen = []
    for one in in_turn(contenders, passes):
        if one.gang <= free:
            chosen.append(one.who)
            free -= one.gang
    return chosen
