"""The GPUs that a waiting job keeps until its gang is complete (Muri's simulation of AntMan).

A gang that fits on a node takes the first with enough GPUs; else all of the node that has most, and
what comes free there later. A larger one takes whole nodes in their order.
Ours: nodes of different sizes, and the rest of a gang after whole nodes, which is sought last.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlsched.core.cluster.occupancy import Placement, lowest_bits
from dlsched.core.walk.walk import Walk


def collected(row: int, kept: Placement, walk: Walk) -> Placement:
    """What there is of a job's gang now: what it has kept, and more.

    Args:
        row: the job.
        kept: its GPUs so far; no longer reserved in the walk.
        walk: the decision's walk.
    """
    occupancy, gang = walk.occupancy, walk.table.gang.item(row)
    nodes = walk.ctx.pools.nodes[walk.table.pool.item(row)] & occupancy.open_nodes
    free = dict(enumerate(walk.free_masks(nodes)))
    size = {
        node: gpus - occupancy.closed.get(node, 0).bit_count()
        for node, gpus in enumerate(occupancy.cluster.gpus.tolist())
        if nodes >> node & 1
    }
    found = {node: mask & free[node] for node, mask in zip(*kept, strict=True)}
    found = {node: mask for node, mask in found.items() if mask}
    if gang > max(size.values(), default=0):
        _take_whole_nodes(found, gang, free, size)
        rest = gang - _count(found)
        if rest >= min((size[node] for node in size if node not in found), default=gang):
            return _placement(found)  # the next must be a whole node again
        begun = [node for node, mask in found.items() if mask.bit_count() < size[node]]
    else:
        begun = list(found)
    _take_on_one_node(found, gang, begun, free, _room(size, walk))
    return _placement(found)


def _take_whole_nodes(
    found: dict[int, int], gang: int, free: Mapping[int, int], size: Mapping[int, int]
) -> None:
    rest = gang - _count(found)
    for node, gpus in size.items():
        if node not in found and free[node].bit_count() == gpus <= rest:
            found[node] = free[node]
            rest -= gpus


def _take_on_one_node(
    found: dict[int, int],
    gang: int,
    begun: list[int],
    free: Mapping[int, int],
    room: Mapping[int, int],
) -> None:
    """Take what is missing of a gang on one node.

    Args:
        found: GPUs of each node; changes.
        gang: how many there are to be in all.
        begun: the node of which the job keeps some, if there is one.
        free: GPUs of each node.
        room: GPUs of each node that no other waiting job keeps.
    """
    rest = gang - _count(found)
    for node in begun:
        if room[node] < found[node].bit_count() + rest:  # GPUs of it have failed
            rest += found.pop(node).bit_count()
    there = {node: free[node] & ~found.get(node, 0) for node in begun if node in found} or {
        node: free[node] for node, gpus in room.items() if node not in found and gpus >= rest
    }
    count = {node: mask.bit_count() for node, mask in there.items()}
    enough = (node for node, gpus in count.items() if gpus >= rest)
    node = next(enough, max(count, key=count.__getitem__, default=-1))
    if rest and count.get(node):
        mask = lowest_bits(there[node], min(rest, count[node]))
        found[node] = found.get(node, 0) | mask


def _room(size: Mapping[int, int], walk: Walk) -> dict[int, int]:
    """The GPUs of each node that no waiting job keeps."""
    room = dict(size)
    for placement in walk.occupancy.reserved.values():
        for node, mask in zip(*placement, strict=True):
            if node in room:
                room[node] -= mask.bit_count()
    return room


def _count(found: Mapping[int, int]) -> int:
    return sum(mask.bit_count() for mask in found.values())


def _placement(found: Mapping[int, int]) -> Placement:
    nodes = tuple(sorted(found))
    return Placement(nodes, tuple(found[node] for node in nodes))
