"""Local users: the kernel's word, a short token, and where it is good."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlsched.core.errors import BadInput, NotTrusted, Unavailable
from dlsched.rpc.channels import ClientTrust, open_blocking_channel, open_channel
from dlsched.rpc.endpoint import check_socket
from dlsched.rpc.identity import DAEMON, TOKEN_KEY
from dlsched.rpc.login import LoginServer, log_in
from dlsched.rpc.server import ServerTrust, add_ports, new_server
from dlsched.rpc.tls import KeyFiles
from dlsched.rpc.tokens import LocalTokens, LocalUser
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc

ME = pwd.getpwuid(os.getuid()).pw_name
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


@asynccontextmanager
async def local_daemon(
    serving: Any, place: Path, tokens: LocalTokens, **more: Any
) -> AsyncIterator[Any]:
    """A server on a unix socket, with its login socket and perhaps further ports."""
    listen = more.pop("listen", ())
    trust = ServerTrust(local=tokens, **more)
    login = LoginServer(place / "login.sock", tokens)
    async with serving(trust, f"unix:{place}/daemon.sock", *listen) as served:
        await login.start()
        try:
            yield served
        finally:
            await login.stop()


def local(place: Path) -> tuple[str, ClientTrust]:
    return f"unix:{place}/daemon.sock", ClientTrust.local(f"{place}/login.sock")


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def status(channel: aio.Channel, token: str | None = None) -> Awaitable[Any]:
    stub = control_pb2_grpc.ControlStub(channel)
    metadata = None if token is None else ((TOKEN_KEY, f"Bearer {token}"),)
    return stub.Status(control_pb2.StatusRequest(), timeout=5, metadata=metadata)


BY_ANOTHER = """
import grpc, os, pwd, sys
from dlsched.core.errors import DlschedError
from dlsched.rpc.channels import ClientTrust, open_blocking_channel
from dlsched.rpc.v1 import control_pb2 as m, control_pb2_grpc as g
BECOME
path = sys.argv[1]
try:
    trust = ClientTrust.local(os.path.dirname(path) + "/login.sock")
    with open_blocking_channel(f"unix:{path}", trust) as channel:
        stub = g.ControlStub(channel)
        print(stub.Status(m.StatusRequest(), timeout=5).leader)
        try:
            print(stub.Act(m.ActRequest(filter=m.Filter(jobs=[1])), timeout=5).done)
        except grpc.RpcError as error:
            print(error.code().name, error.details())
        try:
            stub.SetPolicy(m.SetPolicyRequest(), timeout=5)
        except grpc.RpcError as error:
            print(error.code().name, error.details())
except DlschedError as error:
    print(error)
"""


# the child imports as root, which can read this interpreter, and then becomes the user
BECOME = """
import os, sys
uid = int(sys.argv.pop(1))
os.setgroups([]); os.setgid(uid); os.setuid(uid)
"""


async def as_user(uid: int, script: str, path: str) -> str:
    """What a script prints that runs as another user; `BECOME` stands where it becomes one."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", script.replace("BECOME", BECOME), str(uid), path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "GRPC_VERBOSITY": "NONE"},
    )
    out, _ = await child.communicate()
    return out.decode()


# -- through -------------------------------------------------------------------------------------


def test_a_local_user_is_known_by_the_kernel(serving: Any, place: Path) -> None:
    async def work() -> None:
        async with local_daemon(serving, place, LocalTokens()) as served:
            async with open_channel(*local(place)) as channel:
                for _ in range(3):
                    await status(channel)
                stub = control_pb2_grpc.ControlStub(channel)
                pages = [page async for page in stub.Queue(control_pb2.QueueRequest(), timeout=5)]
                assert len(pages) == 3
            assert {(caller.name, caller.uid, caller.via) for caller in served.seen} == {
                (ME, os.getuid(), "local")
            }

    run(work())


