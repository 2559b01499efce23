"""Which nodes the jobs of a pool may use, as bits by index, from masks of what nodes share.

There may be as many pools as jobs, so what a pool costs does not grow with the number of nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np

from dlsched.core.cluster.features import alternatives_of, features_of
from dlsched.core.cluster.gpus_by_type import by_type_of
from dlsched.daemon.live.nodes import ClusterRules, LiveNodes

GB = 1e9
SPARES = "spares"  # follows in the key of a pool that has the spare nodes, too
# virtual cluster, partition, GPU types, only these nodes, not these, a constraint, bytes of /tmp,
# and what few jobs say: GPUs by type
NOT_NODES = 4  # the place of "not these" in it
PoolKey = tuple[
    str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...], str, int, *tuple[str, ...]
]


class PoolNodes:
    """Nodes and rules as they are at one moment."""

    def __init__(self, nodes: LiveNodes, rules: ClusterRules) -> None:
        """Make the masks."""
        self._nodes = nodes.all()
        self._bit = {str(node.name): 1 << index for index, node in enumerate(self._nodes)}
        self._rules = rules
        self._tmp_bytes = np.array([node.facts.tmp_gb for node in self._nodes]) * GB
        self._owners = {tenant.name for tenant in rules.vcs if tenant.nodes}
        owner = {name: tenant.name for tenant in rules.vcs for name in tenant.nodes}
        self._of_owner: defaultdict[str | None, int] = defaultdict(int)
        self._of_type: defaultdict[str, int] = defaultdict(int)
        self._of_feature: defaultdict[str, int] = defaultdict(int)
        for name, node in zip(self._bit, self._nodes, strict=True):
            bit = self._bit[name]
            self._of_owner[owner.get(name)] |= bit
            self._of_type[node.gpu_type] |= bit
            for feature in features_of(rules.features.get(name, ()), node.gpu_type):
                self._of_feature[feature] |= bit
        self._spares = self._named(rules.spares)
        self._of_partition: dict[str, int] = {}
        self._of_types: dict[str, int] = {}

    def of(self, key: tuple[Any, ...]) -> int:
        """The nodes of a pool, as bits."""
        vc, partition, types, only, without, constraint, tmp_bytes, *more = key
        return reduce(
            and_, self._masks(vc, partition, types, only, constraint, tmp_bytes, more)
        ) & ~(self._named(without))

    def _masks(
        self,
        vc: str,
        partition: str,
        types: Iterable[str],
        only: Iterable[str],
        constraint: str,
        tmp_bytes: int,
        more: list[str],
    ) -> Iterator[int]:
        """The nodes that meet each wish of a pool."""
        yield self._of_owner[vc if vc in self._owners else None]
        if SPARES not in more:
            yield ~self._spares
        members = self._rules.partitions.get(partition) if partition else None
        if members is not None:
            if partition not in self._of_partition:
                self._of_partition[partition] = self._named(members)
            yield self._of_partition[partition]
        if types:
            yield _either(self._of_type.get(kind, 0) for kind in types)
        if by_type := "".join(said for said in more if said != SPARES):
            if by_type not in self._of_types:
                wanted = by_type_of(by_type)
                can = (bit for bit, n in self._bits() if n.may_give(wanted))
                self._of_types[by_type] = _either(can)
            yield self._of_types[by_type]
        if only:
            yield self._named(only)
        if tmp_bytes:
            fits = ~(self._tmp_bytes < tmp_bytes)  # NaN: not known
            yield int.from_bytes(np.packbits(fits, bitorder="little").tobytes(), "little")
        if constraint:
            yield _either(
                reduce(and_, (self._of_feature.get(name, 0) for name in names))
                for names in alternatives_of(constraint)
            )

    def _bits(self) -> Iterator[tuple[int, Any]]:
        return zip(self._bit.values(), self._nodes, strict=True)

    def _named(self, names: Iterable[str]) -> int:
        return _either(self._bit.get(name, 0) for name in names)


def _either(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)
