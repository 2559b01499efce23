"""Gangs whose layout is given: so many GPUs (of each type) on each of some nodes, or whole nodes.

The placement in charge chooses each node, the largest part first; it is asked for one part at a
time among the nodes that have room for it. So its preference (tightest, emptiest, first) holds for
shaped gangs as for others, and no placement need know of shapes.
"""

from __future__ import annotations

from dlsched.core.allocation import Refused
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.gpus_by_type import by_type_words, has_each
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import plural
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.stage import PlacementPolicy


def place_shaped(
    placement: PlacementPolicy[object], request: GpuRequest, free: FreeGpus
) -> Placement | Refused:
    """Choose GPUs for a row that says how they must lie.

    A row without a shape that wants whole nodes gets one node if one is large enough, else as many
    of the largest idle ones as it takes. `free` is what it may use, narrowed on the way.
    """
    parts: list[tuple[int, int]] = []
    if request.whole:
        free.nodes &= free.idle_nodes()
    if request.by_type:
        free.nodes &= free.with_each(request.by_type)
    wanted = (
        sorted(request.shape, reverse=True) if request.shape else _as_it_comes(request.gang, free)
    )
    for gpus in wanted:
        room = free.with_at_least(gpus)
        if not room:
            lying = "idle node" if request.whole else "node"
            asked = _asked(request, wanted)
            return Refused("Fragmented", f"needs {asked} on {plural(len(wanted), lying)}")
        everywhere, free.nodes = free.nodes, room
        chosen = placement.place(request.part(gpus), free)
        if isinstance(chosen, Refused):
            return chosen
        node = chosen.nodes[0]
        free.nodes = everywhere & ~(1 << node)
        parts.append((node, int(free.occupancy.cluster.gpus[node]) if request.whole else gpus))
    if request.by_type and not request.whole:
        return free.across_by_type(sorted(node for node, _ in parts), request.by_type)
    return free.across(sorted(parts))


def _asked(request: GpuRequest, wanted: list[int]) -> str:
    """What a row asks for, as its refusal says it."""
    if request.by_type:
        return by_type_words(request.by_type) + (" each" if len(wanted) > 1 else "")
    return ", ".join(map(str, wanted)) + (" GPU" if wanted == [1] else " GPUs")


def _as_it_comes(gang: int, free: FreeGpus) -> list[int]:
    """Parts for a row that wants whole nodes, however many: the fewest."""
    if free.with_at_least(gang):
        return [gang]
    parts: list[int] = []
    for count in range(len(free.level) - 1, 0, -1):
        for _ in range(free.with_exactly(count).bit_count()):
            if gang <= 0:
                return parts
            parts.append(min(count, gang))
            gang -= count
    return parts if gang <= 0 else [*parts, gang]


def fits_shape(request: GpuRequest, placement: Placement, cluster: Cluster) -> bool:
    """Does a placement lie as the row asked?"""
    counts = sorted((mask.bit_count() for mask in placement.masks), reverse=True)
    wanted = sorted(request.shape, reverse=True)
    pairs = list(zip(placement.nodes, placement.masks, strict=True))
    by_type, mixed = request.by_type, cluster.mixed
    if by_type and not all(has_each(mask, mixed.get(node, {}), by_type) for node, mask in pairs):
        return False
    if not request.whole:
        return counts == wanted
    if any(int(cluster.gpus[node]) != mask.bit_count() for node, mask in pairs):
        return False
    return not wanted or (len(counts) == len(wanted) and all(map(int.__ge__, counts, wanted)))