def test_a_blocking_client_asks_for_one_token_for_all_its_calls(
    serving: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(path: str) -> Any:
        asked.append(path)
        return log_in(path)

    monkeypatch.setattr("dlsched.rpc.channels.log_in", counted)

    def calls() -> None:
        with open_blocking_channel(*local(place)) as channel:
            stub = control_pb2_grpc.ControlStub(channel)
            for _ in range(3):
                assert stub.Status(control_pb2.StatusRequest(), timeout=5).leader == ME
            assert len([*stub.Queue(control_pb2.QueueRequest(), timeout=5)]) == 3

    async def work() -> None:
        async with local_daemon(serving, place, LocalTokens()):
            await asyncio.to_thread(calls)

    run(work())
    assert len(asked) == 1


@as_root
def test_another_user_gets_a_token_of_his_own_and_no_more(
    serving: Any, place: Path, account: tuple[str, int]
) -> None:
    name, uid = account

    async def work() -> str:
        async with local_daemon(serving, place, LocalTokens()):
            return await as_user(uid, BY_ANOTHER, f"{place}/daemon.sock")

    assert run(work()).splitlines() == [
        name,
        f"UNKNOWN Unexpected {NotAllowedText(name)}",
        f"PERMISSION_DENIED changing the policy is for operators only; {name} is none",
    ]


def NotAllowedText(name: str) -> str:  # noqa: N802
    return f"<class 'dlsched.core.errors.NotAllowed'>: job 1 belongs to ann, not to {name}"


@as_root
def test_the_user_nobody_gets_no_token(place: Path) -> None:
    code = (
        "import socket,sys\nBECOME\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
        "print(s.recv(4096).decode())\n"
    )

    async def work() -> tuple[str, str]:
        login = LoginServer(place / "login", LocalTokens())
        await login.start()
        try:
            one = await as_user(65534, code, f"{place}/login")
            return one, await as_user(54321, code, f"{place}/login")
        finally:
            await login.stop()

    refused, nameless = run(work())
    assert "user id 65534 is not a real account and gets no token" in refused
    assert "user id 54321 has no name on this machine" in nameless


# -- tokens --------------------------------------------------------------------------------------


def test_a_token_is_good_on_its_own_daemons_local_socket_only(
    serving: Any,
    place: Path,
    tmp_path: Path,
    certificates: Any,
    daemon_files: KeyFiles,
) -> None:
    """Replayed on the port for users at a distance, and on another daemon's socket."""

    async def work() -> None:
        tokens = LocalTokens()
        token = tokens.issue(LocalUser(uid=os.getuid(), name=ME))
        async with local_daemon(
            serving,
            place,
            tokens,
            files=daemon_files,
            remote=NoTokens(),
            listen=("users:127.0.0.1:0",),
        ) as served:
            async with raw_local(place) as channel:
                await status(channel, token)
            credentials = grpc.ssl_channel_credentials(daemon_files.ca.read_bytes())
            options = [("grpc.ssl_target_name_override", DAEMON.host)]
            target = f"127.0.0.1:{served.ports[1]}"
            async with aio.secure_channel(target, credentials, options) as channel:
                assert await refused(status(channel, token)) == (
                    grpc.StatusCode.UNAUTHENTICATED,
                    "a local token is valid only on the daemon's local socket",
                )
        async with local_daemon(serving, place, LocalTokens()), raw_local(place) as channel:
            assert await refused(status(channel, token)) == (
                grpc.StatusCode.UNAUTHENTICATED,
                "the local token is not of this daemon; log in again",
            )
            assert await refused(status(channel)) == (
                grpc.StatusCode.UNAUTHENTICATED,
                "the call has no token: log in first",
            )

    run(work())


class NoTokens:
    """A store without any."""

    async def find_token(self, token_id: str) -> None:
        return None


def raw_local(place: Path) -> aio.Channel:
    credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    return aio.secure_channel(f"unix:{place}/daemon.sock", credentials)


def test_an_expired_token_is_refused_and_a_new_one_asked_for(serving: Any, place: Path) -> None:
    now = [1000.0]

    async def work() -> None:
        tokens = LocalTokens(clock=lambda: now[0])
        async with (
            local_daemon(serving, place, tokens),
            open_channel(*local(place)) as channel,
        ):
            await status(channel)
            now[0] += 601
            assert await refused(status(channel)) == (
                grpc.StatusCode.UNAUTHENTICATED,
                "the local token has expired; log in again",
            )
            await status(channel)

    run(work())


def test_a_client_logs_in_again_when_the_daemon_was_started_anew(serving: Any, place: Path) -> None:
    async def work() -> None:
        async with local_daemon(serving, place, LocalTokens()):
            channel = open_channel(*local(place))
            await status(channel)
        async with local_daemon(serving, place, LocalTokens()):
            code = grpc.StatusCode.UNAVAILABLE  # as long as the old connection is going
            while code is grpc.StatusCode.UNAVAILABLE:
                code, _ = await refused(status(channel))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            await status(channel)
            await channel.close()

    run(work())


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-2],
        lambda token: token.replace("dl1.", "dl1.A", 1),
        lambda token: "dl1..",
        lambda token: "dl1.!!.!!",
        lambda token: "",
        lambda token: "dr1.x.y",
        lambda token: token + "A" * 4000,
    ],
)
def test_a_token_that_was_tampered_with_is_refused(change: Callable[[str], str]) -> None:
    tokens = LocalTokens()
    token = tokens.issue(LocalUser(uid=7, name="ann"))
    assert tokens.check(token) == LocalUser(uid=7, name="ann")
    with pytest.raises(NotTrusted):
        tokens.check(change(token))


