"""From GPUs by node to exact GPUs: for policies that decide a whole cluster at once.

Such a policy says how many GPUs of which nodes each row is to hold. Rows that hold just that are
left alone; the others leave first, so that rows that come find their GPUs free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlsched.core.allocation import Grant
from dlsched.core.cluster.occupancy import Placement, lowest_bits
from dlsched.core.errors import PolicyFailed, plural
from dlsched.core.walk.walk import Walk

NodeCounts = Sequence[tuple[int, int]]  # (node, GPUs), in rank order


def counts_of(placement: Placement) -> list[tuple[int, int]]:
    """GPUs by node of a placement, in its order."""
    return [
        (node, mask.bit_count())
        for node, mask in zip(placement.nodes, placement.masks, strict=True)
    ]


def lay_out(
    walk: Walk, plan: Mapping[int, NodeCounts], grants: Mapping[int, Grant] | None = None
) -> list[int]:
    """Carry out a plan of all rows; every row that holds GPUs and is not in it loses them.

    `plan` has by row what it is to hold (nothing is the same as being left out), `grants` what it
    gets besides, if it starts.

    Returns:
        rows that start or are moved, in the order of the plan.

    Raises:
        PolicyFailed: a node has fewer free GPUs than it is to give.
    """
    held = walk.occupancy.held
    wanted = {row: list(counts) for row, counts in plan.items() if counts}
    for row in list(held):
        if counts_of(held[row]) != wanted.get(row, []):
            walk.suspend(row)
    starting = [row for row in wanted if row not in held]
    for row in starting:
        walk.place_exactly(row, _lowest(walk, row, wanted[row]))
        if grants is not None and row in grants:
            walk.grant(row, grants[row])
    return starting


def _lowest(walk: Walk, row: int, counts: NodeCounts) -> Placement:
    free = walk.occupancy.free
    for node, count in counts:
        if not 0 < count <= free[node].bit_count():
            name = walk.occupancy.cluster.names[node]
            raise PolicyFailed(
                f"it gave unit {row} {plural(count, 'GPU')} of node {name}, which has "
                f"{free[node].bit_count()} free"
            )
    return Placement(
        tuple(node for node, _ in counts),
        tuple(lowest_bits(free[node], count) for node, count in counts),
    )
