"""Which GPUs an opportunistic job may use beside their owners, and which of them it gets.

Source: AntMan's scheduler plug-in. A GPU is a candidate while its use and its most memory, over the
last 30 s, are below bounds; the least used one is taken, and a node is as good as its best GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.gpu_request import GpuRequest
from dlsched.core.units import UnitTable
from dlsched.core.walk.co_location import is_known_beside
from dlsched.core.walk.walk import Walk

WHOLE = 100.0  # percent


def candidates(used: Floats, memory: Floats, most_used: float, most_memory: float) -> Bools:
    """Which GPUs have room for one more job.

    Args:
        used: of each GPU in percent; NaN where it is not known.
        memory: of each GPU at most, in any unit; NaN counts as none.
        most_used: bound of the first, exclusive.
        most_memory: bound of the second, exclusive.
    """
    return np.asarray((used < most_used) & (np.nan_to_num(memory) < most_memory))


def best(used: Floats, allowed: Bools, count: int = 1) -> list[int]:
    """The least used of the allowed GPUs, of equal ones the first; empty when there are too few."""
    found: list[int] = np.flatnonzero(allowed).tolist()
    found.sort(key=lambda gpu: (used.item(gpu), gpu))
    return sorted(found[:count]) if len(found) >= count else []


def score(used: Floats, allowed: Bools) -> float:
    """How good a node is: what its best GPU leaves, in percent; 0 without a candidate."""
    chosen = best(used, allowed)
    return WHOLE - used.item(chosen[0]) if chosen else 0.0


class Leftovers:
    """The GPUs of a cluster in one decision, as opportunistic jobs see them."""

    def __init__(
        self,
        walk: Walk,
        most_used: float,
        most_memory: float,
        most_opportunistic: int,
        undivided: Sequence[int] = (),
    ) -> None:
        """Look at what every GPU is used for.

        Args:
            walk: the decision's walk.
            most_used: percent of a GPU's time, exclusive.
            most_memory: part of its memory, exclusive.
            most_opportunistic: opportunistic jobs on a GPU at most.
            undivided: rows beside which no more job may start.
        """
        self._walk = walk
        self._most_used, self._most_memory = most_used, most_memory
        self._most_opportunistic = most_opportunistic
        cluster = walk.occupancy.cluster
        self._first, self._gpus = cluster.first_gpu, cluster.gpus
        self._used = np.zeros(cluster.total_gpus)
        self._memory = np.zeros(cluster.total_gpus)
        self._opportunistic = np.zeros(cluster.total_gpus, np.int64)
        for row, placement in walk.occupancy.held.items():
            self._enter(row, placement, walk.table.gpu_limit.item(row))
        for row in undivided:
            self._used[walk.occupancy.held[row].gpu_ids(cluster)] = WHOLE

    def _enter(self, row: int, placement: Placement, part: float) -> None:
        """A row uses its GPUs for a part of the time."""
        at = placement.gpu_ids(self._walk.occupancy.cluster)
        self._used[at] += _use_of(row, self._walk.table) * part
        self._memory[at] += np.nan_to_num(self._walk.table.gpu_memory.item(row))
        self._opportunistic[at] += row in self._walk.occupancy.opportunistic

    def place(self, row: int) -> Placement | None:
        """GPUs of one node for a row, those of the best node; None when no node has enough."""
        walk, gang = self._walk, self._walk.table.gang.item(row)
        chosen: tuple[float, int, Placement] | None = None
        for node in _nodes_of(walk, row):
            placement, node_score = self._on_node(row, node, gang)
            if placement is not None and (chosen is None or node_score > chosen[0]):
                chosen = node_score, node, placement
        if chosen is None:
            return None
        self._enter_new(row, chosen[2])
        return chosen[2]

    def _enter_new(self, row: int, placement: Placement) -> None:
        """A row that begins counts in full: what it uses was not measured beside others yet."""
        self._enter(row, placement, 1.0)
        self._opportunistic[placement.gpu_ids(self._walk.occupancy.cluster)] += 1

    def _on_node(self, row: int, node: int, gang: int) -> tuple[Placement | None, float]:
        occupancy, table = self._walk.occupancy, self._walk.table
        here = slice(self._first.item(node), self._first.item(node) + self._gpus.item(node))
        used, most = self._used[here], self._memory[here]
        has = occupancy.cluster.gpu_memory.item(occupancy.type_of.item(node))
        has = math.inf if math.isnan(has) else has  # where it is not known, it bounds nothing
        needs = float(np.nan_to_num(table.gpu_memory.item(row)))
        allowed = candidates(used, most, self._most_used, self._most_memory * has)
        allowed &= (self._opportunistic[here] < self._most_opportunistic) & (most + needs <= has)
        shut = occupancy.closed.get(node, 0)
        for gpu in np.flatnonzero(allowed).tolist():
            allowed[gpu] = not shut >> gpu & 1 and is_known_beside(row, node, gpu, self._walk)
        chosen = best(used, allowed, gang)
        if not chosen:
            return None, 0.0
        placement = Placement((node,), (sum(1 << gpu for gpu in chosen),))
        if not self._walk.has_host_for(row, placement):
            return None, 0.0
        return placement, score(used, allowed)


def _nodes_of(walk: Walk, row: int) -> list[int]:
    """The nodes that a row may use now, ascending; an opportunistic job has all GPUs on one."""
    table, occupancy = walk.table, walk.occupancy
    nodes = walk.ctx.pools.nodes[table.pool.item(row)] & occupancy.open_nodes
    request = GpuRequest(row, table.gang.item(row), table)
    if request.is_shaped and len(request.shape) != 1:
        return []
    found = []
    while nodes:
        low = nodes & -nodes
        found.append(low.bit_length() - 1)
        nodes ^= low
    return found


def _use_of(row: int, table: UnitTable) -> float:
    """The use of its GPUs by a row alone, in percent; NaN where it is not known."""
    known = table.extra.get("gpu_util")
    if known is None or known.dtype == np.object_:
        return math.nan
    return float(known[row])
