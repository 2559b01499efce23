"""Which row holds which GPU, right now.

Sets of GPUs and of nodes are the bits of integers: bit g of `free[node]` says that GPU g of that
node is free, bit n of `level[k]` that node n is in service with exactly k free GPUs. So "the first
node with room for 4" is a look at a few integers, whatever the size of the cluster.

Invariant: a GPU is free, held by one holder (or by several that share all their GPUs), reserved,
closed, or out of service; `level` always agrees with `free`. Rows that use what holders leave count
for nothing in this. Every change goes through `take`, `add_opportunistic`, `join`, `release`,
`reserve`, `unreserve`, `set_service`, `close` and `reopen`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dlsched.core.arrays import Ints
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import InvariantBroken


class Placement(NamedTuple):
    """Exact GPUs: for each node (ascending, or in rank order) the bits of its GPUs."""

    nodes: tuple[int, ...]
    masks: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """How many GPUs."""
        if len(self.masks) == 1:  # by far the most frequent case
            return self.masks[0].bit_count()
        return sum(mask.bit_count() for mask in self.masks)

    @classmethod
    def of_gpu_ids(cls, ids: Iterable[int], cluster: Cluster) -> Placement:
        """The GPUs of global ids."""
        masks: dict[int, int] = {}
        for gpu in sorted(ids):
            node = cluster.node_of_gpu(gpu)
            masks[node] = masks.get(node, 0) | 1 << gpu - cluster.first_gpu.item(node)
        return cls(tuple(masks), tuple(masks.values()))

    def gpu_ids(self, cluster: Cluster) -> list[int]:
        """Global GPU ids, node by node, ascending inside a node."""
        ids: list[int] = []
        for node, mask in zip(self.nodes, self.masks, strict=True):
            first = int(cluster.first_gpu[node])
            ids.extend(first + g for g in range(mask.bit_length()) if mask >> g & 1)
        return ids


def lowest_bits(mask: int, count: int) -> int:
    """The lowest `count` set bits of `mask` (which must have that many)."""
    if mask.bit_count() == count:
        return mask
    taken = 0
    for _ in range(count):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken


def lowest_node(nodes: int) -> int:
    """The lowest node of a non-empty set of nodes."""
    return (nodes & -nodes).bit_length() - 1


class Occupancy:
    """The GPUs of a cluster and their holders (rows of a UnitTable).

    Attributes:
        free: per node, the free GPUs as bits (0 for a node out of service).
        level: `level[k]` is the set of nodes in service that have exactly k free GPUs.
        held: the holder's placement, by row.
        beside: the other holders of the very same GPUs, ascending, by row; only rows that have any.
        opportunistic: rows of `held` that only use what the holders of their GPUs leave: these are
            as free as without them.
        reserved: GPUs kept for a row until it takes them, by row.
        closed: single GPUs that no row gets, as bits by node (broken, or used by others).
        version: grows with every change.
    """

    __slots__ = (
        "_bit", "_blocked", "_free_gpus", "beside", "closed", "cluster", "draining", "free",
        "free_total", "held", "in_service", "level", "opportunistic", "reserved", "type_of",
        "version",
    )  # fmt: skip

    def __init__(self, cluster: Cluster, in_service: int | None = None) -> None:
        self.cluster = cluster
        count = len(cluster)
        self.in_service = (1 << count) - 1 if in_service is None else in_service
        self._bit = [1 << node & self.in_service for node in range(count)]  # 0: out of service
        self.draining = 0
        self.type_of: Ints = cluster.node_type.copy()  # a node may be refitted with another type
        self.free = [0] * count
        self._free_gpus = [0] * count  # how many of each node
        self.level = [0] * (cluster.largest_node + 1)
        self.held: dict[int, Placement] = {}
        self.beside: dict[int, tuple[int, ...]] = {}
        self.opportunistic: dict[int, Placement] = {}
        self.reserved: dict[int, Placement] = {}
        self.closed: dict[int, int] = {}
        self._blocked = [0] * count  # reserved and closed GPUs, free or still held
        self.free_total = 0
        self.version = 0
        for node in range(count):
            if self.in_service >> node & 1:
                gpus = self._free_gpus[node] = int(cluster.gpus[node])
                self.free[node] = (1 << gpus) - 1
                self.level[gpus] |= self._bit[node]
                self.free_total += gpus

    def copy(self) -> Occupancy:
        """A twin that can be changed without touching this one."""
        twin = object.__new__(Occupancy)
        twin.cluster, twin._bit = self.cluster, self._bit[:]
        twin.in_service, twin.draining = self.in_service, self.draining
        twin.type_of, twin.free, twin.level = self.type_of.copy(), self.free[:], self.level[:]
        twin.held, twin.reserved = dict(self.held), dict(self.reserved)
        twin.closed, twin.beside = dict(self.closed), dict(self.beside)
        twin.opportunistic = dict(self.opportunistic)
        twin._blocked, twin._free_gpus = self._blocked[:], self._free_gpus[:]
        twin.free_total, twin.version = self.free_total, self.version
        return twin

    # -- what is free -----------------------------------------------------------------------------

    @property
    def open_nodes(self) -> int:
        """Nodes that may get new work: in service and not draining."""
        return self.in_service & ~self.draining

    def free_in(self, nodes: int) -> int:
        """Free GPUs in a set of nodes (those that may get new work)."""
        nodes &= self.open_nodes
        return sum(k * (members & nodes).bit_count() for k, members in enumerate(self.level) if k)

    @property
    def kept_idle(self) -> int:
        """GPUs in service that are reserved and that no row holds."""
        if not self.reserved:
            return 0
        nodes = tuple(node for node in range(len(self._blocked)) if self.in_service >> node & 1)
        holders = self._held_bits(nodes)
        idle = sum((self._blocked[node] & ~holders[node]).bit_count() for node in nodes)
        return idle - sum((self.closed.get(n, 0) & ~holders[n]).bit_count() for n in nodes)

    def capacity_in(self, nodes: int) -> int:
        """GPUs, free or held, of the nodes in service in a set; closed ones do not count."""
        serving = nodes & self.in_service
        shut = sum(mask.bit_count() for n, mask in self.closed.items() if serving >> n & 1)
        if serving == (1 << len(self.cluster)) - 1:
            return self.cluster.total_gpus - shut
        gpus = self.cluster.gpus
        return int(sum(int(gpus[n]) for n in range(len(self.cluster)) if serving >> n & 1)) - shut

    # -- changes ----------------------------------------------------------------------------------

    def _set_free(self, node: int, mask: int) -> None:
        before, after, bit = self._free_gpus[node], mask.bit_count(), self._bit[node]
        self.free[node], self._free_gpus[node] = mask, after
        if before != after and bit:
            self.level[before] ^= bit
            self.level[after] ^= bit
            self.free_total += after - before

    def _check_distinct(self, row: int, placement: Placement) -> None:
        nodes = placement.nodes
        if len(nodes) > 1 and len(set(nodes)) < len(nodes):
            raise InvariantBroken(
                f"row {row} was given GPUs that are not free: its placement names a node twice"
            )

    def take(self, row: int, placement: Placement) -> None:
        """Give the GPUs of `placement` to `row`.

        Raises:
            InvariantBroken: the row holds GPUs already, or one of the GPUs is not free.
        """
        if row in self.held:
            raise InvariantBroken(f"row {row} holds GPUs already and was given more")
        free = self.free
        if len(placement.nodes) > 1:
            self._check_distinct(row, placement)
        for node, mask in zip(*placement, strict=True):
            if mask & ~free[node] or not mask:
                raise InvariantBroken(
                    f"row {row} was given GPUs of node {self.cluster.names[node]} that are not free"
                )
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            self._set_free(node, free[node] ^ mask)
        self.held[row] = placement
        self.version += 1

    def join(self, row: int, holder: int) -> Placement:
        """Give `row` the very GPUs that `holder` has; they stay taken until the last has left.

        Raises:
            InvariantBroken: the row holds GPUs already, or the holder none.
        """
        if row in self.held:
            raise InvariantBroken(f"row {row} holds GPUs already and was given more")
        if holder not in self.held:
            raise InvariantBroken(
                f"row {row} was to share the GPUs of row {holder}, which has none"
            )
        self._set_partners((row, holder, *self.beside.get(holder, ())))
        self.held[row] = self.held[holder]
        self.version += 1
        return self.held[row]

    def add_opportunistic(self, row: int, placement: Placement) -> None:
        """Let `row` use what the holders of GPUs leave; the GPUs stay as free as they are.

        Raises:
            InvariantBroken: the row holds GPUs already, or one of the GPUs does not exist or is out
                of service.
        """
        if row in self.held:
            raise InvariantBroken(f"row {row} holds GPUs already and was given more")
        self._check_distinct(row, placement)
        for node, mask in zip(*placement, strict=True):
            exists = (1 << int(self.cluster.gpus[node])) - 1
            if mask & ~exists or not mask or not self.in_service >> node & 1:
                raise InvariantBroken(f"row {row} was to use GPUs that are not in service")
        self.held[row] = self.opportunistic[row] = placement
        self.version += 1

    def is_free(self, placement: Placement) -> bool:
        """Are these very GPUs free?"""
        return all(not mask & ~self.free[node] for node, mask in zip(*placement, strict=True))

    def promote(self, row: int) -> None:
        """A row that used what others left holds its GPUs from now on.

        Raises:
            InvariantBroken: one of them is not free.
        """
        placement = self.release(row)
        try:
            self.take(row, placement)
        except InvariantBroken:
            self.add_opportunistic(row, placement)
            raise

    def demote(self, row: int) -> None:
        """Undo a promotion: the row's GPUs are free for others again."""
        self.add_opportunistic(row, self.release(row))

    def partners(self, row: int) -> tuple[int, ...]:
        """The other rows on any GPU of a row, ascending."""
        beside = self.beside.get(row, ())
        if not self.opportunistic:
            return beside
        mine = dict(zip(*self.held[row], strict=True))
        others = self.held if row in self.opportunistic else self.opportunistic
        there = (
            other
            for other, placement in others.items()
            if any(mine.get(n, 0) & mask for n, mask in zip(*placement, strict=True))
        )
        return tuple(sorted({*beside, *there} - {row}))

    def all_partners(self) -> dict[int, tuple[int, ...]]:
        """The partners of each row that has any."""
        if not self.opportunistic:
            return self.beside
        found = dict(self.beside)
        for row in self.opportunistic:
            found[row] = self.partners(row)
            for other in found[row]:
                if other not in self.opportunistic:
                    found[other] = tuple(sorted({*found.get(other, ()), row}))
        return {row: others for row, others in found.items() if others}

    @property
    def used_unheld(self) -> int:
        """GPUs that rows use though no row holds them."""
        if not self.opportunistic:
            return 0
        used: dict[int, int] = {}
        for placement in self.opportunistic.values():
            for node, mask in zip(*placement, strict=True):
                used[node] = used.get(node, 0) | mask
        holders = self._held_bits(tuple(used))
        return sum((mask & ~holders[node]).bit_count() for node, mask in used.items())

    @property
    def used_again(self) -> int:
        """GPUs that rows use beside others, each as often as it is used once more."""
        return sum(placement.gpus for placement in self.opportunistic.values()) - self.used_unheld

    def _set_partners(self, rows: tuple[int, ...]) -> None:
        for row in rows:
            others = tuple(sorted(other for other in rows if other != row))
            if others:
                self.beside[row] = others
            else:
                self.beside.pop(row, None)

    def release(self, row: int) -> Placement:
        """Take back all GPUs of `row`; reserved ones stay closed to others."""
        placement = self.held.pop(row)
        if self.opportunistic and self.opportunistic.pop(row, None) is not None:
            self.version += 1
            return placement
        if row in self.beside:  # the others keep them
            self._set_partners(self.beside.pop(row))
            self.version += 1
            return placement
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if self._bit[node]:
                self._set_free(node, self.free[node] | (mask & ~self._blocked[node]))
        self.version += 1
        return placement

    def exchange(
        self, leaving: Iterable[int], coming: Mapping[int, Placement]
    ) -> dict[int, Placement]:
        """Take back the GPUs of some rows and give free ones to others, all at once.

        None of them shares GPUs. Returns what those that leave had.

        Raises:
            InvariantBroken: a row holds GPUs already, or one of the GPUs is not free; nothing has
                changed then.
        """
        held, blocked = self.held, self._blocked
        before = {row: held[row] for row in leaving}
        free: dict[int, int] = {}  # of the nodes concerned
        for nodes, masks in before.values():
            for node, mask in zip(nodes, masks, strict=True):
                free[node] = free.get(node, self.free[node]) | (mask & ~blocked[node])
        for row, placement in coming.items():
            if row in held and row not in before:
                raise InvariantBroken(f"row {row} holds GPUs already and was given more")
            nodes, masks = placement
            if len(nodes) > 1:
                self._check_distinct(row, placement)
            for node, mask in zip(nodes, masks, strict=True):
                idle = free.get(node, self.free[node])
                if mask & ~idle or not mask:
                    name = self.cluster.names[node]
                    raise InvariantBroken(
                        f"row {row} was given GPUs of node {name} that are not free"
                    )
                free[node] = idle ^ mask
        for row in before:
            del held[row]
        held.update(coming)
        for node, mask in free.items():
            if mask != self.free[node]:
                self._set_free(node, mask)
        self.version += 1
        return before

    def take_again(self, row: int, placement: Placement) -> None:
        """Undo a release: the GPUs are free, reserved, or held by a former partner."""
        if placement.masks[0] & ~self.free[placement.nodes[0]]:  # they are held, or reserved
            for other, theirs in self.held.items():
                if theirs == placement and other not in self.opportunistic:
                    self.join(row, other)
                    return
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            self._set_free(node, self.free[node] & ~mask)
        self.held[row] = placement
        self.version += 1

    def reserve(self, row: int, placement: Placement) -> None:
        """Keep GPUs for `row`, whether free now or still held by others who are leaving.

        Raises:
            InvariantBroken: one of them is reserved already or does not exist, or the row has a
                reservation.
        """
        if row in self.reserved:
            raise InvariantBroken(f"row {row} has a reservation already and reserves more")
        self._check_distinct(row, placement)
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if mask >> int(self.cluster.gpus[node]):
                raise InvariantBroken(f"row {row} reserves GPUs that do not exist")
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if mask & self._blocked[node]:
                raise InvariantBroken(f"row {row} reserves GPUs that are reserved already")
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            self._blocked[node] |= mask
            self._set_free(node, self.free[node] & ~mask)
        self.reserved[row] = placement
        self.version += 1

    def unreserve(self, row: int) -> Placement:
        """Open a reservation again: GPUs that no row holds become free."""
        placement = self.reserved.pop(row)
        holders = self._held_bits(placement.nodes)
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            self._blocked[node] &= ~mask
            if self.in_service >> node & 1:
                self._set_free(node, self.free[node] | (mask & ~holders[node]))
        self.version += 1
        return placement

    def _held_bits(self, nodes: tuple[int, ...]) -> dict[int, int]:
        bits = dict.fromkeys(nodes, 0)
        for row, placement in self.held.items():
            if row in self.opportunistic:
                continue
            for node, mask in zip(placement.nodes, placement.masks, strict=True):
                if node in bits:
                    bits[node] |= mask
        return bits

    def set_service(self, node: int, *, serving: bool) -> None:
        """Put a node into service or take it out; no row may hold GPUs of a node that leaves."""
        bit = 1 << node
        if bool(self.in_service & bit) == serving:
            return
        if self.rows_on(node):
            raise InvariantBroken(
                f"node {self.cluster.names[node]} leaves while jobs hold its GPUs"
            )
        if serving:
            self.in_service |= bit
            self._bit[node] = bit
            self.free[node] = self._free_gpus[node] = 0
            self.level[0] |= bit
            self._set_free(node, ((1 << int(self.cluster.gpus[node])) - 1) & ~self._blocked[node])
        else:
            self._set_free(node, 0)
            self.level[0] &= ~bit
            self.in_service &= ~bit
            self._bit[node] = 0
        self.version += 1

    def close(self, node: int, mask: int) -> None:
        """Take single GPUs of a node away; a row that holds one keeps it until it leaves.

        Raises:
            InvariantBroken: one of them is reserved.
        """
        mask &= ~self.closed.get(node, 0)
        if mask & self._blocked[node]:
            raise InvariantBroken(f"node {self.cluster.names[node]}: a reserved GPU is closed")
        if mask:
            self.closed[node] = self.closed.get(node, 0) | mask
            self._blocked[node] |= mask
            self._set_free(node, self.free[node] & ~mask)
            self.version += 1

    def reopen(self, node: int, mask: int) -> None:
        """Give closed GPUs back to the rows; those of a node out of service come with it."""
        mask &= self.closed.get(node, 0)
        if not mask:
            return
        self.closed[node] &= ~mask
        if not self.closed[node]:
            del self.closed[node]
        self._blocked[node] &= ~mask
        if self.in_service >> node & 1:
            held = self._held_bits((node,))[node]
            self._set_free(node, self.free[node] | (mask & ~held))
        self.version += 1

    def set_draining(self, node: int, *, draining: bool) -> None:
        """A draining node keeps its jobs but gets no new ones."""
        bit = 1 << node
        self.draining = self.draining | bit if draining else self.draining & ~bit
        self.version += 1

    def rows_on(self, node: int) -> list[int]:
        """Rows that hold GPUs of a node, ascending."""
        return sorted(row for row, placement in self.held.items() if node in placement.nodes)
