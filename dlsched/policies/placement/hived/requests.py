"""From rows of the unit table to requests for cells, and from GPUs of cells to placements.

A job's priority decides what it is: below 0 it is opportunistic, else guaranteed, in the cells of
its virtual cluster; without a priority it is guaranteed at 0. Its column `cell` names a pinned
cell. A job that asks for so many GPUs on each of so many nodes is a gang of as many pods, each on a
node of its own; one that asks for GPUs alone gets pods as large as nodes, and one with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dlsched.core.cluster.cells import CellPlan, Grant
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.gpu_request import GpuRequest
from dlsched.policies.placement.hived.cells import HIGHEST, OPPORTUNISTIC, Physical
from dlsched.policies.placement.hived.cluster_cells import Owned
from dlsched.policies.placement.hived.gangs import Pods, Request, pod_sizes

PIN_COLUMN = "cell"


def cells_of(cluster: Cluster) -> tuple[CellPlan, Owned]:
    """The cells of a cluster, and what its virtual clusters own.

    Where none owns any, all jobs are one tenant's, without a name, which owns all cells.
    """
    plan, owned = cluster.cells, cluster.cell_owners
    if owned:
        return plan, owned
    tops = [name for name, _ in plan.tops]
    return plan, {"": (tuple(Grant(type=name, count=1) for name in tops), tuple(plan.pins))}


def cell_priority(priority: float) -> int:
    """The priority of a job's cells: -1 below 0, 0 where the job says nothing."""
    if math.isnan(priority):
        return 0
    return OPPORTUNISTIC if priority < 0 else int(min(priority, HIGHEST + 1))


def request_of(
    asked: GpuRequest, cluster: Cluster, allowed: frozenset[str] | None, *, lazy: bool
) -> Request:
    """What a row asks for.

    Args:
        asked: the row's request.
        cluster: whether its virtual clusters own cells.
        allowed: names of the machines that it may use; None for all.
        lazy: may gangs be made opportunistic instead of being evicted?
    """
    pin = asked.extra(PIN_COLUMN)
    return Request(
        name=str(asked.row),
        vc=asked.vc if cluster.cell_owners else "",
        priority=cell_priority(asked.priority),
        pods=pod_sizes(asked.shape),
        gpus=asked.gang,
        whole=asked.whole,
        apart=bool(asked.shape) or asked.whole,
        pin=pin if isinstance(pin, str) else "",
        lazy=lazy,
        allowed=allowed,
    )


def placement_of(pods: Pods, index_of: dict[str, int]) -> Placement:
    """The GPUs of pods by node, in the order in which the pods are on them."""
    masks: dict[int, int] = {}
    for gpu in (gpu for pod in pods for gpu in pod):
        node = index_of[gpu.node]
        masks[node] = masks.get(node, 0) | 1 << gpu.index
    return Placement((*masks,), (*masks.values(),))


def pods_of(
    placement: Placement, names: Sequence[str], gpus_of: dict[str, dict[int, Physical]]
) -> Pods:
    """A pod for each node of a placement, the smallest first, of GPUs that are free cells."""
    pods: Pods = []
    for node, mask in zip(placement.nodes, placement.masks, strict=True):
        cells = gpus_of.get(names[node], {})
        pod = [cells[k] for k in range(mask.bit_length()) if mask >> k & 1 and k in cells]
        free = [gpu for gpu in pod if gpu.user is None]
        if free:
            pods.append(free)
    return sorted(pods, key=len)


def names_in(nodes: int, names: Sequence[str]) -> Iterable[str]:
    """The names of nodes that are given as bits."""
    return (name for node, name in enumerate(names) if nodes >> node & 1)