def test_a_token_is_bound_to_its_listener_and_lives_ten_minutes_at_most() -> None:
    one, other = LocalTokens("a"), LocalTokens("b")
    other._key = one._key
    with pytest.raises(NotTrusted):
        other.check(one.issue(LocalUser(uid=7, name="ann")))
    with pytest.raises(BadInput):
        LocalTokens(lifetime_s=601)


# -- sockets -------------------------------------------------------------------------------------


@as_root
def test_a_socket_of_another_user_in_a_shared_folder_is_refused(place: Path) -> None:
    place.chmod(0o1777)
    path = place / "login"
    code = (
        "import os,socket,sys\nBECOME\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\n"
        "s.listen()\nos.write(1,b'ready\\n')\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code.replace("BECOME", BECOME), "54321", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout
        assert child.stdin
        assert child.stdout.readline() == b"ready\n"
        with pytest.raises(NotTrusted, match="belongs to user id 54321, in a folder that others"):
            log_in(str(path))
        with pytest.raises(NotTrusted):
            open_channel(f"unix:{path}", ClientTrust.local(str(path)))
        # root's folder, but the file was given to root: the kernel knows the listener
        place.chmod(0o755)
        os.chown(path, 0, 0)
        with pytest.raises(NotTrusted, match="user id 54321 answers on"):
            log_in(str(path))
        child.stdin.close()


def test_where_no_daemon_is_one_line_says_so(place: Path) -> None:
    with pytest.raises(Unavailable, match=r"no daemon on this machine: .*/login does not exist"):
        log_in(f"{place}/login")
    with pytest.raises(Unavailable, match="no daemon on this machine"):
        open_channel(*local(place))


def test_what_is_no_daemon_is_told_from_one(place: Path) -> None:
    async def work(answer: bytes) -> None:
        async def serve(reader: Any, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            writer.close()

        async with await asyncio.start_unix_server(serve, place / "other"):
            await asyncio.to_thread(log_in, f"{place}/other")

    for answer in (b"", b"hello\n", b"[]\n", b'{"token": 1}\n', b"\xff" * 9000):
        with pytest.raises(Unavailable, match="is not a daemon of this version"):
            run(work(answer))


def test_a_socket_is_taken_over_from_the_dead_only(serving: Any, place: Path) -> None:
    path = place / "daemon.sock"
    for name in ("daemon.sock", "login.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(place / name))

    async def work() -> None:
        async with local_daemon(serving, place, LocalTokens()):
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
            async with open_channel(*local(place)) as channel:
                await status(channel)
            trust = ServerTrust()
            with pytest.raises(Unavailable, match="another process does"):
                add_ports(new_server(trust), [f"unix:{path}"], trust)
            with pytest.raises(Unavailable, match="another process does"):
                await LoginServer(place / "login.sock", LocalTokens()).start()
        (place / "file").write_text("")
        with pytest.raises(Unavailable, match="it exists and is not a socket"):
            await LoginServer(place / "file", LocalTokens()).start()

    run(work())


def test_many_clients_that_never_read_do_not_stop_others(place: Path) -> None:
    async def work() -> None:
        login = LoginServer(place / "login", LocalTokens())
        await login.start()
        idle = [socket.socket(socket.AF_UNIX) for _ in range(100)]
        try:
            for each in idle:
                each.connect(f"{place}/login")
            assert (await asyncio.to_thread(log_in, f"{place}/login")).token
        finally:
            for each in idle:
                each.close()
            await login.stop()

    run(work())


FLOOD = """
import socket, sys
BECOME
clients = [socket.socket(socket.AF_UNIX) for _ in range(200)]
for each in clients:
    each.connect(sys.argv[1])
print("begun", flush=True)
sys.stdin.read()
"""


@as_root
def test_one_user_who_asks_and_asks_keeps_no_other_one_waiting_for_a_slow_directory(
    place: Path,
) -> None:
    def slow(uid: int) -> str:
        time.sleep(0.3)
        return f"user{uid}"

    async def work() -> None:
        login = LoginServer(place / "login", LocalTokens(), lookup=slow)
        await login.start()
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", FLOOD.replace("BECOME", BECOME), "54321", f"{place}/login"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        try:
            assert await child.stdout.readline() == b"begun\n"
            with ThreadPoolExecutor(1) as mine:  # the server's threads are those of the loop
                asked = mine.submit(log_in, f"{place}/login", within_s=3.0)
                assert (await asyncio.wrap_future(asked)).token
        finally:
            child.kill()
            await child.wait()
            await login.stop()

    run(work())


def test_one_owns_ones_own_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mine:
        mine.bind(f"{place}/mine")
        assert check_socket(f"{place}/mine") == os.getuid()
