"""Which nodes a unit may use: pools made of virtual clusters' own nodes and GPU types.

Each unit has a pool number; a pool is a set of nodes. When pools do not overlap, counting free GPUs
per pool is enough to decide which rows fit; when they do, each row is tried.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.features import alternatives_of, features_of, holds
from dlsched.core.cluster.occupancy import Occupancy


class Pools:
    """Distinct (virtual cluster, allowed types, constraint) keys and their nodes.

    Attributes:
        nodes: the set of nodes of each pool, as bits.
        disjoint: no node is in two pools.
        whole: there is one pool only, and every node is in it.
    """

    def __init__(self, cluster: Cluster, keys: Sequence[tuple[str, ...]] = (("", ""),)) -> None:
        """Make pools for keys: a vc ("" for none), types joined by "|" ("" for any), a constraint.

        A constraint is one as `constraint_text` writes it; it may be left out.
        """
        self.cluster = cluster
        self.keys = list(keys)
        self._owned = {
            vc.name: cluster.nodes_mask(cluster.names.index(name) for name in vc.nodes)
            for vc in cluster.vcs.values()
            if vc.nodes
        }
        self._common = (1 << len(cluster)) - 1
        for owned in self._owned.values():
            self._common &= ~owned
        self.nodes: list[int] = []
        self.disjoint = True
        self.whole = False
        self.refresh(cluster.node_type)

    @classmethod
    def of_nodes(cls, cluster: Cluster, nodes: Sequence[int]) -> Pools:
        """Pools that are given as sets of nodes; they do not follow changes of GPU types."""
        pools = cls(cluster, ())
        pools.keys = [("", "", "")] * len(nodes)
        pools.nodes = list(nodes)
        pools._compare()
        return pools

    def add(self, key: tuple[str, ...], nodes: int) -> int:
        """Add a pool of some nodes of another one; returns its number."""
        self.keys.append(key)
        self.nodes.append(nodes)
        self._compare()
        return len(self.nodes) - 1

    def refresh(self, node_type: Ints) -> None:
        """Recompute after nodes have changed their GPU type."""
        by_type = {
            name: self.cluster.nodes_mask(np.flatnonzero(node_type == code).tolist())
            for code, name in enumerate(self.cluster.gpu_types)
        }
        everything = (1 << len(self.cluster)) - 1
        self.nodes = []
        for vc, types, *constraint in self.keys:
            nodes = self._owned.get(vc, self._common if self._owned else everything)
            if types:
                allowed = 0
                for name in types.split("|"):
                    allowed |= by_type.get(name, 0)
                nodes &= allowed
            self.nodes.append(nodes & self._meeting("".join(constraint), node_type))
        self._compare()

    def _meeting(self, constraint: str, node_type: Ints) -> int:
        """The nodes that meet a constraint."""
        if not constraint:
            return (1 << len(self.cluster)) - 1
        wanted, types = alternatives_of(constraint), self.cluster.gpu_types
        return self.cluster.nodes_mask(
            number
            for number, (node, kind) in enumerate(
                zip(self.cluster.nodes, node_type.tolist(), strict=True)
            )
            if holds(wanted, features_of(node.features, types[kind]))
        )

    def _compare(self) -> None:
        """See whether pools overlap, and whether there is only one."""
        everything = (1 << len(self.cluster)) - 1
        union, total = 0, 0
        for nodes in self.nodes:
            union |= nodes
            total += nodes.bit_count()
        self.disjoint = union.bit_count() == total
        self.whole = self.nodes == [everything]

    def capacity(self, pool: int, occupancy: Occupancy) -> int:
        """GPUs in service in a pool."""
        return occupancy.capacity_in(self.nodes[pool])

    def largest_gang(self, pool: int) -> int:
        """GPUs of the pool when every node is in service."""
        return int(
            sum(int(g) for n, g in enumerate(self.cluster.gpus) if self.nodes[pool] >> n & 1)
        )
