"""Where everybody belongs, and the passes there: what is remembered from turn to turn.

A job that fits a server belongs to one and competes there; a larger one competes centrally, with
every server's small jobs together as one contender. Who moves takes along what it is ahead, but
not more than one turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlsched.policies.scheduling.gandiva_fair.stride import Passes

__all__ = ["CENTRE", "Seats", "aggregate"]

CENTRE = -1  # the seat of a gang that is larger than a server


def aggregate(server: int) -> int:
    """The number under which a server's small jobs compete centrally."""
    return -1 - server


class Seats:
    """Seats and passes.

    Attributes:
        of: the server of each row, or CENTRE.
        local: the passes of each server's jobs.
        central: the passes of large gangs (by row) and of servers (see `aggregate`).
    """

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.local: dict[int, Passes] = {}
        self.central = Passes()

    def guests(self, server: int) -> int:
        """How many jobs belong to a server."""
        return len(self.local[server].of) if server in self.local else 0

    def passes(self, row: int) -> Passes:
        """The passes that a row's is compared with."""
        seat = self.of[row]
        return self.central if seat == CENTRE else self.local[seat]

    def ahead(self, row: int) -> float:
        """How far a row is above the lowest pass where it competes."""
        passes = self.passes(row)
        return passes.of[row] - passes.lowest

    def sit(self, row: int, seat: int, most: float = 0.0) -> None:
        """Give a row a seat, or another one.

        Args:
            row: who.
            seat: a server, or CENTRE.
            most: it takes along at most so much of what it is ahead.
        """
        lead = min(self.leave(row), most) if row in self.of else 0.0
        self.of[row] = seat
        if seat == CENTRE:
            self.central.join(row, lead)
            return
        if seat not in self.local:
            self.local[seat] = Passes()
            self.central.join(aggregate(seat))
        self.local[seat].join(row, lead)

    def leave(self, row: int) -> float:
        """Take a row out; returns how far it was ahead."""
        passes, seat = self.passes(row), self.of.pop(row)
        lead = passes.leave(row)
        if seat != CENTRE and not passes.of:
            del self.local[seat]
            self.central.leave(aggregate(seat))
        return lead

    def rename(self, place: Mapping[int, int]) -> None:
        """Rows have other numbers now, by their old ones; whoever has none has ended."""
        for row in [row for row in self.of if row not in place]:
            self.leave(row)
        self.of = {place[row]: seat for row, seat in self.of.items()}
        for passes in self.local.values():
            passes.of = {place[row]: value for row, value in passes.of.items()}
        self.central.of = {
            place[who] if who >= 0 else who: value for who, value in self.central.of.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Seats and passes as plain values."""
        return {
            "of": sorted(self.of.items()),
            "local": [(server, list(p.of.items())) for server, p in self.local.items()],
            "central": list(self.central.of.items()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.of = {int(row): int(seat) for row, seat in state["of"]}
        self.local = {int(server): _passes(pairs) for server, pairs in state["local"]}
        self.central = _passes(state["central"])


def _passes(pairs: Any) -> Passes:
    return Passes({int(who): float(value) for who, value in pairs})
