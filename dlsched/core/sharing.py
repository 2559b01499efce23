"""Jobs that need only part of a GPU, beside each other under policies that think of whole ones.

A unit may say which part of each of its GPUs it needs (`gpu_share`); units whose parts come to no
more than 1 may have the very same GPUs. A policy that does not pair units itself is asked as if a
GPU had one holder: of those who share one, the first row. The others, the *guests*, are lifted
before it decides and sit down again after it, where their GPUs have room. Then whoever still waits
may join one that runs, so that units share only where GPUs are short.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import numpy as np

from dlsched.core.arrays import Bools, Rows
from dlsched.core.context import RoundContext
from dlsched.core.free import Ask
from dlsched.core.occupancy import Placement
from dlsched.core.shape import fits_shape
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk import UNSAID, WHOLE, Walk

__all__ = ["Guests", "may_sit_together"]


def may_sit_together(table: UnitTable, first: Rows, second: Rows) -> Bools:
    """Of each pair of rows: do the parts of a GPU that they need come to no more than 1?"""
    share = np.maximum(table.gpu_share, UNSAID)
    return np.asarray(share[first] + share[second] <= WHOLE)


def may_join(row: int, holder: int, walk: Walk) -> bool:
    """Could a waiting row have the very GPUs of a holder, beside it?"""
    ctx, table = walk.ctx, walk.table
    placement = walk.occupancy.held[holder]
    nodes = ctx.pools.nodes[table.pool.item(row)] & walk.occupancy.open_nodes
    ask = Ask(row, placement.gpus, table)
    return (
        walk.has_room(row, holder)
        and placement.gpus == table.gang.item(row)
        and all(nodes >> node & 1 for node in placement.nodes)
        and table.homes.get(row, placement) == placement
        and not table.whole_nodes & {row, holder}
        and (not ask.is_shaped or fits_shape(ask, placement, walk.occupancy.cluster))
        and (walk.tenancy is None or walk.tenancy.over_ceiling(row, placement.gpus) is None)
        and walk.can_feed(row, placement)
        and not _are_awaited(placement, walk)
    )


def _are_awaited(placement: Placement, walk: Walk) -> bool:
    """Has somebody reserved one of these GPUs, for when who holds it has left?"""
    here = dict(zip(placement.nodes, placement.masks, strict=True))
    return any(
        here.get(node, 0) & mask
        for reserved in walk.occupancy.reserved.values()
        for node, mask in zip(reserved.nodes, reserved.masks, strict=True)
    )


class Guests:
    """Who shares GPUs in one decision of a policy that does not pair units itself."""

    def __init__(self, ctx: RoundContext) -> None:
        self._ctx, self._active = ctx, ctx.active
        beside = ctx.occupancy.beside
        self._beside = {row: beside[row] for row in sorted(beside) if beside[row][0] < row}

    def lift(self, walk: Walk) -> None:
        """Let the policy see one holder of each GPU."""
        for row in self._beside:
            walk.lift(row)
        if self._beside:
            guests = walk.table.marks(self._beside)
            self._ctx.active = self._active[~guests[self._active]]

    def stand_by(self) -> None:
        """The policy has decided, or failed: everybody is there again."""
        self._ctx.active = self._active

    def sit_down(self, walk: Walk) -> None:
        """Guests go back to their GPUs; whoever waits joins one that runs."""
        there: dict[Placement, int] = {}
        if self._beside:
            there = {placement: row for row, placement in walk.occupancy.held.items()}
        for row in self._beside:
            where = walk.suspended[row]
            holder = there.get(where)
            if holder is not None and self._is_welcome(row, holder, walk):
                walk.sit_down(row, holder)
            elif walk.is_free(where):
                walk.sit_down(row)
                there[where] = row
            else:
                walk.stay_off(row)
        self._join_others(walk)
        if walk.occupancy.beside or self._beside:
            walk.stable_until(-math.inf)  # the policy promised it without having seen everybody

    def _is_welcome(self, row: int, holder: int, walk: Walk) -> bool:
        """Is there room beside who holds a guest's GPUs now, who may be another than before?"""
        share = walk.table.gpu_share
        both_said = 0 < share[row] < 1 and 0 < share[holder] < 1
        return walk.has_room(row, holder) and (both_said or holder in self._beside[row])

    def _join_others(self, walk: Walk) -> None:
        """In the policy's order, where it has one, each beside whom it leaves least room.

        Behind somebody who waits for whole GPUs nobody joins for longer than those stay, as far as
        is known, whom it joins: else a GPU that is shared would never be free again.
        """
        if not walk.table.says_shares:
            return
        waiting, share = self._waiting(walk), walk.table.gpu_share
        seats, hopeless = _Seats(walk, waiting), dict[tuple[object, ...], float]()
        nodes_of, pool = walk.ctx.pools.nodes, walk.table.pool
        wanted_whole = 0  # nodes, as bits
        for row in waiting:
            if not 0 < share[row] < 1:
                wanted_whole |= nodes_of[pool.item(row)]
                continue
            is_behind = bool(wanted_whole & nodes_of[pool.item(row)])
            stays = seats.left[row] if is_behind else -math.inf
            like = _sameness(row, walk)
            if stays >= hopeless.get(like, math.inf):  # there is never more room than before
                continue
            hosts = (host for host in seats.for_part_of(row) if seats.left[host] >= stays)
            host = next((host for host in hosts if may_join(row, host, walk)), None)
            if host is None:
                hopeless[like] = stays
            else:
                walk.share(row, host)
                seats.taken_by(row, host)

    def _waiting(self, walk: Walk) -> list[int]:
        table, active, order = walk.table, self._active, walk.answer().order
        if order is not None:
            ranked = table.marks(order.tolist())[active]
            active = np.concatenate([order, active[~ranked]])
        held = walk.occupancy.held
        return [row for row in active.tolist() if row not in held]


class _Seats:
    """Who may be joined, by how much is taken of its GPUs; the fullest first, then the first.

    Attributes:
        left: seconds of work that each row has left as far as is known, and of a host the most that
            it or anybody beside it has.
    """

    def __init__(self, walk: Walk, waiting: Sequence[int]) -> None:
        self._share = walk.table.gpu_share
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
        """Whose GPUs have room for a row's part."""
        begin = bisect_left(self._fullest_first, (self._share.item(row) - WHOLE, -1))
        return (host for _, host in self._fullest_first[begin:])

    def taken_by(self, row: int, host: int) -> None:
        """A row sits beside a host now."""
        before = self._taken[host]
        del self._fullest_first[bisect_left(self._fullest_first, (-before, host))]
        self._taken[host] = before + self._share.item(row)
        insort(self._fullest_first, (-self._taken[host], host))
        self.left[host] = max(self.left[host], self.left[row])


def _sameness(row: int, walk: Walk) -> tuple[object, ...]:
    """Rows of equal values can sit where each other can."""
    table = walk.table
    ask = Ask(row, table.gang.item(row), table)
    return (
        ask.gang, table.gpu_share.item(row), table.pool.item(row), table.vc.item(row), ask.shape,
        ask.whole, ask.host_needs, table.homes.get(row),
    )  # fmt: skip
