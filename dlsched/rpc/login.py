"""The login socket: the kernel identifies the peer, and the daemon answers with a local token.

gRPC does not pass on the peer of a unix socket, so this plain socket exists beside it. The server
sends one line; a client sends nothing, so no client input is parsed. A client accepts a token only
from root, from its own user, or from the owner of the socket. Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import socket
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dlsched.core.errors import DlschedError, NotTrusted, Unavailable
from dlsched.rpc.endpoint import check_socket
from dlsched.rpc.identity import UNMAPPED_UIDS
from dlsched.rpc.peer_credentials import peer_uid

if TYPE_CHECKING:
    from dlsched.rpc.tokens import LocalTokens

log = logging.getLogger(__name__)
ANSWER_BYTES = 4096


def name_of(uid: int) -> str | None:
    """The account's name on this machine; it may block on a directory service."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


@dataclass(eq=False, slots=True)
class LoginServer:
    """Hands out tokens on a unix socket, beside the gRPC server."""

    path: Path  # of the socket; only trusted users can write to its folder, which exists
    tokens: LocalTokens  # those of the same daemon's local gRPC socket
    _: KW_ONLY
    mode: int = 0o666  # the permissions of the socket
    refused: frozenset[int] = UNMAPPED_UIDS  # user ids that get no token
    lookup: Callable[[int], str | None] = name_of  # a user id's name; None: it has none
    _server: asyncio.Server | None = field(default=None, init=False)
    # by user id, while the name is being looked up
    _looking: dict[int, asyncio.Future[str | None]] = field(default_factory=dict, init=False)

    async def start(self) -> None:
        """Listen.

        Raises:
            Unavailable: the socket cannot be created, or another process uses it.
        """
        from dlsched.rpc.unix_server import serve_unix  # noqa: PLC0415  # servers only

        take_path(self.path)
        try:
            self._server = await serve_unix(self._serve, self.path, mode=self.mode)
        except OSError as error:
            raise Unavailable(f"cannot listen on {self.path}: {error.strerror}") from None

    async def stop(self) -> None:
        """Close and remove the socket."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        try:
            writer.write(json.dumps(await self._answer(uid)).encode() + b"\n")
            await writer.drain()
        except ConnectionError:
            pass  # the client has left
        finally:
            writer.close()

    async def _answer(self, uid: int) -> dict[str, object]:
        from dlsched.rpc.tokens import LocalUser  # noqa: PLC0415  # servers only

        if uid in self.refused:
            log.warning("login-refused uid=%d", uid)
            return {"error": f"user id {uid} is not a real account and gets no token"}
        name = await self._name(uid)
        if name is None:
            return {"error": f"user id {uid} has no name on this machine"}
        token = self.tokens.issue(LocalUser(uid=uid, name=name))
        return {"version": 1, "token": token, "lifetime_s": self.tokens.lifetime_s}

    async def _name(self, uid: int) -> str | None:
        """A user's name; one thread looks it up, however many clients of this user ask."""
        looking = self._looking.get(uid)
        if looking is None:
            looking = asyncio.ensure_future(asyncio.to_thread(self.lookup, uid))
            self._looking[uid] = looking
            looking.add_done_callback(lambda _: self._looking.pop(uid, None))
        return await asyncio.shield(looking)


def take_path(path: Path) -> None:
    """Remove an unused socket at a path.

    Raises:
        Unavailable: a process uses the socket, or the path is not a socket.
    """
    if not path.exists():
        return
    if not path.is_socket():
        raise Unavailable(f"cannot listen on {path}: it exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            return
        except OSError:
            pass
    raise Unavailable(f"cannot listen on {path}: another process does")


# -- the client's side ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A token, and when to get the next one, on this process's monotonic clock."""

    token: str
    renew_at: float


def log_in(path: str, *, within_s: float = 5.0) -> Login:
    """Ask the daemon on this machine for a token.

    Raises:
        Unavailable: there is no answer.
        NotTrusted: the wrong user answers, or the daemon refuses.
    """
    try:
        owner = check_socket(path)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(within_s)
            connection.connect(path)
            server = peer_uid(connection)
            if server not in {0, os.getuid(), owner}:
                raise NotTrusted(f"user id {server} answers on {path}: not the daemon's")
            answer = _receive(connection)
    except FileNotFoundError:
        raise Unavailable(f"no daemon on this machine: {path} does not exist") from None
    except TimeoutError:
        raise Unavailable(f"the daemon does not answer on {path}") from None
    except OSError as error:
        raise Unavailable(f"cannot log in on {path}: {error.strerror or error}") from None
    return _parsed(answer, path)


def _receive(connection: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"\n") and len(answer) <= ANSWER_BYTES:
        part = connection.recv(ANSWER_BYTES)
        if not part:
            break
        answer += part
    return answer


def _parsed(answer: bytes, path: str) -> Login:
    broken: DlschedError = Unavailable(f"what answers on {path} is not a daemon of this version")
    try:
        found = json.loads(answer)
        if isinstance(found, dict) and "error" in found:
            broken = NotTrusted(str(found["error"]))
        token, lifetime = str(found["token"]), float(found["lifetime_s"])
    except (ValueError, KeyError, TypeError):
        raise broken from None
    return Login(token=token, renew_at=time.monotonic() + lifetime * 0.8)
