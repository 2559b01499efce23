"""Jobs that need only part of a GPU, co-located under policies that think of whole GPUs.

A unit may say which part of each of its GPUs it needs (`gpu_share`); units whose parts come to no
more than 1 may have the very same GPUs. A policy that does not pair units itself is asked as if a
GPU had one holder, which is the first row of those that share it. The other rows, the *second*
ones, are set aside before it decides and put back after it, where their GPUs have room. Then rows
that still wait may join one that runs, so that units share only where GPUs are short.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.gpu_request import GpuRequest
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk.shape import fits_shape
from dlsched.core.walk.walk import ANYWHERE, UNSAID, WHOLE, Walk


def may_share(table: UnitTable, first: Rows, second: Rows) -> Bools:
    """Of each pair of rows: do the parts of a GPU that they need come to no more than 1?"""
    share = np.maximum(table.gpu_share, UNSAID)
    return np.asarray(share[first] + share[second] <= WHOLE)


def may_join(row: int, holder: int, walk: Walk) -> bool:
    """Could a waiting row have the very GPUs of a holder, beside it?"""
    ctx, table = walk.ctx, walk.table
    placement = walk.occupancy.held[holder]
    nodes = ctx.pools.nodes[table.pool.item(row)] & walk.occupancy.open_nodes
    request = GpuRequest(row, placement.gpus, table)
    return (
        walk.has_room(row, holder)
        and placement.gpus == table.gang.item(row)
        and all(nodes >> node & 1 for node in placement.nodes)
        and table.homes.get(row, placement) == placement
        and not table.whole_nodes & {row, holder}
        and (not request.is_shaped or fits_shape(request, placement, walk.occupancy.cluster))
        and not walk.is_over_limit(row, placement.gpus)
        and (walk.tenancy is None or walk.tenancy.over_ceiling(row, placement.gpus) is None)
        and walk.has_host_for(row, placement)
        and not _are_awaited(placement, walk)
    )


def is_known_beside(row: int, node: int, gpu: int, walk: Walk) -> bool:
    """Is it known how fast a row is beside those on a GPU, where this world asks for it?"""
    perf, occupancy = walk.ctx.perf, walk.occupancy
    if perf.sharing is None:
        return True
    there = [other for other in occupancy.rows_on(node) if _has(occupancy.held[other], node, gpu)]
    name = occupancy.cluster.gpu_types[occupancy.type_of.item(node)]
    return not there or not np.isnan(perf.together((row, *there), name, 1)).any()


def _has(placement: Placement, node: int, gpu: int) -> bool:
    return any(n == node and mask >> gpu & 1 for n, mask in zip(*placement, strict=True))


def _are_awaited(placement: Placement, walk: Walk) -> bool:
    """Has a row reserved one of these GPUs, for when its holder has left?"""
    here = dict(zip(placement.nodes, placement.masks, strict=True))
    return any(
        here.get(node, 0) & mask
        for reserved in walk.occupancy.reserved.values()
        for node, mask in zip(reserved.nodes, reserved.masks, strict=True)
    )


class CoLocation:
    """The rows that share GPUs in one decision of a policy that does not pair units itself."""

    def __init__(self, ctx: RoundContext) -> None:
        self._ctx, self._active = ctx, ctx.active
        beside = ctx.occupancy.beside
        self._beside = {row: beside[row] for row in sorted(beside) if beside[row][0] < row}

    def set_aside(self, walk: Walk) -> None:
        """Let the policy see one holder of each GPU, which stays as long as the others must."""
        joined, since = self._ctx.joined_at, self._ctx.table.since
        for row, (holder, *_) in self._beside.items():
            joined[holder] = max(since.item(row), joined.get(holder, -math.inf))
        for row in self._beside:
            walk.set_aside(row)
        if self._beside:
            second = walk.table.marks(self._beside)
            self._ctx.active = self._active[~second[self._active]]
        if walk.table.fills_gpus and walk.table.says_shares and walk.claims is None:
            walk.filling = _FullestFirst(walk)

    def restore(self) -> None:
        """The policy has decided, or failed: all rows are active again."""
        self._ctx.active = self._active
        self._ctx.joined_at.clear()

    def put_back(self, walk: Walk) -> None:
        """Second rows go back to their GPUs; rows that wait join one that runs."""
        walk.aside.clear()
        walk.filling = None
        there: dict[Placement, int] = {}
        if self._beside:
            there = {placement: row for row, placement in walk.occupancy.held.items()}
        for row in self._beside:
            where = walk.suspended[row]
            holder = there.get(where)
            if holder is not None and self._has_room(row, holder, walk):
                walk.put_back(row, holder)
            elif walk.is_free(where):
                walk.put_back(row)
                there[where] = row
            else:
                walk.give_up(row)
        self._join_others(walk)
        if walk.occupancy.beside or self._beside:
            walk.stable_until(-math.inf)  # the policy promised it without having seen all rows

    def _has_room(self, row: int, holder: int, walk: Walk) -> bool:
        """Is there room for a second row beside the holder of its GPUs, perhaps a new one?"""
        share = walk.table.gpu_share
        both_said = 0 < share[row] < 1 and 0 < share[holder] < 1
        return walk.has_room(row, holder) and (both_said or holder in self._beside[row])

    def _join_others(self, walk: Walk) -> None:
        """Rows join others in the policy's order, each where it leaves least room.

        Behind a row that waits for whole GPUs, a row joins only others that stay as long as itself,
        as far as is known: else a GPU that is shared would never be free again.
        """
        if not walk.table.says_shares or walk.claims is not None:
            return  # a placement with a state of its own gives each row GPUs of its own
        waiting, share = self._waiting(walk), walk.table.gpu_share
        hosts, hopeless = _Hosts(walk, waiting), dict[tuple[object, ...], float]()
        short_of_memory: dict[tuple[object, ...], Refused] = {}
        nodes_of, pool = walk.ctx.pools.nodes, walk.table.pool
        wanted_whole = 0  # nodes, as bits
        for row in waiting:
            if not 0 < share[row] < 1:
                wanted_whole |= nodes_of[pool.item(row)]
                continue
            is_behind = bool(wanted_whole & nodes_of[pool.item(row)])
            stays = hosts.left[row] if is_behind else -math.inf
            like = _sameness(row, walk)
            if stays >= hopeless.get(like, math.inf):  # there is never more room than before
                if like in short_of_memory:
                    walk.refuse(row, short_of_memory[like])
                continue
            longer = (host for host in hosts.for_part_of(row) if hosts.left[host] >= stays)
            host = next((host for host in longer if may_join(row, host, walk)), None)
            if host is None:
                hopeless[like] = stays
                if lacking := next(filter(None, hosts.without_memory_for(row)), ""):
                    short_of_memory[like] = Refused("Resources", f"GPUs with room for it {lacking}")
                    walk.refuse(row, short_of_memory[like])
            else:
                walk.share(row, host)
                hosts.joined(row, host)

    def _waiting(self, walk: Walk) -> list[int]:
        table, active, order = walk.table, self._active, walk.answer().order
        if order is not None:
            ranked = table.marks(order.tolist())[active]
            active = np.concatenate([order, active[~ranked]])
        held = walk.occupancy.held
        return [row for row in active.tolist() if row not in held]


class _Hosts:
    """The rows that may be joined: the fullest GPUs first, then the first row.

    Attributes:
        left: seconds of work that each row has left as far as is known, and of a host the most that
            it or any row beside it has.
    """

    def __init__(self, walk: Walk, waiting: Sequence[int]) -> None:
        self._walk, self._share = walk, walk.table.gpu_share
        beside = walk.occupancy.beside
        rows = np.array([*waiting, *walk.occupancy.held], np.int64)
        remaining = Units(walk.table, rows, walk.ctx.now).remaining_work
        self.left = dict(zip(rows.tolist(), remaining.tolist(), strict=True))
        self._taken = {
            row: float(self._share[[row, *beside.get(row, ())]].sum())
            for row in walk.occupancy.held
            if 0 < self._share[row] < 1 and not (row in beside and beside[row][0] < row)
        }
        for row in self._taken:
            self.left[row] = max(self.left[each] for each in (row, *beside.get(row, ())))
        self._fullest_first = sorted((-taken, row) for row, taken in self._taken.items())

    def for_part_of(self, row: int) -> Iterator[int]:
        """The rows on whose GPUs there is room for a row's part."""
        begin = bisect_left(self._fullest_first, (self._share.item(row) - WHOLE, -1))
        return (host for _, host in self._fullest_first[begin:])

    def without_memory_for(self, row: int) -> Iterator[str]:
        """What memory the GPUs lack on which there is room for a row's part; "" where none."""
        walk = self._walk
        for host in self.for_part_of(row):
            placement = walk.occupancy.held[host]
            if placement.gpus == walk.table.gang.item(row):
                there = (row, host, *walk.occupancy.beside.get(host, ()))
                yield walk.lacks_memory(there, placement)

    def joined(self, row: int, host: int) -> None:
        """A row shares a host's GPUs now."""
        before = self._taken[host]
        del self._fullest_first[bisect_left(self._fullest_first, (-before, host))]
        self._taken[host] = before + self._share.item(row)
        insort(self._fullest_first, (-self._taken[host], host))
        self.left[host] = max(self.left[host], self.left[row])


