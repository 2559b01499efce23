"""Certificates on both sides: which client reaches which server, and the line for others."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlsched.core.errors import NotTrusted
from dlsched.rpc.call_failures import tls_trouble
from dlsched.rpc.channels import ClientTrust, open_blocking_channel, open_channel
from dlsched.rpc.endpoint import MAX_MESSAGE_BYTES
from dlsched.rpc.identity import DAEMON, Identity, login, node, user_claim
from dlsched.rpc.server import ServerTrust, add_ports, new_server
from dlsched.rpc.tls import KeyFiles
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2, node_pb2_grpc


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def vouching(files: KeyFiles, user: str, uid: int) -> ClientTrust:
    return ClientTrust(files=files, claims=user_claim(user, uid))


def sync(channel: aio.Channel, name: str = "n1") -> Awaitable[Any]:
    return node_pb2_grpc.LeaderStub(channel).Sync(node_pb2.SyncRequest(node=name), timeout=5)


async def hold_ranks(channel: aio.Channel, asker: str) -> None:
    """A stream of requests, whose first names the node that asks."""
    requests = iter((node_pb2.RanksRequest(asker=asker), node_pb2.RanksRequest(input=b"x")))
    async for _ in node_pb2_grpc.AgentStub(channel).HoldRanks(requests, timeout=5):
        pass


def status(channel: aio.Channel) -> Awaitable[Any]:
    return control_pb2_grpc.ControlStub(channel).Status(control_pb2.StatusRequest(), timeout=5)


def test_an_agent_and_a_daemon_know_each_other(
    serving: Any, daemon_files: KeyFiles, n1_files: KeyFiles
) -> None:
    async def work() -> None:
        async with serving(ServerTrust(files=daemon_files)) as served:
            async with open_channel(served.target, ClientTrust.certificate(n1_files)) as channel:
                assert (await sync(channel)).node == "n1"
            assert served.seen == [Identity(kind="node", name="n1", via="certificate")]
        async with serving(ServerTrust(files=n1_files)) as served:
            trust = ClientTrust.certificate(daemon_files, server=node("n1"))
            async with open_channel(served.target, trust) as channel:
                stub = node_pb2_grpc.AgentStub(channel)
                await stub.Nudge(node_pb2.NudgeRequest(node="n1"), timeout=5)

    run(work())


def test_an_operator_is_one_also_from_a_blocking_client(
    serving: Any, daemon_files: KeyFiles, operator_files: KeyFiles
) -> None:
    def call(target: str) -> Any:
        with open_blocking_channel(target, ClientTrust.certificate(operator_files)) as channel:
            stub = control_pb2_grpc.ControlStub(channel)
            stub.SetPolicy(control_pb2.SetPolicyRequest(), timeout=5)
            return [
                *stub.Queue(control_pb2.QueueRequest(), timeout=5),
                *stub.Logs(control_pb2.LogsRequest(), timeout=5),
            ]

    async def work() -> None:
        async with serving(ServerTrust(files=daemon_files)) as served:
            assert len(await asyncio.to_thread(call, served.target)) == 4
            assert {(caller.kind, caller.name, caller.is_operator) for caller in served.seen} == {
                ("operator", "olga", True)
            }

    run(work())


def test_a_node_speaks_for_itself_only(
    serving: Any, daemon_files: KeyFiles, n1_files: KeyFiles
) -> None:
    async def work() -> None:
        async with (
            serving(ServerTrust(files=daemon_files)) as served,
            open_channel(served.target, ClientTrust.certificate(n1_files)) as channel,
        ):
            for call in (sync(channel, "n2"), hold_ranks(channel, "n2")):
                assert await refused(call) == (
                    grpc.StatusCode.PERMISSION_DENIED,
                    "node n1 cannot speak for node n2",
                )
            code, why = await refused(status(channel))
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert why == "Status is not for node n1: users only"
            assert not served.seen

    run(work())


def test_a_node_cannot_pose_as_the_daemon_nor_as_another_node(
    serving: Any, certificates: Any, daemon_files: KeyFiles, n1_files: KeyFiles
) -> None:
    async def work() -> None:
        async with serving(ServerTrust(files=certificates.files(node("n2")))) as served:
            trust = ClientTrust.certificate(n1_files)
            async with open_channel(served.target, trust) as channel:
                code, why = await refused(sync(channel))
            assert code is grpc.StatusCode.UNAVAILABLE
            assert tls_trouble(why, served.target, trust) == (
                f"{served.target} has a certificate of another role than the daemon"
            )
            trust = ClientTrust.certificate(daemon_files, server=node("n1"))
            async with open_channel(served.target, trust) as channel:
                code, why = await refused(sync(channel))
            assert tls_trouble(why, served.target, trust) == (
                f"{served.target} has a certificate of another role than node/n1"
            )
            assert not served.seen

    run(work())


def test_a_client_without_certificate_is_told_so(
    serving: Any, daemon_files: KeyFiles, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("dr1.x.y\n")

    async def work() -> None:
        async with serving(ServerTrust(files=daemon_files)) as served:
            trust = ClientTrust.token(daemon_files.ca, token)
            async with open_channel(served.target, trust) as channel:
                code, why = await refused(status(channel))
            assert code is grpc.StatusCode.UNAVAILABLE
            assert tls_trouble(why, served.target, trust) == (
                f"{served.target} refused this connection: it requires a certificate, and "
                "this client has only a token (a daemon has another port for tokens)"
            )

    run(work())


def test_another_clusters_certificates_count_for_nothing(
    serving: Any, certificates: Any, daemon_files: KeyFiles, n1_files: KeyFiles, tmp_path: Path
) -> None:
    other = type(certificates).make(tmp_path, "other")

    async def work() -> None:
        async with serving(ServerTrust(files=daemon_files)) as served:
            trust = ClientTrust.certificate(other.files(node("n1")))
            async with open_channel(served.target, trust) as channel:
                code, why = await refused(sync(channel))
            assert code is grpc.StatusCode.UNAVAILABLE
            assert tls_trouble(why, served.target, trust) == (
                f"{served.target} shows a certificate that this client's authority "
                f"({trust.ca_file}) has not signed, or that has expired"
            )
            # it trusts the server, and brings a certificate of the other authority
            mixed = replace(other.files(node("n1")), ca=daemon_files.ca)
            trust = ClientTrust.certificate(mixed)
            async with open_channel(served.target, trust) as channel:
                code, why = await refused(sync(channel))
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "refused this client's certificate" in str(
                tls_trouble(why, served.target, trust)
            )
            assert not served.seen

    run(work())


def test_an_expired_certificate_is_refused_on_both_sides(
    serving: Any, certificates: Any, daemon_files: KeyFiles
) -> None:
    old = certificates.files(node("n7"), now=time.time() - 7200, life_s=3600, suffix="-old")
    with pytest.raises(NotTrusted, match=r"the certificate of node/n7 has expired on .*renew"):
        open_channel("127.0.0.1:1", ClientTrust.certificate(old))

    async def work() -> tuple[grpc.StatusCode, str]:
        async with serving(ServerTrust(files=daemon_files)) as served:
            credentials = grpc.ssl_channel_credentials(
                old.ca.read_bytes(), old.key.read_bytes(), old.certificate.read_bytes()
            )
            options = [("grpc.ssl_target_name_override", DAEMON.host)]
            async with aio.secure_channel(served.target, credentials, options) as channel:
                return await refused(sync(channel, "n7"))

    code, _ = run(work())
    assert code is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_that_ends_ends_its_open_connections(
    serving: Any, certificates: Any, daemon_files: KeyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        files = certificates.files(node("n8"), life_s=600)
        async with (
            serving(ServerTrust(files=daemon_files)) as served,
            open_channel(served.target, ClientTrust.certificate(files)) as channel,
        ):
            await sync(channel, "n8")
            monkeypatch.setattr("dlsched.rpc.authentication.Authenticator.now", lambda _: 4e9)
            code, why = await refused(sync(channel, "n8"))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert why.startswith("the certificate of node/n8 has expired on ")

    run(work())


def test_a_denied_certificate_is_refused_at_once_on_open_connections(
    serving: Any, certificates: Any, daemon_files: KeyFiles, tmp_path: Path
) -> None:
    denied = tmp_path / "denied"
    denied.touch()
    files = certificates.files(node("n9"))
    serial = files.check(time.time()).serial_text

    async def work() -> None:
        async with (
            serving(ServerTrust(files=daemon_files, denied=denied)) as served,
            open_channel(served.target, ClientTrust.certificate(files)) as channel,
        ):
            await sync(channel, "n9")
            denied.write_text(f"{serial}  # stolen\n")
            assert await refused(sync(channel, "n9")) == (
                grpc.StatusCode.UNAUTHENTICATED,
                f"the certificate of node/n9 (serial {serial}) has been denied",
            )
            denied.write_text("no serial at all\n")  # a broken list lets no client back in
            code, _ = await refused(sync(channel, "n9"))
            assert code is grpc.StatusCode.UNAUTHENTICATED

    run(work())


def test_a_login_node_speaks_for_its_users_but_never_for_root(
    serving: Any, certificates: Any, daemon_files: KeyFiles, account: tuple[str, int]
) -> None:
    files = certificates.files(login("l1"))
    name, uid = account

    async def asked(target: str, trust: ClientTrust) -> Any:
        async with open_channel(target, trust) as channel:
            return await status(channel)

    async def work() -> None:
        async with serving(ServerTrust(files=daemon_files)) as served:
            await asked(served.target, vouching(files, name, uid))
            assert served.seen == [Identity(kind="user", name=name, uid=uid, via="login/l1")]
            for user, number, why in [
                ("root", 0, "login/l1 cannot speak for user id 0"),
                ("nobody", 65534, "login/l1 cannot speak for user id 65534"),
                (name, uid + 1, f"login/l1 speaks for {name} with user id {uid + 1}; {name} has"),
                ("no-such-user", 4242, "no-such-user is not known here"),
            ]:
                trust = vouching(files, user, number)
                code, told = await refused(asked(served.target, trust))
                assert code is grpc.StatusCode.UNAUTHENTICATED
                assert why in told

    run(work())


def test_what_a_certified_caller_claims_beside_it_is_ignored(
    serving: Any, daemon_files: KeyFiles, n1_files: KeyFiles
) -> None:
    async def work() -> None:
        trust = vouching(n1_files, "root", 0)
        async with (
            serving(ServerTrust(files=daemon_files)) as served,
            open_channel(served.target, trust) as channel,
        ):
            await sync(channel)
            assert served.seen == [Identity(kind="node", name="n1", via="certificate")]

    run(work())


def test_a_renewed_certificate_serves_without_a_restart(
    serving: Any, certificates: Any, n1_files: KeyFiles
) -> None:
    files = certificates.files(DAEMON, suffix="-renewed")

    async def peer_serial(target: str) -> int:
        code = (
            "import ssl,sys\n"
            "h,p=sys.argv[1].split(':')\n"
            "c=ssl.create_default_context(cafile=sys.argv[2])\n"
            "c.check_hostname=False\n"
            "c.load_cert_chain(sys.argv[3],sys.argv[4])\n"
            "import socket\n"
            "s=c.wrap_socket(socket.create_connection((h,int(p))))\n"
            "print(s.getpeercert()['serialNumber'])\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            target,
            str(n1_files.ca),
            str(n1_files.certificate),
            str(n1_files.key),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        return int(out.decode().strip(), 16)

    async def work() -> None:
        async with serving(ServerTrust(files=files)) as served:
            first = await peer_serial(served.target)
            assert first == files.check(time.time()).serial
            again = certificates.authority.issue(DAEMON, now=time.time())
            files.key.write_bytes(again.key)
            files.certificate.write_bytes(again.certificate)
            second = await peer_serial(served.target)
            assert second == files.check(time.time()).serial != first
            files.certificate.write_bytes(b"broken")  # the one before serves on
            assert await peer_serial(served.target) == second

    run(work())


def test_a_message_beyond_the_bound_is_refused_on_both_sides(
    serving: Any, daemon_files: KeyFiles, operator_files: KeyFiles
) -> None:
    request = control_pb2.ActRequest(reason="x" * (MAX_MESSAGE_BYTES + 1))

    async def work() -> None:
        async with serving(ServerTrust(files=daemon_files)) as served:
            trust = ClientTrust.certificate(operator_files)
            async with open_channel(served.target, trust) as channel:
                stub = control_pb2_grpc.ControlStub(channel)
                code, _ = await refused(stub.Act(request, timeout=10))
                assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            credentials = grpc.ssl_channel_credentials(
                *(operator_files.read().ca, operator_files.read().key),
                operator_files.read().certificate,
            )
            options = [
                ("grpc.ssl_target_name_override", DAEMON.host),
                ("grpc.max_send_message_length", -1),
            ]
            async with aio.secure_channel(served.target, credentials, options) as channel:
                stub = control_pb2_grpc.ControlStub(channel)
                code, _ = await refused(stub.Act(request, timeout=10))
                assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
                small = control_pb2.SubmitRequest(request_id="x" * 10_000)
                code, _ = await refused(
                    stub.Submit(small, timeout=10, compression=grpc.Compression.Gzip)
                )
                assert code is grpc.StatusCode.UNIMPLEMENTED

    run(work())


def test_a_port_without_certificates_is_refused() -> None:
    async def work() -> None:
        trust = ServerTrust()
        with pytest.raises(NotTrusted, match=r"needs certificates .dlsched admin init"):
            add_ports(new_server(trust), ["127.0.0.1:0"], trust)

    run(work())


def test_a_server_shows_no_operators_certificate(operator_files: KeyFiles) -> None:
    async def work() -> None:
        trust = ServerTrust(files=operator_files)
        with pytest.raises(NotTrusted, match="is of operator/olga, not of a daemon or node"):
            add_ports(new_server(trust), ["127.0.0.1:0"], trust)

    run(work())
