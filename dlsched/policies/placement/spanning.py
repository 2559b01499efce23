"""Placements that may span nodes and so never fail while enough GPUs are free.

First-free (Blox' scattered), min-nodes, best-fit, worst-fit, random.
GPU ids ascend inside a node; ties go to the lowest node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.cluster.occupancy import Placement, lowest_node
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.memory import kept
from dlsched.core.options import NoOptions, option
from dlsched.core.stage import PlacementPolicy


def too_few(request: GpuRequest, free: FreeGpus) -> Refused:
    """The only refusal of a spanning placement: too few free GPUs."""
    return Refused.too_few_free(request.gang, free.total)


def members(nodes: int) -> Iterator[int]:
    """The nodes of a set of bits, ascending."""
    while nodes:
        yield lowest_node(nodes)
        nodes &= nodes - 1


def taken_in_turn(gang: int, free: FreeGpus, nodes: Iterable[int]) -> list[tuple[int, int]] | None:
    """What each node gives if they are used up in this order; None when they have too few."""
    parts: list[tuple[int, int]] = []
    for node in nodes:
        parts.append((node, min(gang, free.usable_on(node))))
        gang -= parts[-1][1]
        if not gang:
            return parts
    return None


def tightest_node(free: FreeGpus, gang: int) -> int:
    """The node with the fewest usable GPUs that still holds the gang (lowest id), or -1."""
    usable = free.nodes
    for members in free.level[gang:]:
        nodes = members & usable
        if nodes:
            return lowest_node(nodes)
    return -1


class FirstFree(PlacementPolicy[NoOptions]):
    """Nodes ascending, GPUs ascending, free ones until the gang is met."""

    name = "first-free"
    summary = "nodes and GPUs in ascending order, may span"
    spans = True
    takes_lowest = True

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Take the first free GPUs; refused only when the pool has too few."""
        some = free.with_at_least(1)
        if some and free.usable_on(lowest_node(some)) >= request.gang:
            return free.one_node(lowest_node(some), request.gang)
        parts = taken_in_turn(request.gang, free, members(some))
        return too_few(request, free) if parts is None else free.across(parts)


class Count(FirstFree):
    """Counting only: the cluster is one pool of identical GPUs."""

    name = "count"
    summary = "GPU counting only: the cluster is one pool of identical GPUs"


class MinNodes(PlacementPolicy[NoOptions]):
    """The fewest nodes; of these sets the one with fewest GPUs left over; then the lowest ids."""

    name = "min-nodes"
    summary = "fewest nodes, then least left over; may span (default)"
    spans = True

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Take the tightest single node, or else the smallest set of nodes."""
        node = tightest_node(free, request.gang)
        if node >= 0:
            return free.one_node(node, request.gang)
        usable = free.nodes
        counts = fewest_nodes([(each & usable).bit_count() for each in free.level], request.gang)
        if counts is None:
            return too_few(request, free)
        parts: list[tuple[int, int]] = []
        need = request.gang
        for size in range(len(counts) - 1, 0, -1):  # whole nodes first, the last gives the rest
            nodes = free.with_exactly(size)
            for _ in range(counts[size]):
                node = lowest_node(nodes)
                nodes ^= 1 << node
                parts.append((node, min(size, need)))
                need -= min(size, need)
        return free.across(sorted(parts))


def fewest_nodes(available: list[int], gang: int) -> list[int] | None:
    """How many nodes of each size to use: fewest nodes, then least left over, large nodes first.

    `available` is the number of nodes by usable GPUs.

    Returns:
        the number of nodes to use by usable GPUs; None when all together have too few.
    """
    nodes, reach = 0, 0
    for size in range(len(available) - 1, 0, -1):  # the largest nodes give the least number
        used = min(available[size], -((reach - gang) // size)) if reach < gang else 0
        nodes += used
        reach += used * size
    if reach < gang:
        return None
    largest = len(available) - 1
    while available[largest] == 0:
        largest -= 1
    if gang % largest == 0 and available[largest] >= gang // largest:
        return [0] * largest + [gang // largest]  # whole nodes, nothing left over
    return _least_left_over(available, gang, nodes)


def _least_left_over(available: list[int], gang: int, nodes: int) -> list[int]:
    """Among multisets of exactly `nodes` sizes, one with the least sum that reaches the gang.

    `sums[n]` has bit s set when some n of the sizes seen so far add up to s; the choice is read
    back from the last size to the first, preferring large nodes among equals.
    """
    sizes = [size for size in range(1, len(available)) if available[size]]  # ascending
    sums = [1] + [0] * nodes
    history = [sums]
    for size in sizes:
        grown = sums[:]
        for used in range(1, min(available[size], nodes) + 1):
            for n in range(used, nodes + 1):
                grown[n] |= sums[n - used] << (used * size)
        sums = grown
        history.append(sums)
    reachable = sums[nodes] >> gang
    total = gang + (reachable & -reachable).bit_length() - 1
    counts = [0] * len(available)
    n = nodes
    for step in range(len(sizes), 0, -1):
        size = sizes[step - 1]
        for used in range(min(available[size], n, total // size), -1, -1):
            if history[step - 1][n - used] >> (total - used * size) & 1:
                counts[size] = used
                n -= used
                total -= used * size
                break
    return counts


class BestFit(PlacementPolicy[NoOptions]):
    """Least fragmentation: the tightest node; if none holds the gang, the fullest-free first."""

    name = "best-fit"
    summary = "tightest single node, else nodes with most free GPUs; may span"
    spans = True

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Nodes by free GPUs descending until the rest fits one node, the tightest such."""
        parts: list[tuple[int, int]] = []
        need, taken = request.gang, 0
        while need:
            rest = FreeGpusWithout(free, taken)
            node = tightest_node(rest, need)
            if node < 0:
                node = roomiest_node(rest)
                if node < 0:
                    return too_few(request, free)
            got = min(need, free.usable_on(node))
            parts.append((node, got))
            taken |= 1 << node
            need -= got
        return free.across(sorted(parts))


