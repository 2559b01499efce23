"""The lanes of all GPUs of a cluster: which unit is in which lane, as units come and go.

Units that share GPUs have the very same ones, so a set of GPUs has lanes like one GPU. Amounts are
MiB of each GPU. Policy and simulated world each keep such a table, and both come to the same lanes,
because both see units come and go in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.units import UnitTable
from dlsched.policies.node.salus.lanes import AnyLanes, Lanes, Memory
from dlsched.policies.node.salus.turns import Order

MIB_OF_GIB = 1024.0
PERSISTENT, EPHEMERAL = "persistent_gib", "ephemeral_gib"  # columns of jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRules:
    """How jobs on the same GPUs take turns.

    Attributes:
        order: of a lane's iterations.
        conserves_work: whether a lane goes on with the next job when the first wants no turn.
        lanes: their rules say which job gets into which lane.
        reserved_mib: of each GPU that no job gets.
    """

    order: Order = "srtf"
    conserves_work: bool = False
    lanes: type[AnyLanes] = Lanes
    reserved_mib: float = 300.0


Memories = Floats  # GiB that units need, [row, persistent or ephemeral]; NaN: not known


def memories(table: UnitTable) -> Memories:
    """What the units of a table need; one of which either is not known has its GPUs alone."""
    nothing = np.full(len(table), np.nan)
    columns = [table.extra.get(name, nothing) for name in (PERSISTENT, EPHEMERAL)]
    return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)


def takes_turns(memory: Memories, row: int) -> bool:
    """Is it known what memory a unit needs?"""
    return not math.isnan(memory[row].sum())


class TakesTurns:
    """A scheduling policy whose jobs take turns on their GPUs.

    Attributes:
        turns: how.
    """

    turns: TurnRules


class LaneTable:
    """The lanes of all sets of GPUs that have units with known memory.

    Attributes:
        lanes: by the GPUs.
    """

    def __init__(self, rules: TurnRules) -> None:
        """No unit yet."""
        self.rules = rules
        self.lanes: dict[Placement, AnyLanes] = {}
        self._at: dict[int, Placement] = {}

    def need(self, persistent_gib: float, ephemeral_gib: float, capacity: float) -> Memory:
        """What is reserved for a unit, in MiB."""
        need = Memory(persistent_gib * MIB_OF_GIB, ephemeral_gib * MIB_OF_GIB)
        return self.rules.lanes.reserved(need, capacity)

    def capacity(self, where: Placement, occupancy: Occupancy) -> float:
        """MiB of each GPU of a placement that units may use; NaN where it is not known."""
        memory = occupancy.cluster.gpu_memory
        least = min(float(memory[occupancy.type_of.item(node)]) for node in where.nodes)
        return least * MIB_OF_GIB - self.rules.reserved_mib

    def left_after(self, where: Placement, need: Memory, capacity: float) -> float | None:
        """MiB that would be left on GPUs with one unit more; None where it has to wait."""
        lanes = self.lanes.get(where)
        if lanes is None:
            left = capacity - need.persistent - need.ephemeral
            return left if left >= 0 else None
        return lanes.left_after(need)

    def come(self, row: int, where: Placement, need: Memory, capacity: float) -> None:
        """A unit comes to GPUs."""
        if where not in self.lanes:
            self.lanes[where] = self.rules.lanes(capacity)
        self.lanes[where].submit(str(row), need)
        self._at[row] = where

    def leave(self, row: int) -> None:
        """A unit leaves its GPUs."""
        where = self._at.pop(row)
        self.lanes[where].finish(str(row))
        if where not in self._at.values():
            del self.lanes[where]

    def lane_of(self, row: int) -> int:
        """The number of a unit's lane among those of its GPUs; 0: it has none."""
        where = self._at.get(row)
        return 0 if where is None else self.lanes[where].lane_of(str(row))

    def where(self, row: int) -> Placement | None:
        """The GPUs on which a unit has its lane."""
        return self._at.get(row)

    def follow(self, occupancy: Occupancy, memory: Memories) -> tuple[list[int], list[int]]:
        """See which units have left lanes, and which have come to lanes, in order; returns both."""
        held = occupancy.held
        gone = [row for row, where in self._at.items() if held.get(row) != where]
        for row in gone:
            self.leave(row)
        fresh = [row for row in held if row not in self._at and takes_turns(memory, row)]
        for row in fresh:
            where = held[row]
            capacity = self.capacity(where, occupancy)
            need = self.need(float(memory[row, 0]), float(memory[row, 1]), capacity)
            self.come(row, where, need, capacity)
        return gone, fresh

    # -- what is kept between decisions ------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All lanes, as plain values."""
        return {
            "lane_table": [
                (list(where.nodes), list(where.masks), lanes.state())
                for where, lanes in self.lanes.items()
            ]
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.lanes, self._at = {}, {}
        for nodes, masks, kept in state["lane_table"]:
            where = Placement(tuple(nodes), tuple(masks))
            lanes = self.rules.lanes.of_state(kept)
            self.lanes[where] = lanes
            self._at |= dict.fromkeys(map(int, lanes.names()), where)

    def renumber(self, old: Rows) -> None:
        """Follow a table that was packed."""
        place = {before: row for row, before in enumerate(old.tolist()) if before >= 0}
        for row in [row for row in self._at if row not in place]:
            self.leave(row)
        names = {str(row): str(place[row]) for row in self._at}
        self._at = {place[row]: where for row, where in self._at.items()}
        for lanes in self.lanes.values():
            lanes.rename(names)
