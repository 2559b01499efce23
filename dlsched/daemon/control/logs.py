"""A job's output, passed on as the agent of its node sends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import grpc

from dlsched.core.errors import BadInput, Unavailable
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.job_filters import no_such
from dlsched.daemon.launching import is_labelled, output_request, ranks_of
from dlsched.daemon.rpc_errors import NotFound, NotPossible
from dlsched.protocol.ledger import Job, Run
from dlsched.protocol.messages import JobId, NodeName
from dlsched.rpc.authorisation import require_owner
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2


async def logs(
    cluster: Cluster, request: control_pb2.LogsRequest, caller: Identity
) -> AsyncIterator[control_pb2.LogChunk]:
    """The output of a run on one node: all of a file, or what one rank wrote.

    Raises:
        DlschedError: when there is none, or its node does not answer.
    """
    job, run = await _run(cluster, request, caller)
    body = cluster.driver.table.spec(job).body
    if body.terminal and not (request.error and body.error):
        raise NotPossible(f"job {job.job} is interactive: its client has its output, no file")
    node, rank = _place(job, run, request)
    stub = cluster.agents.stub(node)
    if stub is None:
        raise Unavailable(f"node {node} has not said where its agent listens")
    asked = output_request(cluster, job, run, node, rank=rank, error=request.error)
    if request.HasField("rank"):
        spec = cluster.driver.table.spec(job)
        asked.only_rank = is_labelled(job, run, spec, error=request.error)
    asked.tail_lines, asked.follow = request.tail_lines, request.follow
    try:
        async for chunk in stub.Output(asked):
            yield control_pb2.LogChunk(data=chunk.data)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            raise Unavailable(f"node {node} does not answer") from None
        if error.code() is grpc.StatusCode.NOT_FOUND:
            raise NotFound(error.details()) from None
        raise NotPossible(error.details() or str(error.code())) from None


def _place(job: Job, run: Run, request: control_pb2.LogsRequest) -> tuple[NodeName, int]:
    """The node and the rank whose output a request means.

    Raises:
        BadInput: the run has no such rank or node, or not that rank on that node.
    """
    ranks, what = ranks_of(job, run), f"run {run.key.run} of job {job.job}"
    if request.node and request.node not in run.members:
        raise BadInput(f"node {request.node}: {what} is on {', '.join(run.members)}")
    wanted = NodeName(request.node)
    if not request.HasField("rank"):
        node = wanted or next(iter(run.members))
        return node, next(iter(ranks.get(node, (0,))))
    for node, of_node in ranks.items():
        if request.rank in of_node and wanted in ("", node):
            return node, request.rank
    if wanted:
        of_node = ranks.get(wanted, range(0))
        has = f"{of_node[0]} to {of_node[-1]}" if of_node else "none"
        raise BadInput(f"rank {request.rank}: the ranks of {what} on {wanted} are {has}")
    count = sum(map(len, ranks.values()))
    only = "only rank 0" if count == 1 else f"ranks 0 to {count - 1}"
    raise BadInput(f"rank {request.rank}: {what} has {only}")


async def _run(
    cluster: Cluster, request: control_pb2.LogsRequest, caller: Identity
) -> tuple[Job, Run]:
    """The run that a request means; another user's is refused without any further detail."""
    driver, job = cluster.driver, JobId(request.job)
    number = request.run if request.HasField("run") else None
    row = driver.committed.jobs.get(job)
    if row is not None:
        require_owner(caller, row.request.user, f"job {request.job}")
    runs = driver.committed.runs_of_job(job)
    found = [run for run in runs if number is None or run.key.run == number]
    if row is not None and found:
        return row, found[-1]
    stored = await driver.read(partial(driver.store.protocol_jobs, [job]))
    if job not in stored:
        raise no_such(str(request.job))
    require_owner(caller, stored[job].request.user, f"job {request.job}")
    kept = await driver.read(partial(driver.store.runs, job))
    some = [each.run for each in kept if number is None or each.run.key.run == number]
    if not some:
        raise NotFound(
            f"job {request.job} has not run yet" if number is None else f"there is no run {number}"
        )
    return stored[job], some[-1]
