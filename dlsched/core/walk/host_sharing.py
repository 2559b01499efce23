"""How rows get processors and memory of their nodes, where a part of the round decides that.

A row is offered its best share. Where no free GPUs have that beside them, it is content with its
least. Where not even that is there, rows that were served before give up what is above their own
least (Synergy, OSDI 2022, section 4). So no row waits for processors while GPUs are idle, and none
has less than its least.

At the end of a full decision the shares of all rows on GPUs are settled anew, by rank, since rows
may have left. Shares change while rows run; GPUs do not.

Invariant: no node gives more than it has, as long as the least shares of its GPUs fit into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlsched.core.allocation import HostShare, Refused
from dlsched.core.arrays import kinds_of
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.host_shares import HostPolicy
from dlsched.core.walk.host_sharing_anew import (
    HAIR,
    Nodes,
    gives_up,
    lower_of,
    shortage,
    where_room_is_made,
)

if TYPE_CHECKING:
    from dlsched.core.walk.walk import Walk

NOTHING = HostShare(0.0, 0.0)


class HostSharing:
    """The shares of rows in one decision."""

    def __init__(self, walk: Walk, policy: HostPolicy[object]) -> None:
        """Ask the part what the active rows want."""
        self._walk, self._policy = walk, policy
        units = walk.ctx.units
        demand = policy.demand(units, walk.ctx)
        first, kind = kinds_of(*demand.best.T, *demand.least.T)
        each = zip(demand.best[first].tolist(), demand.least[first].tolist(), strict=True)
        pairs = [(HostShare(*best), HostShare(*least)) for best, least in each]
        wanted = [pairs[number] for number in kind.tolist()]
        self._wanted: dict[int, tuple[HostShare, HostShare]]
        self._wanted = dict(zip(units.rows.tolist(), wanted, strict=True))
        self._on_node: dict[int, dict[int, int]] | None = None  # rows with their GPUs; not yet seen
        self._served = 0  # rows that came in one go, with shares that they want

    def wanted(self, row: int) -> tuple[HostShare, HostShare]:
        """The best and the least share of a row."""
        return self._wanted[row]

    def note(self, row: int, placement: Placement, sign: int) -> None:
        """A row has got GPUs (+1) or lost them (-1)."""
        if self._on_node is None:
            return
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            there = self._on_node.setdefault(node, {})
            if sign > 0:
                there[row] = mask.bit_count()
            else:
                there.pop(row, None)

    def _rows_on(self, node: int) -> dict[int, int]:
        """The rows on a node with their GPUs there, in order of service."""
        if self._on_node is None:
            self._on_node = {}
            for row, placement in self._walk.occupancy.held.items():
                self.note(row, placement, +1)
        return self._on_node.get(node, {})

    # -- all rows anew ----------------------------------------------------------------------------

    def serve_anew(self, rows: Sequence[int]) -> bool:
        """Give all GPUs anew to rows in order, in one go; False where the walk has to do it.

        Rows on GPUs that are not among them have lost theirs before.
        """
        walk = self._walk
        occupancy, ctx = walk.occupancy, walk.ctx
        plain = (
            walk.placement.takes_lowest
            and walk.tenancy is None
            and walk.limits is None
            and walk.claims is None
            and ctx.pools.whole
            and ctx.gpus_are_alike
            and ctx.min_run <= 0
            and ctx.semantics.rejoin
            and not (occupancy.beside or walk.launched)
            and walk.suspended.keys().isdisjoint(rows)
            and occupancy.held.keys() <= set(rows)
        )
        if not plain:
            return False
        free = walk.free_masks(occupancy.open_nodes)
        for placement in occupancy.held.values():
            for node, mask in zip(placement.nodes, placement.masks, strict=True):
                free[node] |= mask
        cluster = occupancy.cluster
        nodes = Nodes(
            free=free,
            cpus=cluster.cpus.tolist(),
            memory_gb=cluster.memory_gb.tolist(),
            wanted=self._wanted,
            takes=self._policy.takes_from_peers,
            spares=self._policy.spares_peers,
        )
        for row in nodes.fill(rows, walk.table.gang[rows].tolist()):
            walk.refuse(row, self._lacks(row, walk.table.gang.item(row)))
        walk.replace_all(nodes.placements, nodes.shares)
        self._served = len(walk.launched)
        return True

    def _lacks(self, row: int, gpus: int) -> Refused:
        """The refusal of a row for which there are enough free GPUs, but too little beside them."""
        cpus, memory = self._wanted[row][1 if self._policy.takes_from_peers else 0]
        return Refused(
            "Resources",
            f"needs {gpus} free GPUs with {cpus:g} CPUs and {memory:g} GB of memory for each",
        )

    # -- a row that waits -------------------------------------------------------------------------

    def place(self, row: int, gpus: int, nodes: int, *, returns: bool) -> Placement | Refused:
        """Give a waiting row GPUs that have its best share beside them, or else its least.

        Args:
            row: the unit.
            gpus: how many.
            nodes: only on these nodes, as bits.
            returns: may it have its own GPUs back?
        """
        walk = self._walk
        open_nodes = walk.ctx.pools.nodes[walk.table.pool.item(row)] & nodes
        free = walk.occupancy.free_in(open_nodes & walk.occupancy.open_nodes)
        if gpus > free:
            return Refused.too_few_free(gpus, free)
        best, least = self._wanted[row]
        takes = self._policy.takes_from_peers
        start = walk.mark()
        walk.give(row, best)
        placed = walk.place_anywhere(row, gpus, nodes, returns=returns)
        if isinstance(placed, Placement):
            return placed
        if takes and least != best:
            walk.give(row, least)
            placed = walk.place_anywhere(row, gpus, nodes, returns=returns)
            if isinstance(placed, Placement):
                return placed
        if takes:
            usable = open_nodes & walk.occupancy.open_nodes
            level = [nodes & usable for nodes in walk.occupancy.level]
            for node, count in where_room_is_made(level, gpus):
                self._take_from_peers(node, least, count)
            placed = walk.place_anywhere(row, gpus, nodes, returns=returns)
            if isinstance(placed, Placement):
                return placed
        walk.rollback(start)
        if placed.reason == "Resources":
            return self._lacks(row, gpus)
        return placed

    def _take_from_peers(self, node: int, share: HostShare, gpus: int) -> None:
        """Let rows on a node give up what is above their least, until a share for GPUs is free."""
        host = self._walk.host
        short = shortage(share, gpus, (host.cpus[node], host.memory_gb[node]))
        if short is None:
            return
        for row in self._richest_first(node):
            least, has = self._wanted[row][1], self._walk.share_of(row)
            count = self._rows_on(node)[row]
            after = gives_up(has, least, count, short, spares=self._policy.spares_peers)
            if after is None:
                continue
            self._walk.give(row, lower_of(has, least))
            if max(after) <= HAIR:
                return
            short = after

    def _richest_first(self, node: int) -> list[int]:
        """Rows on a node: those on the fewest nodes first, then those with most for each GPU."""
        walk = self._walk
        held = walk.occupancy.held

        def key(row: int) -> tuple[int, float, float]:
            cpus, memory = walk.share_of(row)
            return len(held[row].nodes), -cpus, -memory

        return sorted(self._rows_on(node), key=key)

    # -- all rows on GPUs -------------------------------------------------------------------------

    def settle(self) -> None:
        """Settle the shares of all rows on GPUs, by rank; not where all were just placed anew."""
        walk, policy = self._walk, self._policy
        held, full = walk.occupancy.held, walk.ctx.mode == "full"
        fed = len(walk.launched) == self._served or all(
            walk.share_of(row) in self._wanted[row] for row in walk.launched
        )
        if fed and (not full or (walk.is_anew and not policy.decides_together)):
            return
        rows = [row for row in self._ranked() if row in held]
        if not rows:
            return
        for row in rows:
            walk.give(row, NOTHING)
        if policy.decides_together:
            shares = policy.best_for_all(rows, [held[row] for row in rows], walk.ctx)
            for row, share in zip(rows, shares, strict=True):
                walk.give(row, share)
            return
        for row in rows:
            self._serve(row, held[row])

    def _ranked(self) -> list[int]:
        """Active rows, best first, as far as the policy has said."""
        active: list[int] = self._walk.ctx.active.tolist()
        order = self._walk.order_so_far
        return active if order is None else list(dict.fromkeys([*order.tolist(), *active]))

    def _serve(self, row: int, placement: Placement) -> None:
        """Give a row on its GPUs what is there: its best, or else its least."""
        best, least = self._wanted[row]
        if self._walk.host.has_room(best, placement):
            self._walk.give(row, best)
            return
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            self._take_from_peers(node, least, mask.bit_count())
        self._walk.give(row, least)
