"""Connections are bounded by source; those of nodes and operators are outside of the bound."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from grpc.aio import AioRpcError

from dlsched.rpc import connection_limits
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.connection_limits import ConnectionLimits
from dlsched.rpc.identity import DAEMON, Identity
from dlsched.rpc.server import ServerTrust, add_ports, new_server
from dlsched.rpc.v1 import node_pb2, node_pb2_grpc

MOST = 8


class Witness(node_pb2_grpc.AgentServicer):  # type: ignore[misc]
    async def Nudge(self, request: Any, context: Any) -> Any:  # noqa: N802
        return node_pb2.NudgeReply()


@contextlib.asynccontextmanager
async def serving(limits: ConnectionLimits) -> AsyncIterator[int]:
    """A server without certificates, and its port."""
    trust = ServerTrust(insecure_loopback=True)
    server = new_server(trust, connections=limits)
    node_pb2_grpc.add_AgentServicer_to_server(Witness(), server)  # type: ignore[no-untyped-call]
    [port] = add_ports(server, ["127.0.0.1:0"], trust)
    await server.start()
    yield port
    await server.stop(None)


def is_open(line: socket.socket) -> bool:
    """Whether the server has not ended a connection; gRPC's first bytes are read away."""
    line.setblocking(False)
    try:
        while data := line.recv(65536):
            del data
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    return False


def test_silent_connections_beyond_the_bound_are_closed_and_not_those_of_callers() -> None:
    async def scene() -> None:
        limits = ConnectionLimits(MOST)
        async with serving(limits) as port:
            agent = open_channel(f"127.0.0.1:{port}", ClientTrust.claimed_role(DAEMON))
            stub = node_pb2_grpc.AgentStub(agent)
            ann = open_channel(f"127.0.0.1:{port}", ClientTrust.claimed_user("ann", 1001))
            of_ann = ann.unary_unary("/dlsched.v1.Agent/Nudge")
            with contextlib.ExitStack() as held:

                async def connect(count: int) -> list[socket.socket]:
                    made = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
                    for line in made:
                        held.enter_context(line)
                    want = len(all_lines) + count
                    while connections_of("127.0.0.1") < want:
                        await asyncio.sleep(0.01)
                    all_lines.extend(made)
                    return made

                all_lines: list[socket.socket] = []
                first = await connect(MOST)
                assert not limits.close_excess()
                late = await connect(3 * MOST)
                await stub.Nudge(node_pb2.NudgeRequest(), timeout=10)
                with pytest.raises(AioRpcError):  # not for users, but the caller is known
                    await of_ann(b"", timeout=10)
                assert limits.close_excess() == {"127.0.0.1": 3 * MOST}
                assert not any(map(is_open, first))  # silent for longest
                assert sum(map(is_open, late)) == MOST
                assert limits._users.keys() <= {e.peer for e in limits.accepted().values()}
                assert len(limits._users) == 1
                await stub.Nudge(node_pb2.NudgeRequest(), timeout=10)  # as before: it is a node's
            await agent.close()
            await ann.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def connections_of(source: str) -> int:
    """How many accepted connections of a source this process has."""
    return Counter(each.source for each in ConnectionLimits().accepted().values())[source]


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A socket to which every user may connect."""
    with (
        tempfile.TemporaryDirectory(prefix="cl") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        listener.bind(f"{folder}/s")
        listener.listen(64)
        os.chmod(folder, 0o755)
        os.chmod(f"{folder}/s", 0o666)
        yield listener


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: connections of two users")
def test_users_of_this_machine_are_told_apart_and_root_is_not_counted(
    listening: socket.socket,
) -> None:
    path = listening.getsockname()
    program = (
        "import os, socket, sys\n"
        "os.setuid(int(sys.argv[1]))\n"
        "lines = [socket.socket(socket.AF_UNIX) for _ in range(int(sys.argv[2]))]\n"
        "[line.connect(sys.argv[3]) for line in lines]\n"
        "sys.stdin.read()\n"
    )
    with contextlib.ExitStack() as held:
        for uid, count in ((1001, 5), (1002, 20), (0, 20)):
            process = subprocess.Popen(
                [sys.executable, "-c", program, str(uid), str(count), path],
                stdin=subprocess.PIPE,
            )
            held.callback(process.communicate)
        for _ in range(45):
            held.enter_context(listening.accept()[0])
        limits = ConnectionLimits(MOST)
        limits.note(
            "unix:", Identity(kind="user", name="root", uid=0, is_operator=True, via="local")
        )
        assert limits.close_excess() == {"uid 1002": 20 - MOST}


def test_a_login_node_is_outside_of_the_bound_because_many_users_come_from_it() -> None:
    limits = ConnectionLimits(MOST)
    for number, via in enumerate(("token", "local", "dlsched://login/head")):
        caller = Identity(kind="user", name="ann", uid=1001, via=via)
        limits.note(f"ipv6:%5B::1%5D:{number}", caller)
    assert limits._reserved == {"ipv6:[::1]:2"}
    limits.note("ipv6:%5B::1%5D:2", Identity(kind="user", name="ann", uid=1001, via="token"))
    assert not limits._reserved  # another connection has that port now


def test_a_socket_is_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_into = []
    genuine = connection_limits._looked_into

    def counted(number: int) -> Any:
        looked_into.append(number)
        return genuine(number)

    monkeypatch.setattr(connection_limits, "_looked_into", counted)
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))

        def connect() -> tuple[socket.socket, socket.socket]:
            mine = held.enter_context(socket.create_connection(listener.getsockname()))
            return mine, held.enter_context(listener.accept()[0])

        def descriptors(*lines: socket.socket) -> set[int]:
            return {line.fileno() for line in lines}

        limits = ConnectionLimits(MOST)
        mine, theirs = connect()
        assert limits.accepted().keys() >= descriptors(theirs)
        assert set(looked_into) >= descriptors(listener, mine, theirs)
        looked_into.clear()
        late = connect()
        assert limits.accepted().keys() >= descriptors(theirs, late[1])
        assert set(looked_into).isdisjoint(descriptors(listener, mine, theirs))
        mine.close()
        theirs.close()
        again = connect()  # in the same descriptors, the lowest free ones
        found = limits.accepted()
        assert found.keys() & descriptors(*again) == descriptors(again[1])
        known = found[again[1].fileno()]
        assert known.peer == f"ipv4:127.0.0.1:{again[0].getsockname()[1]}"

        connection_limits._close(late[1].fileno(), known)  # which has become another one
        assert is_open(late[0])
        connection_limits._close(again[1].fileno(), known)
        assert again[0].recv(1) == b""


def test_a_connection_that_calls_during_a_look_stays_outside_of_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ConnectionLimits(MOST)
    node = Identity(kind="node", name="n1", via="certificate")
    limits.note("ipv4:10.0.0.1:1", node)

    def look() -> dict[int, Any]:
        limits.note("ipv4:10.0.0.2:2", node)
        return {}

    monkeypatch.setattr(limits, "accepted", look)
    limits.close_excess()
    assert limits._reserved == {"ipv4:10.0.0.2:2"}  # the other one has ended
