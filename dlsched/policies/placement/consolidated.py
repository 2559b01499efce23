"""Placements that keep a gang together, and so may refuse while enough GPUs are free.

Consolidated as in Blox (EuroSys 2024), yarn and skew as in Tiresias (NSDI 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dlsched.core.allocation import Refused
from dlsched.core.free import Ask, FreeGpus
from dlsched.core.occupancy import Placement, lowest_node
from dlsched.core.options import NoOptions, option
from dlsched.core.stage import PlacementPolicy
from dlsched.policies.placement.spanning import MinNodes, tightest_node

__all__ = ["Consolidated", "Skew", "Yarn", "is_skewed"]


def fragmented(ask: Ask, free: FreeGpus, nodes: int) -> Refused:
    """A refusal that says how the free GPUs lie."""
    total = free.total
    if total < ask.gang:
        return Refused("Resources", f"needs {ask.gang} GPUs, {total} are free")
    return Refused(
        "Fragmented", f"{total} free, need {ask.gang} on {nodes} node{'s'[: nodes != 1]}"
    )


class Consolidated(PlacementPolicy[NoOptions]):
    """One node or not at all: the exact fit first, else the tightest node, ties to the lowest.

    A gang larger than every node can never run and is refused up front.
    """

    name = "consolidated"
    summary = "one node or not at all: exact fit, else the tightest"

    def place(self, ask: Ask, free: FreeGpus) -> Placement | Refused:
        """Take the tightest node that holds the whole gang."""
        node = tightest_node(free, ask.gang)
        return free.one_node(node, ask.gang) if node >= 0 else fragmented(ask, free, 1)


class Yarn(PlacementPolicy[NoOptions]):
    """Tiresias' consolidated scheme: first fit on one node, else idle nodes under one switch.

    A gang of at most a node's size takes the first node with room. A larger one takes
    floor(gang / g) completely idle nodes and, for the remainder, the first other node with room,
    all under one switch; switches are tried in order.
    """

    name = "yarn"
    summary = "first fit on one node; larger gangs on idle nodes under one switch"

    def place(self, ask: Ask, free: FreeGpus) -> Placement | Refused:
        """Try one switch after the other."""
        cluster = free.occupancy.cluster
        gang, size = ask.gang, cluster.largest_node
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
        return fragmented(ask, free, -(-gang // size))

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
    """Does one tensor dominate the model's messages, so that it should stay on few nodes?"""
    return total_mb > 0 and largest_mb / total_mb > pack_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewOptions:
    """Tiresias' profile-based placement."""

    pack_limit: float = option(
        0.5, "largest tensor / all tensors above which a job is consolidated", low=0.0, high=1.0
    )


class Skew(PlacementPolicy[SkewOptions]):
    """Consolidate the models whose tensor sizes are skewed; the others take what is left over.

    The columns `largest_tensor_mb` and `total_tensor_mb`, or the names of the models Tiresias
    profiled, say which. A job that says neither is not consolidated. Skewed jobs get the fewest
    nodes that could hold them on an empty cluster, or wait; the others fill the fullest nodes.
    """

    name = "skew"
    summary = "consolidate models with skewed tensor sizes (Tiresias), pack the others"
    Options: ClassVar[type[Any]] = SkewOptions

    def __init__(self, options: SkewOptions) -> None:
        super().__init__(options)
        self._anywhere = MinNodes(NoOptions())

    def consolidates(self, ask: Ask) -> bool:
        """Must this job stay together?"""
        largest, total = ask.extra("largest_tensor_mb"), ask.extra("total_tensor_mb")
        if largest is None or total is None or largest != largest or total != total:  # noqa: PLR0124 - NaN
            model = str(ask.extra("model") or "").lower().replace("-", "")
            largest, total = TENSOR_MB.get(model, (0.0, 0.0))
        return is_skewed(float(largest), float(total), self.options.pack_limit)

    def place(self, ask: Ask, free: FreeGpus) -> Placement | Refused:
        """On as few nodes as the gang could ever use, or (not skewed) on the fullest nodes."""
        if self.consolidates(ask):
            placed = self._anywhere.place(ask, free)
            fewest = -(-ask.gang // free.occupancy.cluster.largest_node)
            if not isinstance(placed, Refused) and len(placed.nodes) <= fewest:
                return placed
            return fragmented(ask, free, fewest)
        return self._fill_fullest(ask, free)

    @staticmethod
    def _fill_fullest(ask: Ask, free: FreeGpus) -> Placement | Refused:
        """Use up the nodes with the fewest free GPUs first, so that whole nodes stay whole."""
        parts: list[tuple[int, int]] = []
        need = ask.gang
        for count in range(1, len(free.level)):
            nodes = free.with_exactly(count)
            while need and nodes:
                node = lowest_node(nodes)
                nodes ^= 1 << node
                parts.append((node, min(need, count)))
                need -= min(need, count)
        return free.across(sorted(parts)) if not need else fragmented(ask, free, 1)

    def sameness(self, ask: Ask) -> object:
        """Skewed and other jobs of one size are refused differently."""
        return (ask.gang, self.consolidates(ask))