class Fullest(PlacementPolicy[NoOptions]):
    """The node with the fewest free GPUs that holds the gang; else the fullest nodes one by one."""

    name = "fullest"
    summary = "the fullest node that holds the gang, else the fullest nodes first; may span"
    spans = True

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Nodes by free GPUs ascending, also by those that lack processors or memory."""
        of_node = free.occupancy.free
        some = members(free.with_at_least(1))
        nodes = [node for _, node in sorted((of_node[node].bit_count(), node) for node in some)]
        for node in nodes:
            if free.usable_on(node) >= request.gang:
                return free.one_node(node, request.gang)
        parts = taken_in_turn(request.gang, free, nodes)
        return too_few(request, free) if parts is None else free.across(sorted(parts))


class FreeGpusWithout(FreeGpus):
    """The same free GPUs without some nodes."""

    __slots__ = ()

    def __init__(self, free: FreeGpus, without: int) -> None:
        self.occupancy, self.level, self._usable = free.occupancy, free.level, free._usable
        self.nodes = free.nodes & ~without


def roomiest_node(free: FreeGpus) -> int:
    """The node with the most usable GPUs (lowest id), or -1 when none has any."""
    for count in range(len(free.level) - 1, 0, -1):
        nodes = free.with_exactly(count)
        if nodes:
            return lowest_node(nodes)
    return -1


class Roomiest(PlacementPolicy[NoOptions]):
    """Always the node with the most free GPUs; ranks go to nodes in the order of taking them."""

    name = "roomiest"
    summary = "the node with most free GPUs first, ranks in that order; may span"
    spans = True
    ranks_ascend: ClassVar[bool] = False  # do they go to nodes in the order of their numbers?

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Take from the emptiest node, then the next emptiest."""
        counts = range(len(free.level) - 1, 0, -1)
        roomy = (node for count in counts for node in members(free.with_exactly(count)))
        parts = taken_in_turn(request.gang, free, roomy)
        if parts is None:
            return too_few(request, free)
        return free.across(sorted(parts) if self.ranks_ascend else parts)


class WorstFit(Roomiest):
    """Spread: always the node with the most free GPUs, nodes ascending."""

    name = "worst-fit"
    summary = "the node with most free GPUs first (spread); may span"
    ranks_ascend = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomOptions:
    """Random placement."""

    seed: int = option(0, "seed of the placement's own generator; by default the run's seed", low=0)


def _generator(state: Any) -> np.random.Generator:
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    return rng


class RandomNodes(PlacementPolicy[RandomOptions]):
    """Nodes drawn uniformly among those with a free GPU, one GPU at a time."""

    name = "random"
    summary = "nodes drawn at random, one GPU at a time; may span"
    spans = True

    _rng: np.random.Generator = kept(None, _generator, store=lambda rng: rng.bit_generator.state)

    def __init__(self, options: RandomOptions) -> None:
        super().__init__(options)
        self._rng = np.random.default_rng(options.seed)

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Draw node after node; the sequence continues from decision to decision."""
        left = {node: free.usable_on(node) for node in members(free.with_at_least(1))}
        if sum(left.values()) < request.gang:
            return too_few(request, free)
        got: dict[int, int] = {}
        for _ in range(request.gang):
            nodes = list(left)
            node = nodes[int(self._rng.integers(len(nodes)))]
            got[node] = got.get(node, 0) + 1
            left[node] -= 1
            if not left[node]:
                del left[node]
        return free.across(sorted(got.items()))
