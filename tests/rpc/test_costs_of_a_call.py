"""What each sync of each node costs before its handler and after it, as counted calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from dlsched.protocol import messages as m
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.identity import ROLE_KEY, node
from dlsched.rpc.server import ServerTrust, new_interceptor
from dlsched.rpc.v1 import node_pb2
from tests.counting import python_calls

SYNC = m.Sync(
    node=m.NodeName("n1"),
    boot_id=m.BootId("b"),
    incarnation=m.Incarnation(1),
    sequence=700,
    last=m.Term(m.Epoch(1), m.Revision(10)),
    applied=m.Term(m.Epoch(1), m.Revision(10)),
    held_digest=m.Digest("d"),
    held=None,
    renewed_sequence=699,
    starts=("s",),
    witnesses=tuple(m.NodeName(f"n{k}") for k in range(5)),
)
REPLY = m.Reply(
    node=SYNC.node,
    incarnation=SYNC.incarnation,
    sequence=SYNC.sequence,
    term=SYNC.last,
    desired_digest=SYNC.held_digest,
    desired=None,
    lease=m.Lease(duration_s=30.0, covers=frozenset({m.RunId("r1"), m.RunId("r2")})),
    witnesses=SYNC.witnesses,
)


class Transport:
    """What gRPC tells of a call on a port for development."""

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"transport_security_type": [b"insecure"]}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((ROLE_KEY, node("n1").uri),)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def add_done_callback(self, callback: Any) -> None:
        self.at_its_end = callback


def test_a_sync_passes_the_door_in_few_calls() -> None:
    raw, counted = to_wire(SYNC).SerializeToString(), []
    heard: list[Any] = []

    async def answer(request: Any, context: Any) -> Any:
        del context
        heard.append(request)
        return node_pb2.Reply()

    async def messages() -> AsyncIterator[bytes]:
        yield raw

    async def work() -> None:
        interceptor = new_interceptor(ServerTrust(insecure_loopback=True))
        handler = grpc.unary_unary_rpc_method_handler(answer, node_pb2.SyncRequest.FromString)
        guarded = interceptor.guarded("/dlsched.v1.Leader/Sync", handler)

        def once() -> None:
            with contextlib.suppress(StopIteration):
                while True:  # it waits for nothing
                    call.send(None)

        for _ in range(2):  # the first one learns of the message's fields
            transport = Transport()
            call = guarded.stream_unary(messages(), transport)
            counted.append(python_calls(once))
            transport.at_its_end(transport)

    asyncio.run(work())
    assert heard == [to_wire(SYNC)] * 2
    assert counted[-1] < 130


def test_how_a_value_is_converted_is_looked_up_once() -> None:
    asked, answered = to_wire(SYNC), to_wire(REPLY)
    assert from_wire(m.Sync, asked) == SYNC
    assert from_wire(m.Reply, answered) == REPLY
    assert python_calls(lambda: from_wire(m.Sync, asked)) < 40
    assert python_calls(lambda: to_wire(REPLY)) < 40
