"""The nodes and their GPUs: from UUIDs to (node, bit) and back.

Policies know a node by its index in the cluster and a GPU by its index in the node; the live world
knows a GPU by its UUID. Indices are given once and kept as long as this process lives: a GPU that a
node no longer has keeps its index and is closed.

Invariant: `gpu_use` has what all runs hold, except suspended runs that have let their GPUs go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dlsched.core.cluster.description import ANY_TYPE, VirtualCluster
from dlsched.core.cluster.gpus_by_type import ByType, has_each, masks_by_type
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.cluster.reservations import Reservation
from dlsched.core.cluster.site_rules import SiteRules
from dlsched.daemon.live.gpu_use import GpuUse
from dlsched.daemon.reported.training_profiles import Place
from dlsched.daemon.site_rules.partition_access import PartitionAccess
from dlsched.nodes.fields import ROWS, NodeFacts
from dlsched.protocol.ledger import Ledger, NodeStatus, Run
from dlsched.protocol.messages import GpuId, NodeName, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRules:
    """Partitions and virtual clusters, as configuration and operators have set them.

    Attributes:
        partitions: the nodes of each partition; None for all of them.
        longest_s: the time limit, in seconds, of each partition that has one.
        vcs: virtual clusters, with nodes of their own or quotas.
        site: accounts, priority classes, and how usage fades.
        features: of nodes, by name.
        cells: the cells of machines and virtual clusters, see `CellRules`.
        reservations: nodes that are kept.
        spares: nodes that are only for jobs that have lost a node or a GPU.
        access: whose jobs may be in which partitions.
    """

    partitions: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    longest_s: Mapping[str, float] = field(default_factory=dict)
    vcs: tuple[VirtualCluster, ...] = ()
    site: SiteRules = field(default_factory=SiteRules)
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cells: bytes = b""
    reservations: tuple[Reservation, ...] = ()
    spares: frozenset[str] = frozenset()
    access: PartitionAccess = field(default_factory=PartitionAccess)

    @property
    def has_quotas(self) -> bool:
        """Whether any virtual cluster has a quota of GPUs."""
        return any(vc.gpus >= 0 for vc in self.vcs)


@dataclass(slots=True)
class LiveNode:
    """One node as rounds need it."""

    name: NodeName
    gpus: list[GpuId] = field(default_factory=list)  # by index
    index_of: dict[GpuId, int] = field(default_factory=dict)
    gpu_type: str = ANY_TYPE
    gpu_types: tuple[str, ...] = ()  # of each GPU by index, in small letters, of several types
    facts: NodeFacts = NodeFacts()
    host_cpus: float = 0.0  # that jobs without GPUs hold
    host_memory_gb: float = 0.0
    nvlink: tuple[int, ...] = ()  # the number of each GPU's NVLink domain, by index
    status: NodeStatus = NodeStatus.UP
    drained: bool = False
    late: bool = False
    gone: int = 0  # GPUs that it no longer has, as bits
    shut: dict[str, int] = field(default_factory=dict)  # bits by why: quarantined, unhealthy, …

    @property
    def closed(self) -> int:
        """The GPUs that no job may start on, as bits."""
        mask = self.gone
        for bits in self.shut.values():
            mask |= bits
        return mask

    @property
    def is_open(self) -> bool:
        """Whether the node may get new runs."""
        return self.status is NodeStatus.UP and not self.drained and not self.late

    def types_of(self, gpus: Iterable[GpuId]) -> tuple[str, ...]:
        """The types of some GPUs, in small letters; nothing where all of the node have one."""
        type_of = dict(zip(self.gpus, self.gpu_types, strict=False))  # of those that are described
        return tuple(type_of.get(gpu, "") for gpu in gpus) if type_of else ()

    def may_give(self, wanted: ByType, gpus: int = -1) -> bool:
        """Whether it has, among some of its GPUs, as bits, so many of each type."""
        return has_each(gpus, masks_by_type(self.gpu_types), wanted)

    def mask(self, gpus: Iterable[GpuId]) -> int:
        """Some GPUs as bits; GPUs that the node never had are left out."""
        bits = 0
        for gpu in gpus:
            if gpu in self.index_of:
                bits |= 1 << self.index_of[gpu]
        return bits


class LiveNodes:
    """All nodes that have registered, by index.

    Attributes:
        version: grows when the cluster gets other nodes, GPUs or facts about them.
        gpu_use: what runs hold.
    """

    def __init__(self) -> None:
        self._all: list[LiveNode] = []
        self._index: dict[str, int] = {}
        self.version = 0
        self.gpu_use = GpuUse()

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> LiveNode:
        return self._all[index]

    def all(self) -> list[LiveNode]:
        """Every node, by index."""
        return list(self._all)

    def index(self, name: str) -> int | None:
        """The index of a node, None for one that never registered."""
        return self._index.get(name)

    def get(self, name: str) -> LiveNode | None:
        """A node by name, None for one that never registered."""
        index = self._index.get(name)
        return None if index is None else self._all[index]

    @property
    def names(self) -> list[str]:
        """The names of all nodes, by index."""
        return [node.name for node in self._all]

    def register(
        self, name: NodeName, gpus: Sequence[GpuId], gpu_type: str | None = None
    ) -> LiveNode:
        """Enter a node, or the GPUs that it has now.

        `gpu_type` is empty when its GPUs are of several types; None: it stays as it was.
        """
        node = self.get(name)
        if node is None:
            node = LiveNode(name)
            self._index[name] = len(self._all)
            self._all.append(node)
            self.version += 1
        for gpu in gpus:
            if gpu not in node.index_of:
                node.index_of[gpu] = len(node.gpus)
                node.gpus.append(gpu)
                self.version += 1
        node.gone = ((1 << len(node.gpus)) - 1) & ~node.mask(gpus)
        if gpu_type is not None and (gpu_type or ANY_TYPE) != node.gpu_type:
            node.gpu_type = gpu_type or ANY_TYPE
            self.version += 1
        return node

    def describe(self, name: str, facts: Mapping[str, object]) -> None:
        """Note facts about a node: its GPUs' type, its `NodeFacts`; links and types by GPU."""
        node = self.get(name)
        if node is None:
            return
        kind = facts.get("gpu_type")
        if isinstance(kind, str) and kind not in ("", node.gpu_type):
            node.gpu_type = kind
            self.version += 1
        said: dict[str, Any] = {
            key: float(value) if isinstance(value, int) else value
            for key in ROWS
            if isinstance(value := facts.get(key), str | int | float) and value
        }
        if any(getattr(node.facts, key) != value for key, value in said.items()):
            node.facts = replace(node.facts, **said)
            self.version += 1
        type_of = facts.get("gpu_types")
        if isinstance(type_of, Mapping):
            types = tuple(str(type_of.get(gpu, "")) for gpu in node.gpus)
            types = types if len({*type_of.values()} - {""}) > 1 else ()
            if types != node.gpu_types:
                node.gpu_types = types
                self.version += 1
        domain_of = facts.get("nvlink")
        if isinstance(domain_of, Mapping) and all(gpu in domain_of for gpu in node.gpus):
            domains = tuple(int(domain_of[gpu]) for gpu in node.gpus)
            if domains != node.nvlink:
                node.nvlink = domains
                self.version += 1

    @property
    def has_host_use(self) -> bool:
        """Whether jobs without GPUs hold anything."""
        return any(node.host_cpus or node.host_memory_gb for node in self._all)

    def set_host_use(self, held: Mapping[int, tuple[float, float]]) -> None:
        """Note the processors and GB that jobs without GPUs hold, by node index."""
        for index, node in enumerate(self._all):
            cpus, memory = held.get(index, (0.0, 0.0))
            if (cpus, memory) != (node.host_cpus, node.host_memory_gb):
                node.host_cpus, node.host_memory_gb = cpus, memory
                self.version += 1

    def set_drained(self, name: str, drained: bool) -> None:
        """Note that a node is drained, or no longer."""
        node = self.get(name)
        if node is not None:
            node.drained = drained

    def observe(
        self,
        name: NodeName,
        *,
        late: bool | None = None,
        unhealthy: Iterable[GpuId] | None = None,
        foreign: Iterable[GpuId] | None = None,
    ) -> bool:
        """Note what is seen of a node and not stored; None leaves a fact as it is.

        Args:
            name: of the node.
            late: whether it has been silent for too long.
            unhealthy: its GPUs that report errors.
            foreign: its GPUs that processes outside of jobs use.

        Returns:
            whether this changes where jobs may start.
        """
        node = self.get(name)
        if node is None:
            return False
        before = (node.late, node.closed)
        if late is not None:
            node.late = late
        for why, gpus in (("unhealthy", unhealthy), ("foreign", foreign)):
            if gpus is not None:
                node.shut[why] = node.mask(gpus)
        return before != (node.late, node.closed)

    def refresh(self, ledger: Ledger, name: NodeName) -> None:
        """Bring a node to what the ledger has: its GPUs, status, and which are closed."""
        known = ledger.nodes.get(name)
        if known is None:
            return
        node = self.register(name, known.gpus)
        node.status = known.status
        orphans = [o.held.gpus for (where, _), o in ledger.orphans.items() if where == name]
        node.shut["quarantined"] = node.mask(known.quarantined)
        node.shut["orphans"] = node.mask(gpu for gpus in orphans for gpu in gpus)
        node.shut["next runs"] = 0
        for run in ledger.runs_on(name):
            if run.follows is not None:
                before = ledger.runs.get(run.follows)  # none, where it was over at a restart
                has = None if before is None or before.is_over else before.members.get(name)
                mine = 0 if has is None else node.mask(has.gpus)
                node.shut["next runs"] |= node.mask(run.members[name].gpus) & ~mine

    def placement(self, shares: Iterable[Share]) -> Placement:
        """Shares as node indices and bits; what `shares` undoes. Unknown GPUs are left out."""
        found: list[tuple[int, int]] = []
        by_name, last = True, ""
        for share in shares:
            index = self._index.get(share.node)
            mask = 0 if index is None else self._all[index].mask(share.gpus)
            if index is not None and (mask or not share.gpus):
                by_name = by_name and (not last or natural(last) < natural(share.node))
                last = share.node
                found.append((index, mask))
        if by_name:
            found.sort()
        return Placement(tuple(node for node, _ in found), tuple(mask for _, mask in found))

    def shares(self, placement: Placement) -> tuple[Share, ...]:
        """A placement as shares, in rank order, GPUs ascending.

        Ascending nodes, which nodes have in the order in which they joined, are ordered by name.
        """
        found = [
            Share(
                node=self._all[index].name,
                gpus=tuple(g for k, g in enumerate(self._all[index].gpus) if mask >> k & 1),
            )
            for index, mask in zip(placement.nodes, placement.masks, strict=True)
        ]
        if list(placement.nodes) == sorted(placement.nodes):
            found.sort(key=lambda share: natural(share.node))
        return tuple(found)

    def place_of(self, run: Run) -> Place:
        """Where a run is; its GPU type is empty when it is unknown, or there are several."""
        nodes = [self.get(name) for name in run.members]
        types = {"" if node is None else node.gpu_type for node in nodes}
        gpus = sum(len(member.gpus) for member in run.members.values())
        return Place(types.pop() if len(types) == 1 else "", len(run.members), gpus)

    def names_of(self, placement: Placement) -> str:
        """The names of a placement's nodes, with commas between them."""
        return ", ".join(self._all[index].name for index in placement.nodes)

    def out_of_service(self, placement: Placement) -> str:
        """Why no run may start on some GPUs, whatever is free; empty when runs may."""
        for index, mask in zip(placement.nodes, placement.masks, strict=True):
            node = self._all[index]
            if not node.is_open:
                return f"{node.name} takes no new runs"
            if mask & node.closed:
                return f"a GPU of {node.name} is out of service"
        return ""

    def is_closed(self, placement: Placement) -> bool:
        """Whether a node is drained or down, or a GPU out of service; silence is no reason."""
        parts = [(self._all[k], mask) for k, mask in zip(*placement, strict=True)]
        return any(
            node.drained or node.status is not NodeStatus.UP or mask & node.closed
            for node, mask in parts
        )

    def hindrance(self, placement: Placement, share: float) -> str:
        """Why a run that needs a share of each GPU cannot start there now; empty when it can."""
        shut = self.out_of_service(placement)
        if not shut and not self.gpu_use.has_room(placement, share):
            return f"a GPU of {self.names_of(placement)} is still held"
        return shut


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key by which n2 comes before n10."""
    pieces = re.findall(r"[0-9]+|[^0-9]+", name)
    return tuple((0, int(piece)) if piece.isdigit() else (1, piece) for piece in pieces)
