"""The replicas of a service: which are to be started, which end by themselves.

Replicas have fixed numbers, 1 … `most`. Each gateway computes by itself how many are needed, uses
the warm ones with the lowest numbers, and asks for those that are not warm yet; several that ask
for the same one ask once. No word ends a replica: one without a request for `idle_s` ends itself.
As requests go to low numbers, high ones fall quiet when load falls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Warmth(Enum):
    """What a replica is."""

    COLD = "cold"
    WARMING = "warming"
    WARM = "warm"


@dataclass(slots=True)
class Replica:
    """One replica.

    Attributes:
        warmth: cold, warming or warm.
        quiet_since: seconds; when it became warm or had its last request.
    """

    warmth: Warmth = Warmth.COLD
    quiet_since: float = math.nan


class Replicas:
    """All replicas of one service, as a pure state machine; times are given by the caller.

    Invariants: no number above `most` is ever started; a warm replica with a request in the last
    `idle_s` seconds never ends by itself, nor one of the lowest `least`.
    """

    def __init__(
        self, *, least: int = 1, most: int, idle_s: float = 600.0, reserve: int = 0
    ) -> None:
        """Have all replicas cold.

        Args:
            least: so many never end by themselves.
            most: the highest number.
            idle_s: seconds without a request after which one ends itself.
            reserve: so many are kept warm, without requests, beyond those that are needed.
        """
        self.least, self.most, self.idle_s, self.reserve = least, most, idle_s, reserve
        self._all = [Replica() for _ in range(most)]

    def __getitem__(self, number: int) -> Replica:
        """A replica by its number, from 1."""
        return self._all[number - 1]

    def numbers(self, *warmths: Warmth) -> list[int]:
        """The numbers of those replicas, ascending."""
        return [n for n, each in enumerate(self._all, 1) if each.warmth in warmths]

    def wanted(self, needed: int) -> int:
        """How many are to be warm where a gateway needs so many."""
        return min(max(needed, self.least) + self.reserve, self.most)

    def ask(self, needed: Iterable[int], now: float) -> list[int]:
        """Gateways need so many each: the replicas to start, lowest first; they are warming now.

        Reserves count as used, so they stay warm.
        """
        found: list[int] = []
        for each in needed:
            top = self.wanted(each)
            for number in range(1, top + 1):
                replica = self[number]
                if replica.warmth is Warmth.COLD:
                    replica.warmth = Warmth.WARMING
                    found.append(number)
                elif replica.warmth is Warmth.WARM and number > top - self.reserve:
                    replica.quiet_since = max(replica.quiet_since, now)
        return found

    def warmed(self, number: int, now: float) -> None:
        """A replica can take requests."""
        self[number].warmth, self[number].quiet_since = Warmth.WARM, now

    def gone(self, number: int) -> None:
        """A replica has ended, by itself or otherwise."""
        self._all[number - 1] = Replica()

    def usable(self, needed: int) -> list[int]:
        """The replicas among which a gateway that needs so many spreads its requests."""
        top = min(max(needed, self.least), self.most)
        return [n for n in range(1, top + 1) if self[n].warmth is Warmth.WARM]

    def used(self, number: int, now: float) -> None:
        """A warm replica has a request."""
        self[number].quiet_since = max(self[number].quiet_since, now)

    def next_end(self) -> float:
        """When the next replica ends by itself, if nothing happens; inf when none does."""
        return min((when for _, when in self._ends()), default=math.inf)

    def end_quiet(self, now: float) -> list[int]:
        """The replicas that have ended by themselves by now; they are cold."""
        found = [number for number, when in self._ends() if when <= now]
        for number in found:
            self.gone(number)
        return found

    def _ends(self) -> list[tuple[int, float]]:
        return [
            (number, each.quiet_since + self.idle_s)
            for number, each in enumerate(self._all, 1)
            if number > self.least and each.warmth is Warmth.WARM
        ]
