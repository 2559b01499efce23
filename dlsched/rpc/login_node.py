"""`dlsched login`: users of a login node reach the daemon by this node's certificate, not a token.

It listens as a daemon does for the users of its own machine. The kernel says whose call it is, and
the call goes on over TLS, where the certificate `dlsched://login/NAME` vouches for the user's name
and id.

Invariant: a call goes on as the user that the kernel named, whatever else it says. The daemon
compares name and id with its own accounts and gives such a user no rights of an operator.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time
import tomllib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf.message import Message
from grpc import aio

from dlsched.core.errors import BadInput, DlschedError, not_known
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.connection_limits import ConnectionLimits
from dlsched.rpc.endpoint import NOT_TAKEN, parse_endpoint
from dlsched.rpc.identity import Call, Identity, identity_of, user_claim
from dlsched.rpc.local_calls import LocalCalls
from dlsched.rpc.local_frames import calls_path
from dlsched.rpc.login import LoginServer
from dlsched.rpc.server import ServerTrust, add_ports, new_interceptor, new_server
from dlsched.rpc.tls import KeyFiles
from dlsched.rpc.tokens import LocalTokens
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc
from dlsched.system import service_manager
from dlsched.system.log_lines import FORMS, LogForm, log_to_stderr, take_stderr

log = logging.getLogger("dlsched.login")
CONFIG = Path("/etc/dlsched/login.toml")
MOST_CHANNELS = 500  # to the daemons, of users whose calls came last
CONNECTIONS = 256  # of one user
GRACE_S = 2.0
NOT_REACHED = "failed to connect"  # in gRPC's message: the daemon saw nothing of the call
_MARK = ((NOT_TAKEN, "yes"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `login.toml` says."""

    daemon: tuple[str, ...]  # HOST:PORT of the port for nodes; of one and its standbys
    tls: str = "/etc/dlsched/tls"  # the folder of ca.crt, login.crt and login.key
    socket: str = "/run/dlsched/daemon.sock"
    log_level: str = "info"
    log_format: LogForm = "logfmt"

    @classmethod
    def read(cls, file: Path) -> Settings:
        """Read the file.

        Raises:
            BadInput: one line that names the key that is wrong.
        """
        try:
            found = tomllib.loads(file.read_text())
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"{file}: {error}") from None
        known = [each.name for each in fields(cls)]
        for key in found:
            if key not in known:
                raise not_known(f"{file}: key", key, known)
        named = found.pop("daemon", None)
        daemons = named.split(",") if isinstance(named, str) else named
        if not (isinstance(daemons, list) and daemons and all(isinstance(x, str) for x in daemons)):
            raise BadInput(f"{file}: daemon: HOST:PORT is expected, or a list of them")
        for key, value in found.items():
            if not isinstance(value, str):
                raise BadInput(f"{file}: {key}: a text is expected")
        made = cls(daemon=tuple(x.strip() for x in daemons), **found)
        if any(parse_endpoint(each).path for each in made.daemon):
            raise BadInput(f"{file}: daemon: a port over TLS is expected, not a socket")
        if made.log_format not in FORMS:
            raise BadInput(f"{file}: log_format: {' or '.join(FORMS)}")
        return made


