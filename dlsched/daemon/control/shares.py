"""The tree of fair shares as it is now: what is due to each tenant, and what it has used."""

from __future__ import annotations

import numpy as np

from dlsched.core.sharing.fair_shares import Share, fair_shares
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.live import job_columns as c
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2


def put_shares(cluster: Cluster, caller: Identity, reply: control_pb2.UsageReply) -> None:
    """Put in the tenants, each after its group; of users, others than operators see themselves."""
    live = cluster.live
    usage, site = live.jobs.usage, live.rules.site
    reply.half_life_s, reply.level = usage.half_life_s, site.level
    here = np.zeros(len(usage.owners), np.bool_)
    here[live.jobs["owner"][live.jobs["phase"] != c.ENDED]] = True
    vcs = {vc.name: vc for vc in live.rules.vcs}
    rows = fair_shares(site, vcs, usage.owners, usage.as_of(cluster.now), here).rows
    below: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        below.setdefault(row.parent, []).append(number)

    def put(above: int, depth: int) -> None:
        for number in sorted(below.get(above, ()), key=lambda n: (rows[n].kind, rows[n].name)):
            row = rows[number]
            if row.kind != "user" or caller.is_operator or row.name == caller.name:
                reply.shares.append(_view(row, rows[above].name if above >= 0 else "", depth))
            put(number, depth + 1)

    put(-1, 0)


def _view(row: Share, group: str, depth: int) -> control_pb2.ShareView:
    return control_pb2.ShareView(
        kind=row.kind,
        name=row.name,
        group=group,
        depth=depth,
        weight=row.weight,
        share=row.share,
        used_gpu_s=row.used,
        usage=row.usage,
        effective=row.effective,
        factor=row.factor,
    )
