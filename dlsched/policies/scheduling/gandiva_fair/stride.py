"""Gang-aware stride scheduling: the least service for its tickets is next, gangs whole or not.

Every contender has a *pass*, which grows by the service it receives divided by its tickets. In each
turn contenders are served in ascending order of passes (ties by arrival). A gang that does not fit
is skipped and keeps its pass, so it soon comes first, with the whole server free.

Invariant: a pass never falls, and no contender starts below the lowest pass, so that an absent
contender saves up no service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

SAME_PASS = 1e-9  # passes closer than this are equal: they are sums of fractions


class Contender(NamedTuple):
    """A job, or all jobs of a server, that competes for GPUs.

    Attributes:
        number: its row, or that of a server (see `aggregate`).
        gang: GPUs that it needs at once.
        arrival: decides ties, the lowest first.
    """

    number: int
    gang: int
    arrival: int


class Passes:
    """The passes of contenders for the same GPUs."""

    def __init__(self, known: Mapping[int, float] | None = None) -> None:
        self.of: dict[int, float] = dict(known or {})

    @property
    def lowest(self) -> float:
        """The pass at which a new contender starts."""
        return min(self.of.values(), default=0.0)

    def join(self, number: int, lead: float = 0.0) -> None:
        """Enter a new contender, `lead` above the lowest pass; no effect for a known one."""
        if number not in self.of:
            self.of[number] = self.lowest + lead

    def leave(self, number: int) -> float:
        """Remove a contender; returns how far its pass was above the lowest."""
        gone = self.of.pop(number)
        return max(gone - self.lowest, 0.0) if self.of else 0.0

    def charge(self, number: int, received: float, tickets: float) -> None:
        """Add the GPU quanta that a contender received, divided by its tickets."""
        self.of[number] += received / tickets


def in_turn(contenders: Iterable[Contender], passes: Passes) -> list[Contender]:
    """The contenders in ascending order of passes; of equal passes the earlier arrival first."""
    ascending = sorted(contenders, key=lambda one: (passes.of[one.number], one.arrival, one.number))
    ordered: list[Contender] = []
    tied: list[Contender] = []
    for one in ascending:
        if tied and passes.of[one.number] - passes.of[tied[0].number] > SAME_PASS:
            ordered += sorted(tied, key=lambda other: (other.arrival, other.number))
            tied = []
        tied.append(one)
    return ordered + sorted(tied, key=lambda other: (other.arrival, other.number))


def served(contenders: Iterable[Contender], passes: Passes, free: int) -> list[int]:
    """The numbers of the contenders that run in this turn, in the order of service."""
    chosen = []
    for one in in_turn(contenders, passes):
        if one.gang <= free:
            chosen.append(one.number)
            free -= one.gang
    return chosen
