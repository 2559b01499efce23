"""Placements that keep a gang together, and so may refuse while enough GPUs are free.

Consolidated as in Blox (EuroSys 2024), yarn and skew as in Tiresias (NSDI 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from dlsched.core.allocation import Refused
from dlsched.core.cluster.occupancy import Placement, lowest_node
from dlsched.core.errors import plural
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.options import NoOptions, option
from dlsched.core.stage import PlacementPolicy
from dlsched.policies.placement.spanning import MinNodes, members, taken_in_turn, tightest_node


def fragmented(request: GpuRequest, free: FreeGpus, nodes: int) -> Refused:
    """A refusal that tells how many GPUs are free, and over how many nodes the job may span."""
    total = free.total
    if total < request.gang:
        return Refused.too_few_free(request.gang, total)
    return Refused("Fragmented", f"{total} free, need {request.gang} on {plural(nodes, 'node')}")


class Consolidated(PlacementPolicy[NoOptions]):
    """One node or not at all: the exact fit first, else the tightest node, ties to the lowest.

    A gang larger than every node can never run and is refused up front.
    """

    name = "consolidated"
    summary = "one node or not at all: exact fit, else the tightest"

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Take the tightest node that holds the whole gang."""
        node = tightest_node(free, request.gang)
        return free.one_node(node, request.gang) if node >= 0 else fragmented(request, free, 1)


class Yarn(PlacementPolicy[NoOptions]):
    """Tiresias' consolidated scheme: first fit on one node, else idle nodes under one switch.

    A gang of at most a node's size takes the first node with room. A larger one takes
    floor(gang / g) completely idle nodes and, for the remainder, the first other node with room,
    all under one switch; switches are tried in order.
    """

    name = "yarn"
    summary = "first fit on one node; larger gangs on idle nodes under one switch"

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Try one switch after the other."""
        cluster = free.occupancy.cluster
        gang, size = request.gang, cluster.largest_node
        for switch in range(int(cluster.switch_of.max()) + 1):
            under = free.nodes & self._nodes_under(switch, free)
            if gang <= size:
                roomy = free.with_at_least(gang) & under
                if roomy:
                    return free.one_node(lowest_node(roomy), gang)
                continue
            parts = self._whole_nodes(gang, size, under, free)
            if parts is not None:
                return free.across(parts)
        return fragmented(request, free, -(-gang // size))

    @staticmethod
    def _nodes_under(switch: int, free: FreeGpus) -> int:
        switch_of = free.occupancy.cluster.switch_of.tolist()
        return sum(1 << node for node, number in enumerate(switch_of) if number == switch)

    @staticmethod
    def _whole_nodes(
        gang: int, size: int, under: int, free: FreeGpus
    ) -> list[tuple[int, int]] | None:
        idle = free.with_exactly(size) & under
        parts: list[tuple[int, int]] = []
        for _ in range(gang // size):
            if not idle:
                return None
            node = lowest_node(idle)
            idle ^= 1 << node
            parts.append((node, size))
        rest = gang % size
        if rest:
            taken = sum(1 << node for node, _ in parts)
            roomy = free.with_at_least(rest) & under & ~taken
            if not roomy:
                return None
            parts.append((lowest_node(roomy), rest))
        return parts


class WholeNodes(PlacementPolicy[NoOptions]):
    """Lucid's consolidated scheme: the tightest node, or whole nodes and the rest on one other.

    A gang larger than a node takes completely idle nodes, and for the remainder the node that then
    has most free GPUs; ties go to the lowest node.
    """

    name = "whole-nodes"
    summary = "the tightest node; larger gangs on idle nodes, the rest on the emptiest other"

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Take one node, or the emptiest ones."""
        gang, size = request.gang, free.occupancy.cluster.largest_node
        if gang <= size:
            node = tightest_node(free, gang)
            return free.one_node(node, gang) if node >= 0 else fragmented(request, free, 1)
        whole, rest = divmod(gang, size)
        emptiest = (
            node
            for count in range(len(free.level) - 1, 0, -1)
            for node in members(free.with_exactly(count))
        )
        parts = [(node, size) for node in islice(emptiest, whole)]
        if len(parts) == whole and all(free.usable_on(node) == size for node, _ in parts):
            if not rest:
                return free.across(parts)
            last = next(emptiest, -1)
            if last >= 0 and free.usable_on(last) >= rest:
                return free.across([*parts, (last, rest)])
        return fragmented(request, free, -(-gang // size))


# Tensor sizes in MB, largest and total, of the models in Tiresias' artifact
TENSOR_MB = {
    "vgg19": (392.0, 547.1),
    "vgg16": (392.0, 526.8),
    "vgg11": (392.0, 506.5),
    "alexnet": (144.0, 235.8),
    "resnet152": (9.0, 149.6),
    "resnet101": (9.0, 119.7),
    "resnet50": (9.0, 80.6),
    "inception4": (5.9, 132.8),
    "inception3": (7.8, 56.6),
}


def is_skewed(largest_mb: float, total_mb: float, pack_limit: float) -> bool:
    """Whether one tensor dominates the messages of a model, so that it should run on few nodes."""
    return total_mb > 0 and largest_mb / total_mb > pack_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewOptions:
    """Tiresias' profile-based placement."""

    pack_limit: float = option(
        0.5, "largest tensor / all tensors above which a job is consolidated", low=0.0, high=1.0
    )


class Skew(PlacementPolicy[SkewOptions]):
    """Consolidate models with skewed tensor sizes; the other models use fragmented nodes.

    The sizes come from the columns `largest_tensor_mb` and `total_tensor_mb`, or from the name of a
    model that Tiresias profiled. A job with neither is not consolidated. Skewed jobs get the fewest
    nodes that could hold them on an empty cluster, or wait; the others fill the fullest nodes.
    """

    name = "skew"
    summary = "consolidate models with skewed tensor sizes (Tiresias), pack the others"

    def __init__(self, options: SkewOptions) -> None:
        super().__init__(options)
        self._anywhere = MinNodes(NoOptions())

    def consolidates(self, request: GpuRequest) -> bool:
        """Whether this job must be consolidated."""
        largest, total = request.extra("largest_tensor_mb"), request.extra("total_tensor_mb")
        if largest is None or total is None or largest != largest or total != total:  # noqa: PLR0124 - NaN
            model = str(request.extra("model") or "").lower().replace("-", "")
            largest, total = TENSOR_MB.get(model, (0.0, 0.0))
        return is_skewed(float(largest), float(total), self.options.pack_limit)

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Place skewed jobs on the fewest possible nodes, the others on the fullest nodes."""
        if self.consolidates(request):
            placed = self._anywhere.place(request, free)
            fewest = -(-request.gang // free.occupancy.cluster.largest_node)
            if not isinstance(placed, Refused) and len(placed.nodes) <= fewest:
                return placed
            return fragmented(request, free, fewest)
        return self._fill_fullest(request, free)

    @staticmethod
    def _fill_fullest(request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Use up the nodes with the fewest free GPUs first, so that whole nodes stay whole."""
        counts = range(1, len(free.level))
        full = (node for count in counts for node in members(free.with_exactly(count)))
        parts = taken_in_turn(request.gang, free, full)
        return fragmented(request, free, 1) if parts is None else free.across(sorted(parts))

    def sameness(self, request: GpuRequest) -> object:
        """Skewed and other jobs of equal size can have different outcomes."""
        return (request.gang, self.consolidates(request))
