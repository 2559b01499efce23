"""Buddy allocation, as in ElasticFlow (ASPLOS 2023): gangs of powers of two, without gaps.

Placed largest first, such gangs fill a cluster of nodes of a power of two GPUs to the last GPU, and
none that fits on one node is spread over several.
"""

from __future__ import annotations

from dlsched.core.allocation import Refused
from dlsched.core.cluster.occupancy import Placement, lowest_node
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.options import NoOptions
from dlsched.core.stage import PlacementPolicy
from dlsched.policies.placement.spanning import MinNodes, members


class Buddy(PlacementPolicy[NoOptions]):
    """A node whose free GPUs are such blocks, then one with larger blocks, then an idle one.

    The block of a node is the largest power of two that divides its free GPUs. Of equal nodes the
    one with the most free GPUs comes first, then the lowest. Gangs of a node or more have idle
    nodes for themselves. Whatever does not fit so goes to the fewest nodes.
    """

    name = "buddy"
    summary = "gangs of powers of two in blocks of their size; others on the fewest nodes"
    spans = True

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._otherwise = MinNodes(options)

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Take a block; refused only when the pool has too few GPUs."""
        gang, size = request.gang, free.occupancy.cluster.largest_node
        idle = free.idle_nodes() & free.with_at_least(min(gang, size))
        if gang < size:
            node = self._with_block(gang, free.with_at_least(gang) & ~free.idle_nodes(), free)
            if node < 0 and idle:
                node = lowest_node(idle)
            if node >= 0:
                return free.one_node(node, gang)
        elif idle.bit_count() >= -(-gang // size):
            parts = []
            while gang:
                parts.append((lowest_node(idle), min(gang, size)))
                idle &= idle - 1
                gang -= parts[-1][1]
            return free.across(parts)
        return self._otherwise.place(request, free)

    @staticmethod
    def _with_block(gang: int, nodes: int, free: FreeGpus) -> int:
        """The node of some with the best block for a gang; -1: none."""
        best, found = (False, 0, 0), -1
        for node in members(nodes):
            there = free.usable_on(node)
            block = there & -there
            rank = (block == gang, block, there)
            if block >= gang and rank > best:
                best, found = rank, node
        return found
