"""GPUs that a round may give: types in declared order, whole nodes, and room on each node."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from dlsched.core.context import RoundContext
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """GPUs by node that a round may give, after all jobs that may be moved have left.

    Attributes:
        types: GPU types in declared order.
        kind_of: by node, its GPU type.
        nodes: by type, the nodes that may get work, ascending.
        room: by node, GPUs that may be given; 0 on nodes that get no work.
        size: by type, GPUs of a whole node: the size that most of its nodes have.
    """

    types: tuple[str, ...]
    type_of: list[int]
    nodes: list[list[int]]
    room: list[int]
    size: list[int]

    @classmethod
    def of(cls, ctx: RoundContext, movable: Collection[int]) -> NodeCapacity:
        """The capacity in a round, in which the rows `movable` may lose their GPUs."""
        occupancy = ctx.occupancy
        types = occupancy.cluster.gpu_types
        type_of: list[int] = occupancy.type_of.tolist()
        room = [0] * len(type_of)
        nodes: list[list[int]] = [[] for _ in types]
        for node, gpu_type in enumerate(type_of):
            if occupancy.open_nodes >> node & 1:
                room[node] = occupancy.free[node].bit_count()
                nodes[gpu_type].append(node)
        for row in movable:
            placement = occupancy.held[row]
            for node, mask in zip(placement.nodes, placement.masks, strict=True):
                room[node] += (mask & ~occupancy.closed.get(node, 0)).bit_count()
        gpus = occupancy.cluster.gpus
        size = []
        for members in nodes:
            counts = np.bincount(gpus[members]) if members else np.zeros(1, np.int64)
            size.append(int(len(counts) - 1 - counts[::-1].argmax()))
        return cls(tuple(types), type_of, nodes, room, size)

    def configurations(self, *, most_nodes: int, most_gpus: int) -> Configurations:
        """All configurations that fit this capacity."""
        whole = [
            sum(self.room[node] >= size > 0 for node in members)
            for members, size in zip(self.nodes, self.size, strict=True)
        ]
        return Configurations.of(
            self.types,
            whole,
            self.size,
            capacity=[sum(self.room[node] for node in members) for members in self.nodes],
            most_nodes=most_nodes,
            most_gpus=most_gpus,
        )

    def gpu_type(self, nodes: tuple[int, ...]) -> int:
        """The GPU type of some nodes; NONE if they have several."""
        gpu_types = {self.type_of[node] for node in nodes}
        return gpu_types.pop() if len(gpu_types) == 1 else NONE
