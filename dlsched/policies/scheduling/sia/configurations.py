"""Configurations: what a job can get, so many GPUs on so many nodes of one type.

On one node 1, 2, 4, … GPUs up to the whole node; on several nodes whole nodes only. With these
shapes, configurations that fit by count can always be placed, and no two jobs that span nodes share
a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlsched.core.arrays import Ints

NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """All configurations of a cluster: types in declared order, then by GPUs.

    Attributes:
        types: GPU types.
        node_gpus: by type, GPUs of a whole node.
        capacity: by type, GPUs that may be given.
        gpu_type: by configuration, its type.
        nodes: by configuration, nodes.
        gpus: by configuration, GPUs.
    """

    types: tuple[str, ...]
    node_gpus: Ints
    capacity: Ints
    gpu_type: Ints
    nodes: Ints
    gpus: Ints

    def __len__(self) -> int:
        return len(self.gpu_type)

    @classmethod
    def of(
        cls,
        types: Sequence[str],
        nodes: Sequence[int],
        node_gpus: Sequence[int],
        *,
        capacity: Sequence[int] | None = None,
        most_nodes: int = 16,
        most_gpus: int = 64,
    ) -> Configurations:
        """List all configurations.

        Args:
            types: GPU types in declared order.
            nodes: whole nodes of each type.
            node_gpus: GPUs of a whole node of each type.
            capacity: GPUs of each type, if not nodes × GPUs.
            most_nodes: most nodes of a job.
            most_gpus: most GPUs of a job.
        """
        found: list[tuple[int, int, int]] = []
        for gpu_type, (count, size) in enumerate(zip(nodes, node_gpus, strict=True)):
            parts = [2**k for k in range(size.bit_length()) if 2**k < size]
            found += [(gpu_type, 1, gpus) for gpus in (*parts, size) if 0 < gpus <= most_gpus]
            whole = range(2, min(count, most_nodes) + 1)
            found += [(gpu_type, n, n * size) for n in whole if n * size <= most_gpus]
        table = np.array(found, np.int64).reshape(-1, 3)
        room = np.multiply(nodes, node_gpus) if capacity is None else capacity
        return cls(
            types=tuple(types),
            node_gpus=np.array(node_gpus, np.int64),
            capacity=np.array(room, np.int64),
            gpu_type=table[:, 0],
            nodes=table[:, 1],
            gpus=table[:, 2],
        )

    def with_gangs(self, gangs: Sequence[int]) -> Configurations:
        """These configurations, followed by the gangs of jobs that cannot change their GPUs."""
        table = [
            (gpu_type, -(-gpus // size), gpus)
            for gpu_type, (size, room) in enumerate(
                zip(self.node_gpus.tolist(), self.capacity.tolist(), strict=True)
            )
            for gpus in sorted(set(gangs))
            if self.index(gpu_type, gpus) == NONE and 0 < gpus <= room and size > 0
        ]
        more = np.array(table, np.int64).reshape(-1, 3)
        return replace(
            self,
            gpu_type=np.concatenate([self.gpu_type, more[:, 0]]),
            nodes=np.concatenate([self.nodes, more[:, 1]]),
            gpus=np.concatenate([self.gpus, more[:, 2]]),
        )

    def index(self, gpu_type: int, gpus: int) -> int:
        """The configuration with so many GPUs of a type, or NONE."""
        at = np.flatnonzero((self.gpu_type == gpu_type) & (self.gpus == gpus))
        return int(at[0]) if len(at) else NONE

    def smallest(self, at_least: int = 1) -> Ints:
        """By type, the first configuration with at least so many GPUs, or NONE."""
        found = np.full(len(self.types), NONE, np.int64)
        for at in np.flatnonzero(self.gpus >= at_least)[::-1].tolist():
            found[self.gpu_type[at]] = at
        return found
