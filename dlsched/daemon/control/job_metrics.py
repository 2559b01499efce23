"""The course of a job's loss and metrics, from memory or from the database."""

from __future__ import annotations

from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.job_filters import owned_job
from dlsched.daemon.reported.curves import JobCurves
from dlsched.protocol.messages import JobId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2


async def job_metrics(
    cluster: Cluster, request: control_pb2.MetricsRequest, caller: Identity
) -> control_pb2.MetricsReply:
    """The curves of a job, live or ended; none when it has reported nothing.

    Raises:
        NotFound: there is no such job.
        NotAllowed: it is another user's.
    """
    driver, job = cluster.driver, JobId(request.job)
    await owned_job(cluster, request.job, caller)
    found = cluster.curves.jobs.get(job)
    if found is None:
        stored = await driver.read(partial(driver.store.curves, job))
        found = JobCurves() if stored is None else JobCurves.of_known(stored.known)
    reply = control_pb2.MetricsReply(left_out=min(found.left_out, 2**31 - 1))
    for name, curve in sorted(found.curves.items()):
        points = curve.all()
        reply.curves.add(
            name=name,
            at=[at for at, _, _ in points],
            step=[step for _, step, _ in points],
            value=[value for _, _, value in points],
        )
    return reply
