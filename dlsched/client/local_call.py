"""One call on the daemon's local socket for calls: no gRPC, one connection, one request."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dlsched.core.errors import DlschedError
from dlsched.rpc.endpoint import check_socket
from dlsched.rpc.local_frames import FRAME, MESSAGE, REFUSED, calls_path, head_of, parsed_refusal
from dlsched.rpc.messages import decoded
from dlsched.rpc.peer_credentials import peer_uid

T = TypeVar("T")
_CONNECT_S = 2.0
_PIECE = 1 << 18


class NotReached(Exception):
    """Nobody that can be trusted listens there; nothing was sent."""


class Refused(Exception):
    """The daemon's refusal; its text is the line for the user."""

    def __init__(self, code: str, text: str, *, not_taken: bool) -> None:
        """Take the parts of a refusal."""
        super().__init__(text)
        self.code = code
        self.not_taken = not_taken


def local_call(
    path: str, method: str, request: Any, within_s: float, read: Callable[[Any], T]
) -> list[T]:
    """Return what is read of each message of an answer, while the daemon makes the next ones.

    Args:
        path: of the daemon's gRPC socket.
        method: a method of the Control service.
        request: its message.
        within_s: time limit, in seconds.
        read: is called with each message as it comes.

    Raises:
        NotReached: there is no such socket, or not the daemon's.
        Refused: by the daemon.
        TimeoutError: no answer in time.
        OSError: the connection was lost; the daemon may have done the request.
    """
    body = request.SerializeToString()
    deadline = time.monotonic() + within_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        _connect(line, calls_path(path))
        line.settimeout(within_s)
        line.sendall(head_of(method, len(body)) + body)
        return [read(decoded(method, each)) for each in _answers(line, deadline)]


def _connect(line: socket.socket, path: str) -> None:
    try:
        owner = check_socket(path)
        line.settimeout(_CONNECT_S)
        line.connect(path)
        if peer_uid(line) not in {0, os.getuid(), owner}:
            raise NotReached
    except (OSError, DlschedError):
        raise NotReached from None


def _answers(line: socket.socket, deadline: float) -> Iterator[bytes]:
    """The messages of an answer as they come."""
    held = bytearray()

    def taken(size: int) -> bytes:
        while len(held) < size:
            line.settimeout(max(0.001, deadline - time.monotonic()))
            piece = line.recv(_PIECE)
            if not piece:
                raise ConnectionResetError
            held.extend(piece)
        found = bytes(held[:size])
        del held[:size]
        return found

    while True:
        kind, size = FRAME.unpack(taken(FRAME.size))
        body = taken(size)
        if kind == MESSAGE:
            yield body
        elif kind == REFUSED:
            code, not_taken, text = parsed_refusal(body)
            raise Refused(code, text, not_taken=not_taken)
        else:
            return
