"""Virtual clusters as shared quotas: so many GPUs each, anywhere, with or without borrowing.

A virtual cluster with `borrow` may use what others leave idle, up to the whole cluster; jobs beyond
its guaranteed GPUs come last and are the first to be preempted. Without `borrow`, its quota is its
ceiling. Jobs of no virtual cluster that the cluster file names are bound by nothing.

A quota may be a part of another (`parent`). Then what it uses counts there too, all the way up;
borrowers take first from the other parts of their parent, and come before those who borrow from
farther away.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.cluster.description import Cluster
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.stage import Entitlements, FairnessPolicy
from dlsched.core.units import Units


class VcQuota(FairnessPolicy[NoOptions]):
    """Entitlement = guaranteed GPUs; ceiling = quota, or everything where borrowing is allowed."""

    name = "vc-quota"
    summary = (
        "quotas of the cluster file's virtual clusters, with borrowing (default if it has any)"
    )

    def entitle(self, units: Units, ctx: RoundContext) -> Entitlements | None:
        """The cluster file's quotas, as they stand."""
        vcs = ctx.occupancy.cluster.vcs
        names = list(ctx.table.names["vc"])
        for name in names:  # grows: those above come behind
            above = vcs[name].parent if name in vcs else ""
            if above and above not in names:
                names.append(above)
        entitlement = np.full(len(names), np.inf)
        ceiling = np.full(len(names), np.inf)
        parent = np.full(len(names), -1)
        for code, name in enumerate(names):
            vc = vcs.get(name)
            if vc is not None and vc.gpus >= 0:
                entitlement[code] = vc.guaranteed
                ceiling[code] = np.inf if vc.borrow else vc.gpus
                parent[code] = names.index(vc.parent) if vc.parent else -1
        if not np.isfinite(entitlement).any():
            return None
        nested = bool((parent >= 0).any())
        return Entitlements(entitlement, ceiling, parent=parent if nested else None, names=names)

    def most(self, vc: str, cluster: Cluster) -> float:
        """The least quota on the way up of those that may not borrow."""
        least, quota = np.inf, cluster.vcs.get(vc)
        while quota is not None:
            if quota.gpus >= 0 and not quota.borrow:
                least = min(least, float(quota.gpus))
            quota = cluster.vcs.get(quota.parent)
        return least
