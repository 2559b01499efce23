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
from dlsched.db.checkpoints import KEPT, StoredUnsaved
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
    unsaved = await driver.read(partial(driver.store.unsaved, wanted, MOST))
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
    reply.unsaved.extend(
        unsaved_view(each, mine=caller.is_operator or caller.name == each.user) for each in unsaved
    )
    return reply


def unsaved_view(row: StoredUnsaved, *, mine: bool) -> control_pb2.UnsavedView:
    """A checkpoint that could not be written; why is for the job's owner and operators."""
    return control_pb2.UnsavedView(
        job=row.unsaved.job,
        array_job=row.array_job,
        array_task=row.array_task,
        step=row.unsaved.step,
        at=row.unsaved.at,
        why=row.unsaved.why if mine else "",
        in_a_row=row.unsaved.in_a_row,
        newest_step=row.newest_step,
        newest_at=row.newest_at,
    )


async def _require_jobs(cluster: Cluster, wanted: control_pb2.Filter) -> None:
    for name, ids in (await stored_names(cluster, chosen_ids(cluster, wanted).missing)).items():
        if not ids:
            raise no_such(name)
