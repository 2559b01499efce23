"""The agent's way to the daemon: hanging up ends no task that waits for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from grpc import aio

from dlsched.nodeagent.agent.leader_link import LeaderLink
from dlsched.protocol.messages import (
    BootId,
    Digest,
    Incarnation,
    JobId,
    NodeName,
    RunId,
    RunKey,
    RunNumber,
    Sync,
    Term,
)
from dlsched.protocol.timing import Timing
from dlsched.rpc.channels import ClientTrust
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2_grpc

KEY = RunKey(job=JobId(7), run=RunNumber(1), run_id=RunId("a" * 32))
WITHIN_S = 20


SYNC = Sync(
    node=NodeName("n1"),
    boot_id=BootId("b"),
    incarnation=Incarnation(1),
    sequence=1,
    last=Term(),
    applied=Term(),
    held_digest=Digest(""),
    held=(),
)


class Slow(control_pb2_grpc.RunsServicer, node_pb2_grpc.LeaderServicer):
    """Keeps its first call waiting for ever and answers the later ones."""

    def __init__(self) -> None:
        self.asked = 0
        self.waiting = asyncio.Event()

    async def _first_waits(self) -> None:
        self.asked += 1
        if self.asked == 1:
            self.waiting.set()
            await asyncio.Event().wait()

    async def Sync(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol names it
        await self._first_waits()
        raise AssertionError("one sync is enough")

    async def Launch(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol names it
        await self._first_waits()
        return control_pb2.LaunchSpec(job_name="found")

    async def Report(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol names it
        await self._first_waits()
        return control_pb2.ReportReply()

    async def CommitCheckpoint(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol names it
        await self._first_waits()
        return control_pb2.CheckpointReply(accepted=True)


@asynccontextmanager
async def link_to(service: Slow) -> AsyncIterator[LeaderLink]:
    server = aio.server()
    control_pb2_grpc.add_RunsServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    node_pb2_grpc.add_LeaderServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    link = LeaderLink(
        NodeName("n1"),
        (f"127.0.0.1:{port}",),
        ClientTrust(insecure_loopback=True),
        Timing(reply_age_s=float(WITHIN_S)),
        on_reply=lambda _reply: None,
        on_ready=lambda: None,
    )
    link.connected.set()
    try:
        yield link
    finally:
        await link.close()
        await server.stop(None)


async def _hung_up_while(asked: str, *arguments: Any) -> Any:
    """The result of a call when its channel is closed while it waits."""
    service = Slow()
    async with link_to(service) as link:
        task = asyncio.ensure_future(getattr(link, asked)(*arguments))
        await asyncio.wait_for(service.waiting.wait(), WITHIN_S)
        await link.close()  # as after a sync that failed
        answer = await asyncio.wait_for(task, WITHIN_S)
        return answer, service.asked


def test_a_launch_is_requested_again_after_its_channel_was_closed() -> None:
    answer, asked = asyncio.run(_hung_up_while("launch", KEY))
    assert (answer.job_name, asked) == ("found", 2)


def test_a_commit_is_requested_again_after_its_channel_was_closed() -> None:
    answer, asked = asyncio.run(_hung_up_while("commit_checkpoint", control_pb2.CheckpointCommit()))
    assert (answer.accepted, asked) == (True, 2)


def test_a_report_is_dropped_when_its_channel_was_closed() -> None:
    answer, asked = asyncio.run(_hung_up_while("report", control_pb2.RunReport()))
    assert (answer, asked) == (None, 1)


def test_a_cancelled_call_ends() -> None:
    async def cancelled() -> None:
        service = Slow()
        async with link_to(service) as link:
            task = asyncio.ensure_future(link.launch(KEY))
            await asyncio.wait_for(service.waiting.wait(), WITHIN_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())


def test_closing_a_channel_is_no_failure_of_the_next_one() -> None:
    async def hung_up() -> None:
        service = Slow()
        async with link_to(service) as link:
            task = asyncio.ensure_future(link._exchange(SYNC))
            await asyncio.wait_for(service.waiting.wait(), WITHIN_S)
            await link.close()
            await asyncio.wait_for(task, WITHIN_S)
            assert not link._failure

    asyncio.run(hung_up())
