"""What units want of their nodes (section 4.1): the share with which they have their full speed.

A unit that fits on one node wants at most what one node has. One that needs several nodes has its
proportional share where it would like more. A unit that asks for processors or memory itself gets
what it asks for, and of units without a profile nothing is known that would justify another share
than the proportional one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.cluster.description import Cluster
from dlsched.core.host_shares import HostDemand
from dlsched.core.speed.belief import Belief
from dlsched.core.speed.sensitivity import proportional_share
from dlsched.core.units import Units

Mode = Literal["fair", "greedy", "tune", "opt"]


def demand_of(units: Units, cluster: Cluster, perf: Belief, mode: Mode) -> HostDemand:
    """What units want for each GPU, [unit, (processors, GB)]; 0 for what the cluster does not say.

    Args:
        units: some of them.
        cluster: their nodes.
        perf: what is believed of their speeds.
        mode: `fair`: all units want their proportional share.
    """
    proportional = np.array(proportional_share(cluster))
    usual = np.tile(proportional, (len(units), 1))
    best = usual.copy()
    if mode != "fair" and perf.by_host is not None:
        gang = units.gang[:, None].astype(np.float64)
        ideal = perf.by_host.ideal(units.rows)
        best = np.where(np.isnan(ideal), usual, ideal)
        largest = np.array([_most(cluster.cpus), _most(cluster.memory_gb)])
        over = gang * best > largest
        fits = gang <= cluster.largest_node
        best = np.where(fits & over, largest / gang, best)
        best = np.where(~fits & over.any(axis=1, keepdims=True), usual, best)
    best[:, proportional == 0] = 0.0
    least = np.minimum(best, usual)
    asked: Floats = np.stack([units.cpus, units.memory_gb], axis=1) / units.gang[:, None]
    asked[:, proportional == 0] = np.nan
    return HostDemand(
        best=np.where(np.isnan(asked), best, asked), least=np.where(np.isnan(asked), least, asked)
    )


def _most(values: Floats) -> float:
    """The most that a node has; infinite where that is not known."""
    return np.inf if np.isnan(values).all() else float(np.nanmax(values))
