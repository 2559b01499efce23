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


class Launches(Slow):
    """Says how to launch runs, but for some; keeps what it was asked for."""

    def __init__(self, *missing: str) -> None:
        super().__init__()
        self.missing = missing
        self.calls: list[list[str]] = []

    async def Launch(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol names it
        keys = [request.key, *request.more]
        self.calls.append([key.run_id for key in keys])
        found = [control_pb2.LaunchSpec(key=key, job_name=key.run_id) for key in keys]
        given = found[:1] + [each for each in found[1:] if each.job_name not in self.missing]
        given[0].more.extend(given[1:])
        return given[0]


async def _launched(service: Launches, *runs: str) -> list[str]:
    """What a link has been told of runs that one reply lets it launch."""
    keys = [RunKey(job=JobId(k), run=RunNumber(1), run_id=RunId(run)) for k, run in enumerate(runs)]
    async with link_to(service) as link:
        specs = await asyncio.wait_for(asyncio.gather(*map(link.launch, keys)), WITHIN_S)
    return [spec.job_name for spec in specs]


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


def test_runs_that_are_launched_at_the_same_time_are_asked_for_in_one_call() -> None:
    service = Launches()
    assert asyncio.run(_launched(service, "a", "b", "c")) == ["a", "b", "c"]
    assert service.calls == [["a", "b", "c"]]


def test_a_run_that_is_missing_in_the_answer_is_asked_for_alone() -> None:
    service = Launches("b")
    assert asyncio.run(_launched(service, "a", "b", "c")) == ["a", "b", "c"]
    assert service.calls == [["a", "b", "c"], ["b"]]


def test_the_end_of_the_run_that_asks_for_others_keeps_none_of_them_waiting() -> None:
    async def ended() -> None:
        service = Slow()
        async with link_to(service) as link:
            keys = [RunKey(job=JobId(k), run=RunNumber(1), run_id=RunId(f"r{k}")) for k in (1, 2)]
            first, second = (asyncio.ensure_future(link.launch(key)) for key in keys)
            await asyncio.wait_for(service.waiting.wait(), WITHIN_S)
            first.cancel()
            found = await asyncio.wait_for(second, WITHIN_S)
            assert (found.job_name, service.asked) == ("found", 2)

    asyncio.run(ended())


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
