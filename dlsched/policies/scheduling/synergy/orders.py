"""The orders in which Synergy's simulator serves jobs: smaller keys first, ties by arrival.

`drf` and `tetris` count processors and memory beside GPUs, each as a part of the cluster's.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.cluster.description import Cluster
from dlsched.core.units import Units

Order = Literal["fifo", "las", "srtf", "ftf", "drf", "tetris"]
BY_TIME_LEFT: frozenset[Order] = frozenset({"srtf", "ftf", "tetris"})


def order_key(
    order: Order,
    units: Units,
    *,
    left_s: Floats,
    total_s: Floats,
    best: Floats,
    cluster: Cluster,
) -> Floats:
    """The key of each unit.

    Args:
        order: which.
        units: to be ranked.
        left_s: seconds that each still needs, at its present speed.
        total_s: seconds that each needs in all, with its proportional share.
        best: what each wants for each GPU, [unit, (processors, GB)].
        cluster: all nodes.
    """
    if order == "fifo":
        return units.submit_time
    if order == "las":
        return units.attained
    if order == "srtf":
        return left_s
    if order == "ftf":
        return (units.now - units.submit_time + left_s) / total_s
    gpus = units.gang.astype(np.float64)
    host = gpus[:, None] * best / [np.nansum(cluster.cpus), np.nansum(cluster.memory_gb)]
    parts = np.column_stack([gpus / cluster.total_gpus, host])
    if order == "drf":
        return np.asarray(np.nanmax(parts, axis=1))
    added: Floats = parts[:, 0] + parts[:, 1] + parts[:, 2]
    return np.asarray(added * left_s)