class _FullestFirst:
    """Rows that need parts of GPUs fill the GPUs that leave least room (`Filling`)."""

    def __init__(self, walk: Walk) -> None:
        self._walk, self._share = walk, walk.table.gpu_share
        held = walk.occupancy.held
        taken = {row: self._taken(row) for row in held if 0 < self._share[row] < 1}
        self._hosts = sorted((-part, row) for row, part in taken.items() if part < 1)

    def _taken(self, row: int) -> float:
        walk = self._walk
        aside = walk.aside.get(walk.occupancy.held[row], ())
        rows = (row, *walk.occupancy.beside.get(row, ()), *aside)
        return float(self._share[list(rows)].sum())

    def place(self, row: int, want: int, *, returns: bool) -> Placement | Refused:
        """Give a row the fullest GPUs that leave room for it, else so many of its own."""
        share, walk = self._share.item(row), self._walk
        if not 0 < share < 1:
            return walk.place_anywhere(row, want, ANYWHERE, returns=returns)
        for place in range(bisect_left(self._hosts, (share - WHOLE, -1)), len(self._hosts)):
            taken, host = self._hosts[place]
            if host in walk.occupancy.held and may_join(row, host, walk):
                del self._hosts[place]
                insort(self._hosts, (taken - share, host))
                return walk.share(row, host)
        placed = walk.place_anywhere(row, want, ANYWHERE, returns=returns)
        if isinstance(placed, Placement):
            insort(self._hosts, (-share, row))
        return placed


def _sameness(row: int, walk: Walk) -> tuple[object, ...]:
    """Rows of equal values can join the same hosts."""
    table = walk.table
    request = GpuRequest(row, table.gang.item(row), table)
    return (
        request.gang, table.gpu_share.item(row), table.pool.item(row), table.vc.item(row),
        request.layout, request.host_needs, table.homes.get(row),
        str(table.gpu_memory.item(row)), None if walk.ctx.perf.partners_are_alike else row,
    )  # fmt: skip
