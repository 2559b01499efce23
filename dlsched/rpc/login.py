"""The login socket: the kernel says who connects, the daemon answers with a short token.

gRPC does not pass on a unix socket's peer, so a plain socket beside it does. The server speaks
first and only once; a client sends nothing, so nothing of a client is parsed. The client in turn
takes a token only from root, from itself, or from the owner of the socket. Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlsched.core.errors import DlschedError, NotTrusted, Unavailable
from dlsched.rpc.endpoint import check_socket
from dlsched.rpc.identity import NOBODY

if TYPE_CHECKING:
    from dlsched.rpc.tokens import LocalTokens

__all__ = ["Login", "LoginServer", "log_in", "name_of", "peer_uid"]

log = logging.getLogger(__name__)
ANSWER_BYTES = 4096
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a unix socket, as the kernel noted it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, uid, _ = CREDENTIALS.unpack(raw)
    return int(uid) & 0xFFFFFFFF


def name_of(uid: int) -> str | None:
    """The account's name on this machine; it may ask a directory service, so not on a loop."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


class LoginServer:
    """Hands out tokens on a unix socket, beside the gRPC server."""

    def __init__(
        self,
        path: Path,
        tokens: LocalTokens,
        *,
        mode: int = 0o666,
        refused: frozenset[int] = NOBODY,
        lookup: Callable[[int], str | None] = name_of,
    ) -> None:
        """Prepare it.

        Args:
            path: of the socket; its folder exists and only trusted users can write to it.
            tokens: of the same daemon's local gRPC socket.
            mode: who may connect.
            refused: user ids that get none.
            lookup: a user id's name.
        """
        self._path = path
        self._tokens = tokens
        self._mode = mode
        self._refused = refused
        self._lookup = lookup
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            Unavailable: when the socket cannot be made, or another process answers there.
        """
        take_path(self._path)
        try:
            self._server = await asyncio.start_unix_server(self._serve, self._path, backlog=256)
            os.chmod(self._path, self._mode)
        except OSError as error:
            raise Unavailable(f"cannot listen on {self._path}: {error.strerror}") from None

    async def stop(self) -> None:
        """Close and remove the socket."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

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
        from dlsched.rpc.tokens import LocalUser  # noqa: PLC0415  # a client needs none of it

        if uid in self._refused:
            log.warning("login-refused uid=%d", uid)
            return {"error": f"user id {uid} is nobody in particular and gets no token"}
        name = await asyncio.to_thread(self._lookup, uid)
        if name is None:
            return {"error": f"user id {uid} has no name on this machine"}
        token = self._tokens.issue(LocalUser(uid=uid, name=name))
        return {"version": 1, "token": token, "lifetime_s": self._tokens.lifetime_s}


def take_path(path: Path) -> None:
    """Make room for a socket: a dead one goes, a living one is an error.

    Raises:
        Unavailable: when somebody answers there, or it is no socket.
    """
    if not path.exists():
        return
    if not path.is_socket():
        raise Unavailable(f"cannot listen on {path}: it exists and is no socket")
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
    """A token and when to ask for another one, on this process's monotonic clock."""

    token: str
    renew_at: float


def log_in(path: str, *, within_s: float = 5.0) -> Login:
    """Ask the daemon on this machine for a token.

    Raises:
        Unavailable: when nobody answers.
        NotTrusted: when the wrong user answers, or the daemon refuses.
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
