"""What a placement sees: one row's request, and the free GPUs it may choose from."""

from __future__ import annotations

import math
from typing import Any

from dlsched.core.cluster.gpus_by_type import ByType, has_each
from dlsched.core.cluster.occupancy import Occupancy, Placement, lowest_bits, lowest_node
from dlsched.core.units import UnitTable


class GpuRequest:
    """A row's request for GPUs.

    Attributes:
        row: its row.
        gang: how many GPUs.
        cpus_per_gpu, memory_per_gpu: NaN when unknown.
    """

    __slots__ = ("_table", "gang", "row")

    def __init__(self, row: int, gang: int, table: UnitTable) -> None:
        self.row = row
        self.gang = gang
        self._table = table

    @property
    def cpus_per_gpu(self) -> float:
        """CPU cores for each GPU of the gang, as given, else as asked; NaN when unknown."""
        given = self._table.gpu_cpus.item(self.row)
        return self._table.cpus.item(self.row) / max(self.gang, 1) if math.isnan(given) else given

    @property
    def memory_per_gpu(self) -> float:
        """GB of host memory for each GPU of the gang, as given, else as asked; NaN when unknown."""
        given = self._table.gpu_memory_gb.item(self.row)
        asked = self._table.memory_gb.item(self.row)
        return asked / max(self.gang, 1) if math.isnan(given) else given

    @property
    def shape(self) -> tuple[int, ...]:
        """GPUs on each of its nodes; empty where they may lie as they come."""
        return self._table.shapes.get(self.row, ())

    @property
    def by_type(self) -> ByType:
        """How many GPUs of each type on every node; empty where the types do not matter."""
        return self._table.gpus_by_type.get(self.row, ())

    @property
    def whole(self) -> bool:
        """Must it have its nodes to itself?"""
        return self.row in self._table.whole_nodes

    @property
    def is_shaped(self) -> bool:
        """Does it matter to the row how its GPUs lie?"""
        table = self._table
        return self.row in table.shapes or self.row in table.whole_nodes

    @property
    def layout(self) -> object:
        """How its GPUs must lie: equal ones compare equal."""
        return self.shape, self.by_type, self.whole

    @property
    def host_needs(self) -> tuple[float, float]:
        """CPU cores and GB of memory for each GPU, -1 when unknown: equal ones compare equal."""
        needs = (self.cpus_per_gpu, self.memory_per_gpu)
        return (
            -1.0 if math.isnan(needs[0]) else needs[0],
            -1.0 if math.isnan(needs[1]) else needs[1],
        )

    @property
    def vc(self) -> str:
        """Its virtual cluster; empty for none."""
        code = int(self._table.vc[self.row])
        return self._table.names["vc"][code] if code >= 0 else ""

    @property
    def priority(self) -> float:
        """Larger goes first; NaN when it says nothing."""
        return float(self._table.priority[self.row])

    def part(self, gang: int) -> GpuRequest:
        """The same row's request for one node's part."""
        return GpuRequest(self.row, gang, self._table)

    def extra(self, column: str) -> Any:
        """A further column of the trace; None when the trace has none of that name."""
        values = self._table.extra.get(column)
        return None if values is None else values[self.row]


class FreeGpus:
    """The free GPUs of a set of nodes, by how many a node has.

    Where CPUs or host memory are tracked, a node counts only as many GPUs as it has free cores and
    memory for.

    Attributes:
        nodes: the nodes that may be used, as bits.
        level: `level[k]` is the set of nodes (not yet limited to `nodes`) with k usable GPUs.
    """

    __slots__ = ("_usable", "level", "nodes", "occupancy")

    def __init__(self, occupancy: Occupancy, nodes: int) -> None:
        self.occupancy = occupancy
        self.nodes = nodes & occupancy.open_nodes
        self.level = occupancy.level
        self._usable: list[int] | None = None

    def limit(self, request: GpuRequest, host: HostResources) -> None:
        """Count only GPUs for which the node has free CPUs and memory."""
        usable = host.usable(request, self.occupancy)
        self._usable, self.level = usable.counts, usable.level

    @property
    def total(self) -> int:
        """Usable free GPUs in all."""
        return sum(k * (m & self.nodes).bit_count() for k, m in enumerate(self.level) if k)

    def with_exactly(self, count: int) -> int:
        """Nodes with exactly so many usable GPUs, as bits."""
        return self.level[count] & self.nodes if count < len(self.level) else 0

    def with_at_least(self, count: int) -> int:
        """Nodes with at least so many usable GPUs, as bits."""
        found = 0
        for members in self.level[count:]:
            found |= members
        return found & self.nodes

    def with_each(self, wanted: ByType) -> int:
        """Nodes with at least so many free GPUs of each type, as bits."""
        free, found = self.occupancy.free, 0
        for node, masks in self.occupancy.cluster.mixed.items():
            if self.nodes >> node & 1 and has_each(free[node], masks, wanted):
                found |= 1 << node
        return found

    def usable_on(self, node: int) -> int:
        """Usable GPUs of one node."""
        return self._usable[node] if self._usable else self.occupancy.free[node].bit_count()

    def idle_nodes(self) -> int:
        """Nodes all of whose GPUs are free, as bits; cores and memory may be for fewer."""
        gpus = self.occupancy.cluster.gpus
        found = 0
        for k, filed in enumerate(self.occupancy.level):
            members = filed & self.nodes
            while k and members:
                node = lowest_node(members)
                members ^= 1 << node
                if gpus[node] == k:
                    found |= 1 << node
        return found

    def one_node(self, node: int, count: int) -> Placement:
        """The lowest free GPUs of one node."""
        return Placement((node,), (lowest_bits(self.occupancy.free[node], count),))

    def across(self, parts: list[tuple[int, int]]) -> Placement:
        """The lowest free GPUs of several nodes, given as (node, count), in that order."""
        free = self.occupancy.free
        nodes = [node for node, _ in parts]  # lists: a generator is called once more for each
        masks = [lowest_bits(free[node], count) for node, count in parts]
        return Placement(tuple(nodes), tuple(masks))

    def across_by_type(self, nodes: list[int], wanted: ByType) -> Placement:
        """The lowest free GPUs of each type, so many on each of several nodes, in that order."""
        masks = []
        for node in nodes:
            free, of_type = self.occupancy.free[node], self.occupancy.cluster.mixed[node]
            masks.append(sum(lowest_bits(free & of_type[kind], n) for kind, n in wanted))
        return Placement(tuple(nodes), tuple(masks))


