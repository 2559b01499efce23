"""The GPUs of each type: how many there are, on which nodes, and which jobs may use them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Bools, Ints, Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext


class GpuTypes:
    """The cluster by GPU type; computed again only after nodes have changed.

    Attributes:
        types: names of the GPU types, sorted.
        nodes: by type, its nodes as bits.
        gpus: by type, GPUs on nodes that may get work.
    """

    def __init__(self) -> None:
        self.types: tuple[str, ...] = ()
        self.nodes: list[int] = []
        self.gpus: Ints = np.zeros(0, np.int64)
        self._seen: object = None

    def update(self, ctx: RoundContext) -> bool:
        """Follow the nodes of this round; returns whether anything changed."""
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
        place = {names.index(name): index for index, name in enumerate(self.types)}
        self._type_of_node = [place[code] for code in occupancy.type_of.tolist()]
        return True

    def of_node(self, node: int) -> int:
        """The GPU type of a node, as an index into `types`."""
        return self._type_of_node[node]

    def of_placement(self, placement: Placement) -> set[int]:
        """The GPU types that a placement uses."""
        return {self._type_of_node[node] for node in placement.nodes}

    def usable_by(self, rows: Rows, ctx: RoundContext) -> Bools:
        """Which types have enough GPUs for the gang of a row, in the row's pool: [row, type]."""
        may: Bools = ctx.table.gang[rows][:, None] <= self.gpus
        if ctx.pools.whole:
            return may
        pools = ctx.table.pool[rows]
        for pool in np.unique(pools).tolist():
            allowed = [bool(ctx.pools.nodes[pool] & nodes) for nodes in self.nodes]
            may = may & np.where((pools == pool)[:, None], np.array(allowed), True)
        return may

    def free(self, ctx: RoundContext) -> list[int]:
        """Free GPUs, by type."""
        if len(self.nodes) == 1:
            return [ctx.occupancy.free_in(self.nodes[0])]
        return [ctx.occupancy.free_in(nodes) for nodes in self.nodes]


def capacity(types: Sequence[str], ctx: RoundContext) -> Ints:
    """GPUs of each type on nodes that may get work."""
    occupancy = ctx.occupancy
    names = occupancy.cluster.gpu_types
    found = dict.fromkeys(types, 0)
    for code, name in enumerate(names):
        nodes = occupancy.cluster.nodes_mask(np.flatnonzero(occupancy.type_of == code).tolist())
        found[name] += occupancy.capacity_in(nodes & occupancy.open_nodes)
    return np.array([found[name] for name in types], np.int64)
