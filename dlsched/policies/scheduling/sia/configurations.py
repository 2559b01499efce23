"""What a job can be given: so many GPUs, on so many nodes, of one type.

On one node 1, 2, 4, … GPUs up to all of it; on several nodes whole nodes only. With these shapes
there is always a way to place what fits by count, and no two jobs that span nodes share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlsched.core.arrays import Ints

__all__ = ["NONE", "Configurations"]

NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """All configurations of a cluster: types in declared order, then by GPUs.

    Attributes:
        types: GPU types.
        node_gpus: by type, GPUs of a whole node.
        capacity: by type, GPUs that may be given.
        kind: by configuration, its type.
        nodes: by configuration, nodes.
        gpus: by configuration, GPUs.
    """

    types: tuple[str, ...]
    node_gpus: Ints
    capacity: Ints
    kind: Ints
    nodes: Ints
    gpus: Ints

    def __len__(self) -> int:
        return len(self.kind)

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
        """List them.

        Args:
            types: GPU types in declared order.
            nodes: whole nodes of each.
            node_gpus: GPUs of a whole node of each.
            capacity: GPUs of each, where it is not nodes × GPUs.
            most_nodes: no job spans more.
            most_gpus: no job gets more.
        """
        found: list[tuple[int, int, int]] = []
        for kind, (count, size) in enumerate(zip(nodes, node_gpus, strict=True)):
            parts = [2**k for k in range(size.bit_length()) if 2**k < size]
            found += [(kind, 1, gpus) for gpus in (*parts, size) if 0 < gpus <= most_gpus]
            whole = range(2, min(count, most_nodes) + 1)
            found += [(kind, n, n * size) for n in whole if n * size <= most_gpus]
        table = np.array(found, np.int64).reshape(-1, 3)
        room = np.multiply(nodes, node_gpus) if capacity is None else capacity
        return cls(
            types=tuple(types),
            node_gpus=np.array(node_gpus, np.int64),
            capacity=np.array(room, np.int64),
            kind=table[:, 0],
            nodes=table[:, 1],
            gpus=table[:, 2],
        )

    def with_gangs(self, gangs: Sequence[int]) -> Configurations:
        """These, and after them further numbers of GPUs, which jobs that cannot change need."""
        table = [
            (kind, -(-gpus // size), gpus)
            for kind, (size, room) in enumerate(
                zip(self.node_gpus.tolist(), self.capacity.tolist(), strict=True)
            )
            for gpus in sorted(set(gangs))
            if self.index(kind, gpus) == NONE and 0 < gpus <= room and size > 0
        ]
        more = np.array(table, np.int64).reshape(-1, 3)
        return replace(
            self,
            kind=np.concatenate([self.kind, more[:, 0]]),
            nodes=np.concatenate([self.nodes, more[:, 1]]),
            gpus=np.concatenate([self.gpus, more[:, 2]]),
        )

    def index(self, kind: int, gpus: int) -> int:
        """The configuration of so many GPUs of a type; NONE where there is no such."""
        at = np.flatnonzero((self.kind == kind) & (self.gpus == gpus))
        return int(at[0]) if len(at) else NONE

    def smallest(self, at_least: int = 1) -> Ints:
        """By type, the first configuration of so many GPUs or more; NONE where there is none."""
        found = np.full(len(self.types), NONE, np.int64)
        for at in np.flatnonzero(self.gpus >= at_least)[::-1].tolist():
            found[self.kind[at]] = at
        return found