class UsableGpus:
    """For one need of cores and memory, how many free GPUs of each node it could use.

    Attributes:
        counts: by node.
        level: `level[k]` is the set of nodes with k of them, as bits.
        stale: nodes whose count must be looked at again, as bits.
    """

    __slots__ = ("counts", "level", "stale")

    def __init__(self, nodes: int, levels: int) -> None:
        self.counts = [0] * nodes
        self.level = [0] * levels
        self.level[0] = self.stale = (1 << nodes) - 1


class HostResources:
    """Free CPU cores and host memory per node, where the cluster file gives them.

    A unit that does not say what it needs is held to nothing.
    """

    __slots__ = ("_usable", "cpus", "memory_gb")

    def __init__(self, occupancy: Occupancy, table: UnitTable) -> None:
        self.cpus: list[float] = occupancy.cluster.cpus.tolist()
        self.memory_gb: list[float] = occupancy.cluster.memory_gb.tolist()
        self._usable: dict[tuple[float, float], UsableGpus] = {}
        for row, placement in occupancy.held.items():
            self.change(GpuRequest(row, placement.gpus, table), placement, -1)

    def usable(self, request: GpuRequest, occupancy: Occupancy) -> UsableGpus:
        """Per node how many free GPUs the request could use; what has not changed is kept."""
        needs = request.host_needs
        found = self._usable.get(needs)
        if found is None:
            found = UsableGpus(len(occupancy.free), len(occupancy.level))
            self._usable[needs] = found
        cores, memory = needs
        counts, level, stale, free = found.counts, found.level, found.stale, occupancy.free
        while stale:
            bit = stale & -stale
            stale ^= bit
            node = bit.bit_length() - 1
            count = free[node].bit_count()
            # a hair of tolerance: shares such as 1/3 of a core must add up to the whole
            if count and cores > 0 and self.cpus[node] < count * cores:
                count = max(int(self.cpus[node] / cores + 1e-9), 0)
            if count and memory > 0 and self.memory_gb[node] < count * memory:
                count = max(int(self.memory_gb[node] / memory + 1e-9), 0)
            if count != counts[node]:
                level[counts[node]] ^= bit
                level[count] |= bit
                counts[node] = count
        found.stale = 0
        return found

    def touch(self, placement: Placement) -> None:
        """GPUs of a placement were taken or became free."""
        changed = 0
        for node in placement.nodes:
            changed |= 1 << node
        for each in self._usable.values():
            each.stale |= changed

    def has_host_for(self, request: GpuRequest, placement: Placement) -> bool:
        """Are there cores and memory for a request on every node of a placement?"""
        return self.has_room(request.host_needs, placement)

    def has_room(self, needs: tuple[float, float], placement: Placement) -> bool:
        """Are so many cores and GB free for each GPU of a placement?"""
        return not any(
            need > 0 and free[node] < need * mask.bit_count() - 1e-9  # NaN needs nothing
            for free, need in zip((self.cpus, self.memory_gb), needs, strict=True)
            for node, mask in zip(placement.nodes, placement.masks, strict=True)
        )

    def change(self, request: GpuRequest, placement: Placement, sign: int) -> None:
        """Take (-1) or give back (+1) what the request uses on a placement."""
        cores, memory = request.host_needs
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            gpus = sign * mask.bit_count()
            if cores > 0:
                self.cpus[node] += cores * gpus
            if memory > 0:
                self.memory_gb[node] += memory * gpus
        self.touch(placement)