class Daemons:
    """The channels to the daemons, each of one user."""

    def __init__(self, targets: Sequence[str], files: KeyFiles) -> None:
        """Open none yet; `files` are this login node's."""
        self._targets = list(targets)  # the one that has answered last is the first
        self._files = files
        self._stamp = files.stamp()
        self._open: OrderedDict[tuple[str, Identity], aio.Channel] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def stubs(self, user: Identity) -> Iterator[tuple[str, Any]]:
        """A user's stub of each daemon, the most likely leader's first."""
        if self._stamp != self._files.stamp():  # a renewed certificate
            self._stamp = self._files.stamp()
            while self._open:
                self._close(self._open.popitem(last=False)[1])
        for target in list(self._targets):
            channel = self._open.pop((target, user), None)
            if channel is None:
                claims = user_claim(user.name, user.uid or 0)
                channel = open_channel(target, ClientTrust(files=self._files, claims=claims))
            self._open[target, user] = channel
            if len(self._open) > MOST_CHANNELS:
                self._close(self._open.popitem(last=False)[1])
            yield target, control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]

    def answered(self, target: str) -> None:
        """Ask this one first from now on."""
        if self._targets[0] != target:
            self._targets.sort(key=lambda each: each != target)

    def _close(self, channel: aio.Channel) -> None:
        task = asyncio.ensure_future(channel.close(grace=60.0))  # for calls that are under way
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all of them."""
        for channel in self._open.values():
            await channel.close()
        await asyncio.gather(*self._closing, return_exceptions=True)


def forwarded(daemons: Daemons) -> control_pb2_grpc.ControlServicer:
    """A servicer each of whose methods asks a daemon, as the user of the call."""

    def unary(name: str) -> Callable[..., object]:
        async def method(_: object, request: Message, context: Call) -> Message:
            failed = None
            for target, stub in daemons.stubs(identity_of(context)):
                try:
                    answer: Message = await getattr(stub, name)(request)
                except aio.AioRpcError as error:
                    failed = (target, error)
                    if not _another_may_know(error):
                        break
                else:
                    daemons.answered(target)
                    return answer
            return await _refuse(context, failed)

        return method

    def stream(name: str) -> Callable[..., object]:
        async def method(
            _: object, request: Message | AsyncIterator[Message], context: Call
        ) -> AsyncIterator[Message]:
            failed = first = None
            if not isinstance(request, Message):  # a call in both directions
                async for first in request:  # noqa: B007  # the first one alone
                    break
                else:
                    return
            for target, stub in daemons.stubs(identity_of(context)):
                begun = False
                asked = request if isinstance(request, Message) else _from(first, request)
                call = getattr(stub, name)(asked)
                try:
                    async for message in call:
                        if not begun:
                            daemons.answered(target)
                        begun = True
                        yield message
                except aio.AioRpcError as error:
                    failed = (target, error)
                    if begun or not _another_may_know(error):
                        break
                else:
                    return
                finally:
                    call.cancel()
            await _refuse(context, failed)

        return method

    service = control_pb2.DESCRIPTOR.services_by_name["Control"]
    methods = {
        each.name: (stream if each.server_streaming else unary)(each.name)
        for each in service.methods
    }
    made: control_pb2_grpc.ControlServicer = type(
        "Forwarded", (control_pb2_grpc.ControlServicer,), methods
    )()
    return made


async def _from(first: Message | None, rest: AsyncIterator[Message]) -> AsyncIterator[Message]:
    if first is not None:
        yield first
    async for message in rest:
        yield message


def _another_may_know(error: aio.AioRpcError) -> bool:
    """Whether a daemon did nothing with a call, so that another one can be asked."""
    if error.code() is not grpc.StatusCode.UNAVAILABLE:
        return False
    return NOT_REACHED in (error.details() or "").lower() or _not_taken(error)


def _not_taken(error: aio.AioRpcError) -> bool:
    return any(key == NOT_TAKEN for key, _ in error.trailing_metadata() or ())


async def _refuse(context: Call, failed: tuple[str, aio.AioRpcError] | None) -> NoReturn:
    """Pass on a daemon's refusal; a client repeats a call that no daemon has taken."""
    assert failed is not None  # there is one daemon at least
    target, error = failed
    code, text = error.code(), error.details() or ""
    mark: tuple[tuple[str, str], ...] = _MARK if _not_taken(error) else ()
    if code is grpc.StatusCode.UNAVAILABLE and not mark:
        if NOT_REACHED in text.lower():
            text, mark = f"the login node cannot reach the daemon at {target}", _MARK
        else:
            text = f"the login node lost the connection to the daemon at {target}"
    await context.abort(code, text, trailing_metadata=mark)
    raise AssertionError("an aborted call goes on")


async def serve(settings: Settings) -> None:
    """Serve until a signal.

    Raises:
        DlschedError: one line that says why it cannot.
    """
    files = KeyFiles.of(Path(settings.tls), "login")
    files.check(time.time(), "login")
    daemons, tokens, socket = Daemons(settings.daemon, files), LocalTokens(), Path(settings.socket)
    trust = ServerTrust(local=tokens)
    connections = ConnectionLimits(CONNECTIONS)
    interceptor = new_interceptor(trust, connections=connections)
    server, calls = (
        new_server(trust, interceptor=interceptor),
        LocalCalls(Path(calls_path(str(socket))), interceptor, mode=trust.socket_mode),
    )
    for each in (server, calls):
        control_pb2_grpc.add_ControlServicer_to_server(forwarded(daemons), each)  # type: ignore[no-untyped-call]
    add_ports(server, [f"unix:{socket}"], trust)
    login = LoginServer(socket.parent / "login.sock", tokens)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as at_end:
        at_end.push_async_callback(daemons.close)
        at_end.push_async_callback(login.stop)
        await login.start()
        at_end.push_async_callback(calls.stop, GRACE_S)
        await calls.start()
        at_end.push_async_callback(server.stop, GRACE_S)
        await server.start()
        watching = asyncio.create_task(connections.watch())
        at_end.callback(watching.cancel)
        log.info("event=listening socket=%s daemons=%s", socket, ",".join(settings.daemon))
        service_manager.notify("READY=1")
        await stop.wait()
        service_manager.notify("STOPPING=1")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal stops the service; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="dlsched login", description="Let the users of a login node reach the daemon."
    )
    parser.add_argument("--config", metavar="FILE", type=Path, default=CONFIG, help=str(CONFIG))
    given = parser.parse_args(argv)
    try:
        settings = Settings.read(given.config)
        log_to_stderr(settings.log_level.upper(), settings.log_format)
        take_stderr()
        asyncio.run(serve(settings))
    except DlschedError as error:
        print(f"dlsched login: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
