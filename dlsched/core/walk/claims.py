"""Rows that get GPUs of a placement with a state of its own: with victims, and with reservations.

Where a row's GPUs are held by others, these are suspended and the row starts, all in one decision.
Where one of them may not be suspended yet, the row reserves its GPUs: no other row of lower or
equal priority gets them, and it starts as soon as the last victim has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import plural
from dlsched.core.gpu_request import GpuRequest
from dlsched.core.units import WAITING

if TYPE_CHECKING:
    from dlsched.core.stage import Claim, ClaimingPlacement
    from dlsched.core.walk.walk import Walk

ANYWHERE = -1  # every node, as bits


class Claims:
    """One decision's claims."""

    def __init__(self, walk: Walk, placement: ClaimingPlacement[Any]) -> None:
        self._walk = walk
        self._placement = placement
        placement.begin()

    def ordered(self, rows: Rows) -> Rows:
        """Ranked rows in the order in which the placement must see them."""
        return self._placement.order(rows, self._walk.table)

    def helps(self, row: int, victim: int) -> bool:
        """Could a row get GPUs if the policy took them from another?"""
        return self._placement.helps(row, victim, self._walk.table)

    def check_exact(self) -> None:
        """Refuse GPUs that the policy has chosen itself, where the placement alone may give them.

        Raises:
            BadInput: says why.
        """
        self._placement.check_exact(self._walk.occupancy.cluster)

    def place(self, row: int, gang: int, nodes: int) -> Placement | Refused:
        """Give a waiting row its gang, with what it takes; commits when it succeeds."""
        walk, placement = self._walk, self._placement
        self._cancel_old()
        placement.follow(walk.occupancy, walk.table)
        standing = walk.occupancy.reserved.get(row)
        if standing is not None:
            return self._claim_reserved(row, standing)
        returns = walk.may_return(row)
        if returns and not walk.is_anew and placement.can_return(row):
            back = walk.rejoin(row, gang, nodes)
            if back is not None:
                return back
        free = walk.free_for(row, gang, nodes=nodes)
        claim = placement.claim(GpuRequest(row, gang, walk.table), free)
        if isinstance(claim, Refused):
            return claim
        refusal = self._why_not(row, claim)
        if refusal is not None:
            placement.reject(row)
            return refusal
        for rival in claim.rivals:
            walk.unreserve(rival)
        placement.follow(walk.occupancy, walk.table)
        if not claim.victims:
            same = returns and walk.suspended[row] == claim.placement
            if not same or walk.rejoin(row, gang, nodes) is None:
                walk.take(row, claim.placement)
            placement.taken(row)
            return claim.placement
        placement.reserved(row)
        walk.reserve(row, claim.placement)
        return self._claim_reserved(row, claim.placement)

    def _cancel_old(self) -> None:
        """Cancel the reservations of rows that no longer wait."""
        walk = self._walk
        if walk.occupancy.reserved:
            for row in list(walk.occupancy.reserved):
                if walk.table.status[row] != WAITING and row not in walk.suspended:
                    walk.unreserve(row)

    def _why_not(self, row: int, claim: Claim) -> Refused | None:
        walk = self._walk
        if not walk.has_host_for(row, claim.placement):
            return Refused("Resources", "its nodes lack free cores or memory")
        if not (claim.victims or claim.rivals):
            if walk.is_free(claim.placement):
                return None
            return Refused("Resources", "its GPUs are shared by others")
        if walk.ctx.mode != "full":
            return Refused("Preempting", "takes GPUs from others at the next full round")
        if any(victim in walk.launched for victim in claim.victims):
            return Refused("Resources", "its GPUs were given to others in this round")
        return None

    def _claim_reserved(self, row: int, where: Placement) -> Placement | Refused:
        """Have the holders leave that may leave now, and start the row when none is left."""
        walk, stay = self._walk, list[int]()
        for holder in self._holders(where):
            if walk.ctx.mode != "full" or holder in walk.launched:
                stay.append(holder)
            elif walk.is_victim(holder, ANYWHERE):
                walk.take_back(holder)
            else:
                stay.append(holder)
                walk.wake_at(float(walk.table.since[holder]) + walk.ctx.min_run)
        placed = walk.claim(row)
        self._placement.follow(walk.occupancy, walk.table)
        if isinstance(placed, Refused):
            return Refused("Preempting", f"waits until {plural(len(stay), 'job')} may be preempted")
        return placed

    def _holders(self, where: Placement) -> list[int]:
        masks = dict(zip(where.nodes, where.masks, strict=True))
        return [
            row
            for row, held in self._walk.occupancy.held.items()
            if any(
                masks.get(node, 0) & mask for node, mask in zip(held.nodes, held.masks, strict=True)
            )
        ]
