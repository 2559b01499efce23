"""The nodes and their GPUs: from UUIDs to (node, bit) and back.

Policies see a node by its place in the cluster and a GPU by its place in the node; the live world
knows a GPU by its UUID, never by an index. Places are given once and kept as long as this process
lives: a GPU that a node no longer has keeps its place and is closed.

Invariant: `room` has taken what runs hold, those aside that are suspended and have let go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlsched.core.cluster import ANY_TYPE, VirtualCluster
from dlsched.core.occupancy import Placement
from dlsched.daemon.round.codec import encode
from dlsched.daemon.round.room import Room
from dlsched.protocol.ledger import NodeStatus
from dlsched.protocol.messages import GpuId, NodeName, Share

__all__ = ["ClusterRules", "Machine", "Machines", "natural"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRules:
    """What the configuration says of the cluster as a whole.

    Attributes:
        partitions: the nodes of each partition; None for all of them.
        longest_s: for how long jobs of a partition may run, where it says.
        vcs: virtual clusters, with nodes of their own or quotas.
    """

    partitions: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    longest_s: Mapping[str, float] = field(default_factory=dict)
    vcs: tuple[VirtualCluster, ...] = ()

    @property
    def has_quotas(self) -> bool:
        """Does any virtual cluster have a quota of GPUs?"""
        return any(vc.gpus >= 0 for vc in self.vcs)


@dataclass(slots=True)
class Machine:
    """One node as the round needs it; what is not known is NaN or empty."""

    name: NodeName
    gpus: list[GpuId] = field(default_factory=list)  # by place
    place: dict[GpuId, int] = field(default_factory=dict)
    gpu_type: str = ANY_TYPE
    cpus: float = np.nan
    memory_gb: float = np.nan
    switch: str = ""
    rack: str = ""
    domain: str = ""
    nic_gbps: float = np.nan
    status: NodeStatus = NodeStatus.UP
    drained: bool = False
    late: bool = False
    gone: int = 0  # GPUs that it no longer has
    shut: dict[str, int] = field(default_factory=dict)  # by why: quarantined, unhealthy, foreign, …

    @property
    def closed(self) -> int:
        """GPUs that nobody gets."""
        mask = self.gone
        for bits in self.shut.values():
            mask |= bits
        return mask

    @property
    def is_open(self) -> bool:
        """May it get new work?"""
        return self.status is NodeStatus.UP and not self.drained and not self.late

    def mask(self, gpus: Iterable[GpuId]) -> int:
        """GPUs as bits; those that it never had are left out."""
        bits = 0
        for gpu in gpus:
            if gpu in self.place:
                bits |= 1 << self.place[gpu]
        return bits


class Machines:
    """All nodes that have registered, by place.

    Attributes:
        version: grows when the cluster is made of other nodes or GPUs.
        room: what runs hold.
    """

    def __init__(self) -> None:
        self._all: list[Machine] = []
        self._index: dict[str, int] = {}
        self.version = 0
        self.room = Room()
        self._encoded: tuple[int, bytes] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> Machine:
        return self._all[index]

    def all(self) -> list[Machine]:
        """Every node, by place."""
        return list(self._all)

    def index(self, name: str) -> int | None:
        """The place of a node, None for one that never registered."""
        return self._index.get(name)

    def get(self, name: str) -> Machine | None:
        """A node by name."""
        index = self._index.get(name)
        return None if index is None else self._all[index]

    @property
    def names(self) -> list[str]:
        """Names by place."""
        return [machine.name for machine in self._all]

    def register(self, name: NodeName, gpus: Sequence[GpuId], gpu_type: str = "") -> Machine:
        """A node says what it has."""
        machine = self.get(name)
        if machine is None:
            machine = Machine(name)
            self._index[name] = len(self._all)
            self._all.append(machine)
            self.version += 1
        for gpu in gpus:
            if gpu not in machine.place:
                machine.place[gpu] = len(machine.gpus)
                machine.gpus.append(gpu)
                self.version += 1
        machine.gone = ((1 << len(machine.gpus)) - 1) & ~machine.mask(gpus)
        if gpu_type and gpu_type != machine.gpu_type:
            machine.gpu_type = gpu_type
            self.version += 1
        return machine

    def describe(self, name: str, facts: Mapping[str, Any]) -> None:
        """A node or the configuration says more about it."""
        machine = self.get(name)
        if machine is None:
            return
        for key in ("gpu_type", "cpus", "memory_gb", "switch", "rack", "domain", "nic_gbps"):
            value = facts.get(key)
            if value not in (None, "") and value != getattr(machine, key):
                setattr(machine, key, value if isinstance(value, str) else float(value))
                self.version += 1

    def placement(self, shares: Iterable[Share]) -> Placement:
        """Shares as places; in the order in which they are given."""
        nodes: list[int] = []
        masks: list[int] = []
        for share in shares:
            index = self._index.get(share.node)
            mask = 0 if index is None else self._all[index].mask(share.gpus)
            if index is not None and mask:
                nodes.append(index)
                masks.append(mask)
        return Placement(tuple(nodes), tuple(masks))

    def shares(self, placement: Placement) -> tuple[Share, ...]:
        """Places as shares, in rank order: as the placement has the nodes, GPUs ascending."""
        return tuple(
            Share(
                node=self._all[node].name,
                gpus=tuple(g for k, g in enumerate(self._all[node].gpus) if mask >> k & 1),
            )
            for node, mask in zip(placement.nodes, placement.masks, strict=True)
        )

    def hindrance(self, placement: Placement, part: float) -> str:
        """Why nobody that needs such a part of each GPU can start there now; empty when it can."""
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            machine = self._all[node]
            if not machine.is_open:
                return f"{machine.name} takes no new runs"
            if mask & machine.closed:
                return f"a GPU of {machine.name} is out of service"
        if not self.room.has(placement, part):
            names = ", ".join(self._all[node].name for node in placement.nodes)
            return f"a GPU of {names} is still held"
        return ""

    def encoded(self) -> bytes:
        """What the cluster is made of, as bytes that are made once."""
        if self._encoded is None or self._encoded[0] != self.version:
            every = self._all
            numbers = ("cpus", "memory_gb", "nic_gbps")
            value = {
                "names": self.names,
                "gpus": np.array([len(m.gpus) for m in every], np.int64),
                "types": [m.gpu_type for m in every],
                **{key: np.array([getattr(m, key) for m in every], np.float64) for key in numbers},
                **{key: [getattr(m, key) for m in every] for key in ("switch", "rack", "domain")},
            }
            self._encoded = (self.version, encode(value))
        return self._encoded[1]


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key by which n2 comes before n10."""
    pieces = re.findall(r"[0-9]+|[^0-9]+", name)
    return tuple((0, int(piece)) if piece.isdigit() else (1, piece) for piece in pieces)
