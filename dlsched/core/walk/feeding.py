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

from typing import TYPE_CHECKING

from dlsched.core.allocation import HostShare, Refused
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.gpu_request import HostResources
from dlsched.core.host_shares import HostPolicy

if TYPE_CHECKING:
    from dlsched.core.walk.walk import Walk

NOTHING = HostShare(0.0, 0.0)
HAIR = 1e-9  # shares such as 1/3 of a core must add up to the whole


class Feeding:
    """The shares of rows in one decision."""

    def __init__(self, walk: Walk, policy: HostPolicy[object], host: HostResources) -> None:
        """Ask the part what the active rows want."""
        self._walk, self._policy, self._host = walk, policy, host
        units = walk.ctx.units
        demand = policy.demand(units, walk.ctx)
        best = map(HostShare._make, demand.best.tolist())
        least = map(HostShare._make, demand.least.tolist())
        self._wanted: dict[int, tuple[HostShare, HostShare]] = dict(
            zip(units.rows.tolist(), zip(best, least, strict=True), strict=True)
        )
        self._on_node: dict[int, dict[int, int]] = {}  # rows with their GPUs, in order of service
        for row, placement in walk.occupancy.held.items():
            self.note(row, placement, +1)

    def wanted(self, row: int) -> tuple[HostShare, HostShare]:
        """The best and the least share of a row."""
        return self._wanted[row]

    def note(self, row: int, placement: Placement, sign: int) -> None:
        """A row has got GPUs (+1) or lost them (-1)."""
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            there = self._on_node.setdefault(node, {})
            if sign > 0:
                there[row] = mask.bit_count()
            else:
                there.pop(row, None)

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
            for node, count in self._where_room_is_made(
                gpus, open_nodes & walk.occupancy.open_nodes
            ):
                self._take_from_peers(node, least, count)
            placed = walk.place_anywhere(row, gpus, nodes, returns=returns)
            if isinstance(placed, Placement):
                return placed
        walk.rollback(start)
        if placed.reason == "Resources":
            needs = least if takes else best
            return Refused(
                "Resources",
                f"needs {gpus} of {free} free GPUs with {needs.cpus:g} CPUs and "
                f"{needs.memory_gb:g} GB of memory for each",
            )
        return placed

    def _where_room_is_made(self, gpus: int, nodes: int) -> list[tuple[int, int]]:
        """Nodes whose free GPUs a row is to get, with how many.

        One node where there is one (the first), else nodes with the fewest free GPUs first.
        """
        counts = [
            (each.bit_count(), node)
            for node, each in enumerate(self._walk.occupancy.free)
            if each and nodes >> node & 1
        ]
        if gpus > 1:
            for count, node in counts:
                if count >= gpus:
                    return [(node, gpus)]
        chosen = []
        for count, node in sorted(counts):
            chosen.append((node, min(count, gpus)))
            gpus -= min(count, gpus)
            if not gpus:
                break
        return chosen

    def _take_from_peers(self, node: int, share: HostShare, gpus: int) -> None:
        """Let rows on a node give up what is above their least, until a share for GPUs is free."""
        has_free = (self._host.cpus[node], self._host.memory_gb[node])
        short = [
            max(0.0, need * gpus - free) if need > 0 else 0.0  # NaN needs nothing
            for need, free in zip(share, has_free, strict=True)
        ]
        if not any(each > HAIR for each in short):
            return
        for row in self._richest_first(node):
            least, has = self._wanted[row][1], self._walk.share_of(row)
            count = self._on_node[node][row]
            above = [max(0.0, a - b) * count for a, b in zip(has, least, strict=True)]
            helps = any(s > HAIR and a > HAIR for s, a in zip(short, above, strict=True))
            if self._policy.spares_peers and not helps:
                continue
            self._walk.give(row, _lower(has, least))
            short = [max(0.0, s - a) for s, a in zip(short, above, strict=True)]
            if not any(each > HAIR for each in short):
                return

    def _richest_first(self, node: int) -> list[int]:
        """Rows on a node: those on the fewest nodes first, then those with most for each GPU."""
        walk = self._walk
        held = walk.occupancy.held

        def key(row: int) -> tuple[int, float, float]:
            cpus, memory = walk.share_of(row)
            return len(held[row].nodes), -cpus, -memory

        return sorted(self._on_node.get(node, ()), key=key)

    # -- all rows on GPUs -------------------------------------------------------------------------

    def settle(self) -> None:
        """Settle the shares of all rows on GPUs, by rank; not where all were just placed anew."""
        walk, policy = self._walk, self._policy
        held, full = walk.occupancy.held, walk.ctx.mode == "full"
        fed = all(walk.share_of(row) in self._wanted[row] for row in walk.launched)
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
        if self._host.has_room(best, placement):
            self._walk.give(row, best)
            return
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            self._take_from_peers(node, least, mask.bit_count())
        self._walk.give(row, least)


def _lower(has: HostShare, least: HostShare) -> HostShare:
    """A share without what is above the least."""
    return HostShare(min(has.cpus, least.cpus), min(has.memory_gb, least.memory_gb))
