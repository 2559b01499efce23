"""Virtual clusters as shared quotas: so many GPUs each, anywhere, with or without borrowing.

A virtual cluster with `borrow` may use what others leave idle, up to the whole cluster; jobs beyond
its guaranteed GPUs come last and are the first to be preempted. Without `borrow`, its quota is its
ceiling. Jobs of no virtual cluster that the cluster file names are bound by nothing.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.cluster import Cluster
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.stage import Entitlements, FairnessPolicy
from dlsched.core.units import Units

__all__ = ["VcQuota"]


class VcQuota(FairnessPolicy[NoOptions]):
    """Entitlement = guaranteed GPUs; ceiling = quota, or everything where borrowing is allowed."""

    name = "vc-quota"
    summary = (
        "quotas of the cluster file's virtual clusters, with borrowing (default if it has any)"
    )

    def entitle(self, units: Units, ctx: RoundContext) -> Entitlements | None:
        """The cluster file's quotas, as they stand."""
        vcs = ctx.occupancy.cluster.vcs
        names = ctx.table.names["vc"]
        entitlement = np.full(len(names), np.inf)
        ceiling = np.full(len(names), np.inf)
        for code, name in enumerate(names):
            vc = vcs.get(name)
            if vc is not None and vc.gpus >= 0:
                entitlement[code] = vc.guaranteed
                ceiling[code] = np.inf if vc.borrow else vc.gpus
        return Entitlements(entitlement, ceiling) if np.isfinite(entitlement).any() else None

    def most(self, vc: str, cluster: Cluster) -> float:
        """The quota of one that may not borrow."""
        quota = cluster.vcs.get(vc)
        bound = quota is not None and quota.gpus >= 0 and not quota.borrow
        return float(quota.gpus) if quota is not None and bound else np.inf
