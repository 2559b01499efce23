"""GPUs by type as a round finds them: how many there are, on which nodes, and who may use which."""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Bools, Ints, Rows
from dlsched.core.context import RoundContext

__all__ = ["Grounds"]


class Grounds:
    """The cluster by type; looked up anew only after nodes have changed.

    Attributes:
        types: names, sorted.
        nodes: the nodes of each type, as bits.
        gpus: GPUs of each type on nodes that may get work.
    """

    def __init__(self) -> None:
        self.types: tuple[str, ...] = ()
        self.nodes: list[int] = []
        self.gpus: Ints = np.zeros(0, np.int64)
        self._seen: object = None

    def look(self, ctx: RoundContext) -> bool:
        """Bring it up to date; says whether anything changed."""
        occupancy = ctx.occupancy
        names = occupancy.cluster.gpu_types
        seen = (
            names,
            occupancy.in_service,
            occupancy.draining,
            occupancy.type_of.tobytes(),
            tuple(occupancy.closed.items()),
        )
        if seen == self._seen:
            return False
        self._seen = seen
        self.types = tuple(sorted(names))
        self.nodes = []
        for name in self.types:
            own = np.flatnonzero(occupancy.type_of == names.index(name))
            self.nodes.append(occupancy.cluster.nodes_mask(own.tolist()))
        room = [occupancy.capacity_in(nodes & occupancy.open_nodes) for nodes in self.nodes]
        self.gpus = np.array(room, np.int64)
        kind_of = {names.index(name): kind for kind, name in enumerate(self.types)}
        self._kind_of_node = [kind_of[code] for code in occupancy.type_of.tolist()]
        return True

    def kind_of(self, node: int) -> int:
        """The type of a node."""
        return self._kind_of_node[node]

    def open_to(self, rows: Rows, ctx: RoundContext) -> Bools:
        """Which types have a whole gang's worth of GPUs that a row may use, [row, type]."""
        may: Bools = ctx.table.gang[rows][:, None] <= self.gpus
        if ctx.pools.whole:
            return may
        pools = ctx.table.pool[rows]
        for pool in np.unique(pools).tolist():
            allowed = [bool(ctx.pools.nodes[pool] & nodes) for nodes in self.nodes]
            may = may & np.where((pools == pool)[:, None], np.array(allowed), True)
        return may

    def free(self, ctx: RoundContext) -> list[int]:
        """Free GPUs of each type."""
        if len(self.nodes) == 1:
            return [ctx.occupancy.free_in(self.nodes[0])]
        return [ctx.occupancy.free_in(nodes) for nodes in self.nodes]
