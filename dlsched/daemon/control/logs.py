"""A job's output: asked of the agent that has it, passed on as it comes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from dlsched.core.errors import BadInput, Unavailable
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.choosing import no_such
from dlsched.daemon.launching import expand_pattern, output_pattern
from dlsched.daemon.refusals import NotFound, Refused
from dlsched.protocol.ledger import Job, Run
from dlsched.protocol.messages import JobId, LaunchMode
from dlsched.rpc.authorisation import require_owner
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2, node_pb2

__all__ = ["logs"]

_NODE_RANK = re.compile(r"%([%n])")  # in an expanded pattern, where %% is a percent sign


async def logs(
    cluster: Cluster, request: control_pb2.LogsRequest, caller: Identity
) -> AsyncIterator[control_pb2.LogChunk]:
    """The output of a rank of a run.

    Raises:
        DlschedError: when there is none, or its node does not answer.
    """
    job, run = await _run(cluster, request, caller)
    members = list(run.members.values())
    if request.rank < 0:
        raise BadInput(f"rank {request.rank} is negative")
    node = members[0].node
    if job.request.mode is LaunchMode.NODE:
        if request.rank >= len(members):
            raise BadInput(f"rank {request.rank}: the run has {len(members)}")
        node = members[request.rank].node
    elif job.request.mode is LaunchMode.GPU:
        first = 0
        for member in members:
            if first <= request.rank < first + len(member.gpus):
                node = member.node
                break
            first += len(member.gpus)
        else:
            raise BadInput(f"rank {request.rank}: the run has {first}")
    stub = cluster.agents.stub(node)
    if stub is None:
        raise Unavailable(f"node {node} has not said where its agent listens")
    spec = cluster.shell.table.spec(job)
    own_error = expand_pattern(spec.body.error, job.job, spec) if request.error else ""
    place = str([member.node for member in members].index(node))
    asked = node_pb2.OutputRequest(
        key=to_wire(run.key),
        rank=request.rank,
        error=request.error,
        tail_lines=request.tail_lines,
        follow=request.follow,
        # the node drops a run's record once its end is stored: it then needs to be told where
        path=_NODE_RANK.sub(
            lambda found: place if found[1] == "n" else found[0],
            own_error or output_pattern(job.job, spec),
        ),
        user=spec.user,
        uid=spec.uid,
        working_directory=spec.body.working_directory,
    )
    try:
        async for chunk in stub.Output(asked):
            yield control_pb2.LogChunk(data=chunk.data)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            raise Unavailable(f"node {node} does not answer") from None
        if error.code() is grpc.StatusCode.NOT_FOUND:
            raise NotFound(error.details()) from None
        raise Refused(error.details() or str(error.code())) from None


async def _run(
    cluster: Cluster, request: control_pb2.LogsRequest, caller: Identity
) -> tuple[Job, Run]:
    """The run that is meant; who may not read it hears nothing else of it."""
    shell, job = cluster.shell, JobId(request.job)
    number = request.run if request.HasField("run") else None
    row = shell.committed.jobs.get(job)
    if row is not None:
        require_owner(caller, row.request.user, f"job {request.job}")
    runs = shell.committed.runs_of_job(job)
    found = [run for run in runs if number is None or run.key.run == number]
    if row is not None and found:
        return row, found[-1]
    stored: dict[JobId, Any] = await shell.read(partial(shell.store.protocol_jobs, [job]))
    if job not in stored:
        raise no_such(str(request.job))
    require_owner(caller, stored[job].request.user, f"job {request.job}")
    kept = await shell.read(partial(shell.store.runs, job))
    some = [each.run for each in kept if number is None or each.run.key.run == number]
    if not some:
        raise NotFound(
            f"job {request.job} has not run yet" if number is None else f"there is no run {number}"
        )
    return stored[job], some[-1]
