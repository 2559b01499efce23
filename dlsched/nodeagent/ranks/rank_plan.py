"""Which ranks of a `dlsched run` go to which node of the allocation, and which GPUs they see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlsched.core.errors import plural
from dlsched.protocol.messages import GpuId, Share

MAX_RANKS = 4096  # of one call


class CannotPlace(Exception):
    """The ranks do not fit; the text tells the caller why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Where one rank runs, and with which GPUs."""

    rank: int
    local_rank: int
    gpus: tuple[GpuId, ...]


def ranks_per_node(layout: Sequence[Share], ntasks: int, per_node: int) -> list[int]:
    """Return how many ranks each node gets.

    `ntasks` is ranks in all, 0 for `per_node` on each node or one for each GPU; `per_node` is ranks
    on each node, filled in order, 0 to spread them evenly.

    Raises:
        CannotPlace: when they do not fit.
    """
    room = [max(1, len(share.gpus)) for share in layout]
    if not ntasks:
        return [per_node] * len(layout) if per_node else room
    if ntasks > MAX_RANKS:
        raise CannotPlace(f"{ntasks} ranks: at most {MAX_RANKS} a call")
    if per_node:
        if ntasks > per_node * len(layout):
            raise CannotPlace(
                f"{ntasks} ranks do not fit on {plural(len(layout), 'node')} with {per_node} each"
            )
        full, rest = divmod(ntasks, per_node)
        found = [per_node] * full + ([rest] if rest else [])
        return found + [0] * (len(layout) - len(found))
    if ntasks > sum(room):
        raise CannotPlace(
            f"{ntasks} ranks for {plural(sum(room), 'GPU')}: "
            "say how many a node (--ntasks-per-node)"
        )
    found, left = [0] * len(layout), ntasks
    while left:  # one more on each node that has room
        for place, most in enumerate(room):
            if left and found[place] < most:
                found[place] += 1
                left -= 1
    return found


def plan_ranks(
    layout: Sequence[Share], ntasks: int, per_node: int, gpus_per_task: int
) -> list[list[RankPlace]]:
    """Return the ranks of each node, in the order of the layout.

    Args:
        layout: the nodes of the allocation and their GPUs.
        ntasks: as of `ranks_per_node`.
        per_node: as of `ranks_per_node`.
        gpus_per_task: GPUs of each rank; 0: each sees all GPUs of its node.

    Raises:
        CannotPlace: when they, or their GPUs, do not fit.
    """
    found: list[list[RankPlace]] = []
    rank = 0
    for share, count in zip(layout, ranks_per_node(layout, ntasks, per_node), strict=True):
        if count * gpus_per_task > len(share.gpus):
            raise CannotPlace(
                f"{plural(count, 'rank')} with {plural(gpus_per_task, 'GPU')} each: "
                f"node {share.node} has {len(share.gpus)}"
            )
        here = []
        for local in range(count):
            own = share.gpus[local * gpus_per_task :][:gpus_per_task]
            here.append(
                RankPlace(rank=rank, local_rank=local, gpus=own if gpus_per_task else share.gpus)
            )
            rank += 1
        found.append(here)
    if rank > MAX_RANKS:
        raise CannotPlace(f"{rank} ranks: at most {MAX_RANKS} a call")
    return found
