"""The server of each job, and the passes there: the memory from turn to turn.

A job that fits a server is assigned to one and competes there. A larger gang competes centrally,
with all small jobs of each server together as one contender. A job that moves keeps its lead over
the lowest pass, but at most one turn of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlsched.policies.scheduling.gandiva_fair.stride import Passes

CENTRAL = -1  # in place of a server: the gang is larger than a server


def aggregate(server: int) -> int:
    """The number under which a server's small jobs compete centrally."""
    return -1 - server


class ServerAssignments:
    """The assigned server of each job, and all passes.

    Attributes:
        of: the server of each row, or CENTRAL.
        local: the passes of each server's jobs.
        central: the passes of large gangs (by row) and of servers (see `aggregate`).
    """

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.local: dict[int, Passes] = {}
        self.central = Passes()

    def job_count(self, server: int) -> int:
        """How many jobs are assigned to a server."""
        return len(self.local[server].of) if server in self.local else 0

    def passes(self, row: int) -> Passes:
        """The passes with which the pass of a row competes."""
        assigned = self.of[row]
        return self.central if assigned == CENTRAL else self.local[assigned]

    def ahead(self, row: int) -> float:
        """How far the pass of a row is above the lowest pass with which it competes."""
        passes = self.passes(row)
        return passes.of[row] - passes.lowest

    def assign(self, row: int, assigned: int, most: float = 0.0) -> None:
        """Assign a row to a server or CENTRAL; it keeps a lead of `most` at the most."""
        lead = min(self.leave(row), most) if row in self.of else 0.0
        self.of[row] = assigned
        if assigned == CENTRAL:
            self.central.join(row, lead)
            return
        if assigned not in self.local:
            self.local[assigned] = Passes()
            self.central.join(aggregate(assigned))
        self.local[assigned].join(row, lead)

    def leave(self, row: int) -> float:
        """Remove a row; returns how far its pass was above the lowest."""
        passes, assigned = self.passes(row), self.of.pop(row)
        lead = passes.leave(row)
        if assigned != CENTRAL and not passes.of:
            del self.local[assigned]
            self.central.leave(aggregate(assigned))
        return lead

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow a table that was packed: `place` is the new row number by the old one."""
        for row in [row for row in self.of if row not in place]:
            self.leave(row)
        self.of = {place[row]: assigned for row, assigned in self.of.items()}
        for passes in self.local.values():
            passes.of = {place[row]: value for row, value in passes.of.items()}
        self.central.of = {
            place[number] if number >= 0 else number: value
            for number, value in self.central.of.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Assignments and passes as plain values."""
        return {
            "of": list(self.of.items()),  # in the order in which loads are summed up
            "local": [(server, list(p.of.items())) for server, p in self.local.items()],
            "central": list(self.central.of.items()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.of = {int(row): int(assigned) for row, assigned in state["of"]}
        self.local = {int(server): _passes(pairs) for server, pairs in state["local"]}
        self.central = _passes(state["central"])


def _passes(pairs: Any) -> Passes:
    return Passes({int(number): float(value) for number, value in pairs})
