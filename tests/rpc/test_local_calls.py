"""Calls on the local socket without gRPC: the same interceptor, the same answers."""

# ruff: noqa: N802  # methods have the names of the wire

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import select
import socket
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from dlsched.client.local_call import NotReached, Refused, local_call
from dlsched.core.errors import NotAllowed
from dlsched.daemon.rpc_errors import NotTaken, answered, streamed
from dlsched.rpc import request_bounds
from dlsched.rpc.identity import Identity, identity_of
from dlsched.rpc.local_calls import LocalCalls
from dlsched.rpc.local_frames import FRAME, REFUSED, calls_path, head_of, parsed_refusal
from dlsched.rpc.request_bounds import byte_bound
from dlsched.rpc.server import ServerTrust, new_interceptor
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc

ME = pwd.getpwuid(os.getuid()).pw_name
OPEN = ServerTrust(insecure_loopback=False)


class Control(control_pb2_grpc.ControlServicer):  # type: ignore[misc]  # generated
    """Notes its callers; some methods refuse."""

    def __init__(self) -> None:
        self.seen: list[Identity] = []
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    @answered
    async def Status(self, request: Any, context: Any) -> Any:
        self.seen.append(identity_of(context))
        return control_pb2.StatusReply(leader="d1")

    @streamed
    async def Queue(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for k in range(3):
            yield control_pb2.QueuePage(jobs=[control_pb2.JobView(job=k, name="x" * 100_000)])

    @answered
    async def Act(self, request: Any, context: Any) -> Any:
        raise NotAllowed("job 7 belongs to bob, not to ann")

    @answered
    async def Submit(self, request: Any, context: Any) -> Any:
        raise NotTaken("this daemon does not lead")

    @answered
    async def Show(self, request: Any, context: Any) -> Any:
        raise ZeroDivisionError

    @answered
    async def WhatIf(self, request: Any, context: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@contextlib.asynccontextmanager
async def serving(
    place: Path, control: Control | None = None, **of_interceptor: Any
) -> AsyncIterator[Control]:
    control = control or Control()
    calls = LocalCalls(Path(calls_path(f"{place}/d.sock")), new_interceptor(OPEN, **of_interceptor))
    control_pb2_grpc.add_ControlServicer_to_server(control, calls)
    await calls.start()
    try:
        yield control
    finally:
        await calls.stop()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


async def ask(place: Path, method: str, request: Any) -> list[Any]:
    return await asyncio.to_thread(
        local_call, f"{place}/d.sock", method, request, 10.0, lambda each: each
    )


def test_the_caller_is_known_by_the_kernel_and_answers_come_whole(place):
    async def body() -> None:
        async with serving(place) as control:
            (status,) = await ask(place, "Status", control_pb2.StatusRequest())
            assert status.leader == "d1"
            (seen,) = control.seen
            assert (seen.kind, seen.name, seen.uid, seen.via) == ("user", ME, os.getuid(), "local")
            pages = await ask(place, "Queue", control_pb2.QueueRequest())
            assert [page.jobs[0].job for page in pages] == [0, 1, 2]
        assert not Path(calls_path(f"{place}/d.sock")).exists()

    run(body())


@pytest.mark.parametrize(
    ("method", "request_", "code", "not_taken", "line"),
    [
        ("Act", control_pb2.ActRequest(), "PERMISSION_DENIED", False, "belongs to bob"),
        ("Submit", control_pb2.SubmitRequest(), "UNAVAILABLE", True, "does not lead"),
        ("Show", control_pb2.ShowRequest(), "INTERNAL", False, "the daemon failed here"),
    ],
)
def test_a_refusal_comes_with_its_status_and_line(place, method, request_, code, not_taken, line):
    async def body() -> None:
        async with serving(place):
            with pytest.raises(Refused) as caught:
                await ask(place, method, request_)
            assert (caught.value.code, caught.value.not_taken) == (code, not_taken)
            assert line in str(caught.value)

    run(body())


def refused_by_hand(place: Path, sent: bytes) -> tuple[str, bool, str]:
    """What the server answers to some bytes, while this end stays open."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        line.connect(calls_path(f"{place}/d.sock"))
        line.sendall(sent)
        kind, size = FRAME.unpack(line.recv(FRAME.size, socket.MSG_WAITALL))
        assert kind == REFUSED
        return parsed_refusal(line.recv(size, socket.MSG_WAITALL))


def test_too_large_a_message_is_refused_by_its_head_alone(place):
    bound = byte_bound("/dlsched.v1.Control/Status")

    async def body() -> None:
        async with serving(place):
            head = head_of("Status", bound + 1)
            code, _, text = await asyncio.to_thread(refused_by_hand, place, head)
            assert code == "RESOURCE_EXHAUSTED"
            assert text.endswith(f"{bound + 1} bytes, at most {bound}")

    run(body())


def test_a_caller_without_the_right_is_refused_before_its_message_is_sent(place):
    async def body() -> None:
        async with serving(place, rules={}):
            code, _, text = await asyncio.to_thread(refused_by_hand, place, head_of("Status", 10))
            assert (code, "no authorisation rule" in text) == ("PERMISSION_DENIED", True)

    run(body())


@pytest.mark.parametrize("method", ["Nothing", "Sync"])
def test_only_methods_of_the_service_are_served(place, method):
    async def body() -> None:
        async with serving(place):
            code, not_taken, _ = await asyncio.to_thread(refused_by_hand, place, head_of(method, 0))
            assert (code, not_taken) == ("UNIMPLEMENTED", True)

    run(body())


def test_what_is_no_message_is_refused_after_counting(place):
    async def body() -> None:
        async with serving(place):
            sent = head_of("Act", 2) + b"\xff\xff"
            code, _, _ = await asyncio.to_thread(refused_by_hand, place, sent)
            assert code == "INVALID_ARGUMENT"

    run(body())


def test_a_handler_ends_when_its_client_leaves(place):
    async def body() -> None:
        async with serving(place) as control:
            line = socket.socket(socket.AF_UNIX)
            line.connect(calls_path(f"{place}/d.sock"))
            line.sendall(head_of("WhatIf", 0))
            await control.begun.wait()
            line.close()
            await control.ended.wait()

    run(body())


def test_pages_are_read_while_the_daemon_makes_the_next_ones(place):
    class Slow(Control):
        async def Queue(self, request: Any, context: Any) -> AsyncIterator[Any]:
            for k in range(3):
                yield control_pb2.QueuePage(jobs=[control_pb2.JobView(job=k)])
                while k not in read:
                    await asyncio.sleep(0.001)

    read: list[int] = []

    def note(page: Any) -> None:
        read.append(page.jobs[0].job)

    async def body() -> None:
        async with serving(place, control=Slow()):
            wanted = control_pb2.QueueRequest()
            await asyncio.to_thread(local_call, f"{place}/d.sock", "Queue", wanted, 20.0, note)

    run(body())
    assert read == [0, 1, 2]


def test_a_client_that_reads_nothing_is_not_waited_for(place, monkeypatch):
    class Long(Control):
        @streamed
        async def Queue(self, request: Any, context: Any) -> AsyncIterator[Any]:
            job = control_pb2.JobView(comment="x" * (8 << 20))  # no buffer on the way holds it
            yield control_pb2.QueuePage(jobs=[job])

    monkeypatch.setattr(request_bounds, "TAKEN_S", 0.1)

    async def body() -> None:
        async with serving(place, Long()):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(calls_path(f"{place}/d.sock"))
                client.send(head_of("Queue", 0))
                closed = select.poll()
                closed.register(client, 0)  # the end of the connection is always told
                [(_, told)] = await asyncio.to_thread(closed.poll)
                assert told & select.POLLHUP

    run(body())


def test_where_nothing_listens_nothing_was_sent(place):
    with pytest.raises(NotReached):
        local_call(f"{place}/d.sock", "Status", control_pb2.StatusRequest(), 1.0, str)
