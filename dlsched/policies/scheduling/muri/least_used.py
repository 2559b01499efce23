"""Which GPUs an opportunistic job gets: the least used ones (Muri's simulation of AntMan).

A job counts as the use of a fixed part of each of its GPUs. The sums are carried on from decision
to decision, as there: among GPUs that no job uses, what rounding has left decides.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.memory import Remembering, by_row, kept, together
from dlsched.core.walk.co_location import is_known_beside
from dlsched.core.walk.walk import Walk

OPPORTUNISTIC, GUARANTEED = 0.9, 0.1
STARTED = 0.01  # what a guaranteed job counts more when it runs than while it keeps GPUs
KEPT = GUARANTEED - STARTED
FULL = 0.8  # an opportunistic job gets GPUs that are used less


class GpuUse(Remembering):
    """How much of each GPU is used, and by which jobs."""

    _use: Floats = kept(lambda: np.zeros(0), np.array, key="gpu_use")  # of each GPU of the cluster
    _counted: dict[int, tuple[float, list[int]]] = by_row(together)  # part, and GPUs

    def follow(self, occupancy: Occupancy) -> None:
        """Count the jobs that have come, and no longer those that have left."""
        cluster, held, kept = occupancy.cluster, occupancy.held, occupancy.reserved
        if len(self._use) != cluster.total_gpus:  # nodes have come or gone: count anew
            self._use, self._counted = np.zeros(cluster.total_gpus), {}
        for row in [row for row in self._counted if row not in held and row not in kept]:
            self._leave(row)
        for row, placement in kept.items():
            self._keep(row, placement.gpu_ids(cluster))
        for row, placement in held.items():
            part = self._counted.get(row, (0.0,))[0]
            if row in occupancy.opportunistic and part != OPPORTUNISTIC:
                self._counted[row] = OPPORTUNISTIC, placement.gpu_ids(cluster)
                self._use[placement.gpu_ids(cluster)] += OPPORTUNISTIC
            elif row not in occupancy.opportunistic and part != GUARANTEED:
                self._keep(row, placement.gpu_ids(cluster))
                self._counted[row] = GUARANTEED, placement.gpu_ids(cluster)
                self._use[placement.gpu_ids(cluster)] += STARTED

    def _keep(self, row: int, gpus: list[int]) -> None:
        """A guaranteed job keeps GPUs, of which it may have kept others before."""
        _, before = self._counted.get(row, (KEPT, []))
        self._use[[gpu for gpu in gpus if gpu not in before]] += KEPT
        self._use[[gpu for gpu in before if gpu not in gpus]] -= KEPT
        self._counted[row] = KEPT, gpus

    def _leave(self, row: int) -> None:
        part, gpus = self._counted.pop(row)
        self._use[gpus] -= part

    def least_used(self, row: int, walk: Walk) -> Placement | None:
        """The least used GPUs for a job, of equal ones the first; None where there are too few."""
        cluster, gang, chosen = walk.occupancy.cluster, walk.table.gang.item(row), list[int]()
        has_room = self._use < FULL
        if np.count_nonzero(has_room) < gang:
            return None
        candidates = np.flatnonzero(has_room & _open_to(row, walk))
        for gpu in candidates[np.argsort(self._use[candidates], kind="stable")].tolist():
            node = cluster.node_of_gpu(gpu)
            if is_known_beside(row, node, gpu - cluster.first_gpu.item(node), walk):
                chosen.append(gpu)
            if len(chosen) == gang:
                return Placement.of_gpu_ids(chosen, cluster)
        return None

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """A row that is gone uses no GPU."""
        there = set(old.tolist())
        for row in [row for row in self._counted if row not in there]:
            self._leave(row)
        super().renumber(old, finished_gone)


def _open_to(row: int, walk: Walk) -> Bools:
    """Which GPUs of the cluster a job may use."""
    occupancy = walk.occupancy
    nodes = walk.ctx.pools.nodes[walk.table.pool.item(row)] & occupancy.open_nodes
    is_open = np.array([bool(nodes >> node & 1) for node in range(len(occupancy.cluster))])
    found = np.repeat(is_open, occupancy.cluster.gpus)
    for node, mask in occupancy.closed.items():
        first = occupancy.cluster.first_gpu.item(node)
        found[[first + gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]] = False
    return found
