"""The checkpoints of jobs as users see them; where they are is for their owner and operators."""

from __future__ import annotations

from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.job_filters import (
    chosen_ids,
    names_jobs,
    no_such,
    stored_filter,
    stored_names,
)
from dlsched.db.checkpoints import KEPT
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

MOST = 10_000


async def checkpoints(
    cluster: Cluster, request: control_pb2.CheckpointsRequest, caller: Identity
) -> control_pb2.CheckpointsReply:
    """The checkpoints that are there, latest first.

    Raises:
        NotFound: a named job does not exist.
    """
    driver, wanted = cluster.driver, stored_filter(request.filter, caller)
    rows = await driver.read(partial(driver.store.checkpoints, wanted, limit=MOST))
    if not rows and names_jobs(request.filter):
        await _require_jobs(cluster, request.filter)
    reply, seen = control_pb2.CheckpointsReply(), set()
    for row in rows:
        view = reply.checkpoints.add(
            job=row.job,
            array_job=row.array_job,
            array_task=row.array_task,
            user=row.user,
            run=row.run,
            step=row.step,
            bytes=row.size_bytes,
            at=row.at,
            loss=row.loss,
            source=row.source or 0,
            next=row.state == KEPT and row.job not in seen,
        )
        seen.update([row.job] if view.next else [])
        used = cluster.checkpoints.holders(row.owner, row.path)
        view.used_by.extend(job for job in used if job != row.job)
        if caller.is_operator or caller.name == row.user:
            view.path = row.path
    return reply


async def _require_jobs(cluster: Cluster, wanted: control_pb2.Filter) -> None:
    for name, ids in (await stored_names(cluster, chosen_ids(cluster, wanted).missing)).items():
        if not ids:
            raise no_such(name)
