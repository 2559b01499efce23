"""Which ranks of a `dlsched run` go to which node of the allocation, and which GPUs they see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlsched.protocol.messages import GpuId, Share

MOST = 4096  # ranks of one call


class CannotPlace(Exception):
    """In words for the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank's."""

    rank: int
    local_rank: int
    gpus: tuple[GpuId, ...]


def counts(layout: Sequence[Share], ntasks: int, per_node: int) -> list[int]:
    """Ranks a node, block by block; `per_node` on each, else as even as can be.

    Raises:
        CannotPlace: when they do not fit.
    """
    room = [max(1, len(share.gpus)) for share in layout]
    if not ntasks:
        return [per_node] * len(layout) if per_node else room
    if ntasks > MOST:
        raise CannotPlace(f"{ntasks} ranks: at most {MOST} a call")
    if per_node:
        if ntasks > per_node * len(layout):
            raise CannotPlace(
                f"{ntasks} ranks do not fit on {len(layout)} nodes with {per_node} each"
            )
        full, rest = divmod(ntasks, per_node)
        found = [per_node] * full + ([rest] if rest else [])
        return found + [0] * (len(layout) - len(found))
    if ntasks > sum(room):
        raise CannotPlace(
            f"{ntasks} ranks for {sum(room)} GPUs: say how many a node (--ntasks-per-node)"
        )
    found, left = [0] * len(layout), ntasks
    while left:  # one more on each node that has room
        for place, most in enumerate(room):
            if left and found[place] < most:
                found[place] += 1
                left -= 1
    return found


def plan(
    layout: Sequence[Share], ntasks: int, per_node: int, gpus_per_task: int
) -> list[list[Place]]:
    """The ranks of each node, in the order of the layout.

    Raises:
        CannotPlace: when they, or their GPUs, do not fit.
    """
    found: list[list[Place]] = []
    rank = 0
    for share, count in zip(layout, counts(layout, ntasks, per_node), strict=True):
        if count * gpus_per_task > len(share.gpus):
            raise CannotPlace(
                f"{count} ranks with {gpus_per_task} GPUs each: node {share.node} has "
                f"{len(share.gpus)}"
            )
        here = []
        for local in range(count):
            own = share.gpus[local * gpus_per_task :][:gpus_per_task]
            here.append(
                Place(rank=rank, local_rank=local, gpus=own if gpus_per_task else share.gpus)
            )
            rank += 1
        found.append(here)
    if rank > MOST:
        raise CannotPlace(f"{rank} ranks: at most {MOST} a call")
    return found
