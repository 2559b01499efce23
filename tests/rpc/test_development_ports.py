"""Without TLS: loopback only, behind a flag, and what is claimed there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Coroutine
from typing import Any

import grpc
import pytest
from grpc import aio

from dlsched.core.errors import BadInput, DlschedError, NotTrusted, Unavailable
from dlsched.rpc.call_failures import tls_trouble
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.endpoint import Endpoint, parse_endpoint
from dlsched.rpc.identity import DAEMON, Identity, node
from dlsched.rpc.server import ServerTrust, add_ports, new_server
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2, node_pb2_grpc

OPEN = ServerTrust(insecure_loopback=True, operators=frozenset({"olga"}))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def status(channel: aio.Channel) -> Awaitable[Any]:
    return control_pb2_grpc.ControlStub(channel).Status(control_pb2.StatusRequest(), timeout=5)


def test_claims_are_believed_and_rules_hold_all_the_same(serving: Any) -> None:
    async def work() -> None:
        async with serving(OPEN) as served:
            async with open_channel(served.target, ClientTrust.claimed_user("ann", 1001)) as ann:
                await status(ann)
                stub = control_pb2_grpc.ControlStub(ann)
                code, why = await refused(stub.SetPolicy(control_pb2.SetPolicyRequest(), timeout=5))
                assert code is grpc.StatusCode.PERMISSION_DENIED
                assert why == "changing the policy is for operators only; ann is none"
            async with open_channel(served.target, ClientTrust.claimed_user("olga", 1002)) as olga:
                stub = control_pb2_grpc.ControlStub(olga)
                await stub.SetPolicy(control_pb2.SetPolicyRequest(), timeout=5)
            async with open_channel(served.target, ClientTrust.claimed_role(node("n1"))) as n1:
                await node_pb2_grpc.LeaderStub(n1).Sync(node_pb2.SyncRequest(node="n1"), timeout=5)
            async with open_channel(served.target, ClientTrust.claimed_role(DAEMON)) as daemon:
                await node_pb2_grpc.AgentStub(daemon).Nudge(node_pb2.NudgeRequest(), timeout=5)
            assert served.seen == [
                Identity(kind="user", name="ann", uid=1001, via="claimed"),
                Identity(kind="user", name="olga", uid=1002, via="claimed", is_operator=True),
                Identity(kind="node", name="n1", via="claimed"),
            ]

    run(work())


def test_a_caller_that_claims_nothing_or_nonsense_is_refused(serving: Any) -> None:
    async def work() -> None:
        async with serving(OPEN) as served:
            for claims in (
                (),
                (("dlsched-user", "ann"),),
                (("dlsched-user", "ann"), ("dlsched-uid", "-1")),
                (("dlsched-user", "ann"), ("dlsched-uid", "65534")),
                (("dlsched-role", "dlsched://node/"),),
            ):
                trust = ClientTrust(insecure_loopback=True, claims=claims)
                async with open_channel(served.target, trust) as channel:
                    code, why = await refused(status(channel))
                assert code is grpc.StatusCode.UNAUTHENTICATED
                assert why
                assert "\n" not in why
            assert not served.seen

    run(work())


def test_a_method_without_a_rule_is_refused(serving: Any) -> None:
    async def work() -> None:
        async with (
            serving(OPEN, rules={}) as served,
            open_channel(served.target, ClientTrust.claimed_user("root", 0)) as channel,
        ):
            assert await refused(status(channel)) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "/dlsched.v1.Control/Status has no authorisation rule",
            )

    run(work())


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "8.8.8.8:7817"])
def test_nothing_but_loopback_goes_without_tls(listen: str) -> None:
    async def work() -> None:
        with pytest.raises(NotTrusted, match="is not a loopback address: without TLS only"):
            add_ports(new_server(OPEN), [listen], OPEN)

    run(work())
    with pytest.raises(NotTrusted, match="is not a loopback address"):
        open_channel(listen, ClientTrust.claimed_user("ann", 1))


def test_a_name_counts_by_what_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_endpoint("localhost:7817").loopback().host in {"127.0.0.1", "::1"}
    found = [(socket.AF_INET, 1, 6, "", (a, 1)) for a in ("127.0.0.1", "192.0.2.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(NotTrusted):
        parse_endpoint("double:1").loopback()


def test_a_port_in_use_is_told_and_never_shared(serving: Any) -> None:
    async def work() -> None:
        async with serving(OPEN) as served:
            with pytest.raises(Unavailable, match=f"cannot listen on {served.target}: in use"):
                add_ports(new_server(OPEN), [served.target], OPEN)

    run(work())


def test_a_closed_port_is_not_blamed_on_a_missing_certificate() -> None:
    async def work() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            target = f"127.0.0.1:{taken.getsockname()[1]}"
            trust = ClientTrust.claimed_user("ann", 1)
            async with open_channel(target, trust) as channel:
                code, why = await refused(status(channel))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert tls_trouble(why, target, trust) is None

    run(work())


def test_a_client_without_anything_is_told_what_it_needs() -> None:
    with pytest.raises(NotTrusted, match="needs a certificate or a token"):
        open_channel("127.0.0.1:1", ClientTrust())


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("n1:7817", Endpoint("n1", 7817)),
        ("[::1]:7817", Endpoint("::1", 7817)),
        ("unix:/run/d.sock", Endpoint(path="/run/d.sock")),
    ],
)
def test_an_address_is_read_and_written_back(text: str, end: Endpoint) -> None:
    assert parse_endpoint(text) == end
    assert str(end) == text


@pytest.mark.parametrize(
    "text",
    ["", "n1", ":1", "n1:", "n1:x", "n1:70000", "::1:7", "unix:d.sock", "unix:/" + "x" * 200],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_endpoint(text)
    assert isinstance(caught.value, DlschedError)
