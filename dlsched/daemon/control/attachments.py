"""Clients of shells and ports inside jobs: authorised and counted here, passed on to the agent.

The daemon keeps nothing of what goes through: no message is read beyond its kind, and none waits
here but what gRPC's flow control lets through.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterator

import grpc

from dlsched.core.errors import BadInput, NotAllowed, Unavailable
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_text, check_words
from dlsched.daemon.control.job_filters import owned_job, subject
from dlsched.daemon.rpc_errors import NotFound, NotPossible, TooMuch
from dlsched.protocol.ledger import Job, JobStatus, Run
from dlsched.protocol.messages import NodeName
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import attach_pb2 as wire

OF_ONE, OF_JOB = 128, 64  # connections at a time, of one user and to one job
_TICKET = re.compile(r"[A-Za-z0-9]{8,64}", re.ASCII)
_ARGV_BYTES = 8 * 1024
_AWAY = (  # the client tries again
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,  # gRPC's own, when it writes to an agent that was just killed
)


class Attachments:
    """The connections of this daemon's clients to processes of jobs."""

    def __init__(self, cluster: Cluster) -> None:
        """Start without any attachment."""
        self._cluster = cluster
        self._counts: Counter[Hashable] = Counter()

    async def attach(
        self, inputs: AsyncIterator[wire.AttachInput], caller: Identity
    ) -> AsyncGenerator[wire.AttachOutput]:
        """Connect a client to a shell of a job.

        Raises:
            DlschedError: it may not, or there is none.
        """
        target = await _target(inputs)
        if _TICKET.fullmatch(target.ticket) is None:
            raise BadInput("ticket: not 8 to 64 letters and digits")
        check_text("terminal", target.term, 64)
        check_words("command", target.argv, _ARGV_BYTES)
        row = await self._job(target, caller)
        with self._counted(caller, row), self._cluster.interactive.client(row.job):
            if target.wait:
                async for status in self._start(row):
                    yield wire.AttachOutput(waits=status)
            async for output in self._passed_on("Attach", row, target, inputs):
                if output.HasField("attached"):
                    self._cluster.interactive.entered(row.job)
                yield output

    async def forward(
        self, inputs: AsyncIterator[wire.AttachInput], caller: Identity
    ) -> AsyncGenerator[wire.AttachOutput]:
        """Connect a client to a port at which a process of a job listens.

        Raises:
            DlschedError: it may not, or there is none.
        """
        target = await _target(inputs)
        if not 0 < target.port < 1 << 16:
            raise BadInput(f"port {target.port}: not within 1 and 65535")
        row = await self._job(target, caller)
        with self._counted(caller, row):
            async for output in self._passed_on("Forward", row, target, inputs):
                yield output

    # -- which job -----------------------------------------------------------------------------

    async def _job(self, target: wire.AttachTarget, caller: Identity) -> Job:
        """The job that a client may enter.

        Raises:
            DlschedError: there is none, it has ended, or it is not the caller's to enter.
        """
        row = await owned_job(self._cluster, target.job, caller)
        owner = row.request.user
        is_owner = caller.kind == "user" and caller.name == owner
        if not is_owner and self._cluster.settings.trust.attach == "owner":
            raise NotAllowed(f"{self._name(row)} belongs to {owner}; here only owners enter jobs")
        if row.status.is_terminal:
            raise NotPossible(f"{self._name(row)} has ended")
        return row

    def _name(self, row: Job) -> str:
        return f"job {subject(row, self._cluster)}"

    def _row_now(self, row: Job) -> Job:
        """The job's row as it is now.

        Raises:
            NotPossible: it has ended.
        """
        now = self._cluster.driver.committed.jobs.get(row.job)
        if now is None or now.status.is_terminal:
            raise NotPossible(f"{self._name(row)} has ended")
        return now

    @contextlib.contextmanager
    def _counted(self, caller: Identity, row: Job) -> Iterator[None]:
        job = row.job
        for key, most, what in ((caller, OF_ONE, str(caller)), (job, OF_JOB, self._name(row))):
            if self._counts[key] >= most:
                raise TooMuch(f"{what} has {most} connections into jobs, which is the most")
        self._counts.update((caller, job))
        try:
            yield
        finally:
            self._counts.subtract((caller, job))
            self._counts = +self._counts  # without those that are 0

    async def _start(self, row: Job) -> AsyncIterator[str]:
        """Each status of a job until it runs.

        Raises:
            NotPossible: it has ended.
        """
        told = ""
        while (row := self._row_now(row)).status in (JobStatus.PENDING, JobStatus.STARTING):
            if row.status.value != told:
                told = row.status.value
                yield told
                continue  # it may have changed meanwhile
            await self._cluster.interactive.change(row.job)

    def _place(self, row: Job, target: wire.AttachTarget) -> tuple[Run, NodeName]:
        """The run and the node that a target means.

        Raises:
            DlschedError: the job does not run, or not there.
        """
        row = self._row_now(row)
        run = self._cluster.driver.committed.live_run(row.job)
        if run is None or not run.released:
            raise NotPossible(f"{self._name(row)} does not run: it is {row.status.value}")
        if target.node and target.node not in run.members:
            raise NotFound(f"node {target.node}: {self._name(row)} is on {', '.join(run.members)}")
        return run, NodeName(target.node) or next(iter(run.members))

    # -- to the agent --------------------------------------------------------------------------

    async def _passed_on(
        self,
        method: str,
        row: Job,
        target: wire.AttachTarget,
        inputs: AsyncIterator[wire.AttachInput],
    ) -> AsyncGenerator[wire.AttachOutput]:
        """Pass a client's messages on to the agent of a node, and its answers back."""
        run, node = self._place(row, target)
        stub = self._cluster.agents.stub(node)
        if stub is None:
            raise Unavailable(f"node {node} has not said where its agent listens")
        spec = self._cluster.driver.table.spec(self._row_now(row))
        target.key.CopyFrom(to_wire(run.key))
        target.user, target.uid = spec.user, spec.uid
        call = getattr(stub, method)()
        passing = asyncio.ensure_future(_pass_on(target, inputs, call))
        try:
            async for output in call:
                yield output
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            if passing.done() and not passing.cancelled():
                passing.result()  # raises if a message of the client was refused
            if isinstance(error, asyncio.CancelledError):
                raise
            raise _error_for_client(error, node) from None
        finally:
            passing.cancel()
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await passing


async def _target(inputs: AsyncIterator[wire.AttachInput]) -> wire.AttachTarget:
    """What the first message of a call asks for."""
    first = await anext(inputs)
    if not first.HasField("target"):
        raise BadInput("the first message of a connection says to what; this one does not")
    return first.target


async def _pass_on(
    target: wire.AttachTarget,
    inputs: AsyncIterator[wire.AttachInput],
    call: grpc.aio.StreamStreamCall,
) -> None:
    """Write everything that the client sends to the agent."""
    try:
        await call.write(wire.AttachInput(target=target))
        async for message in inputs:
            message.ClearField("target")
            await call.write(message)
        await call.done_writing()
    except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
        pass  # the agent has ended the call, or is gone; the reader of its answers says so
    except BaseException:
        call.cancel()
        raise


def _error_for_client(error: grpc.aio.AioRpcError, node: NodeName) -> Exception:
    """What the client gets to know of an agent's error."""
    code, text = error.code(), error.details() or ""
    if code not in _AWAY:
        return NotPossible(text or f"node {node}: {code.value[1]}")
    return Unavailable(text if text.startswith("node ") else f"node {node} does not answer")
