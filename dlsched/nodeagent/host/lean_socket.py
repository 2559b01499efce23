"""Sockets without the module `socket`: its enumerations cost every keeper half a megabyte.

The objects are those beneath that module; only what keepers and the zygote use is here.
"""

from __future__ import annotations

import _socket
import array
import contextlib
import os
import struct
from _socket import (
    AF_INET,
    AF_UNIX,
    MSG_DONTWAIT,
    MSG_NOSIGNAL,
    MSG_PEEK,
    MSG_TRUNC,
    SHUT_WR,
    SO_PEERCRED,
    SO_REUSEADDR,
    SOCK_DGRAM,
    SOCK_NONBLOCK,
    SOCK_SEQPACKET,
    SOCK_STREAM,
    SOL_SOCKET,
)

__all__ = [
    "AF_INET",
    "AF_UNIX",
    "MSG_DONTWAIT",
    "MSG_NOSIGNAL",
    "MSG_PEEK",
    "MSG_TRUNC",
    "SHUT_WR",
    "SOCK_DGRAM",
    "SOCK_NONBLOCK",
    "SOCK_SEQPACKET",
    "SOCK_STREAM",
    "SOL_SOCKET",
    "SO_PEERCRED",
    "SO_REUSEADDR",
    "Socket",
    "accept",
    "accept_own",
    "listen",
    "pair",
    "recv_fds",
    "send_fds",
]

Socket = _socket.socket
_INT = array.array("i").itemsize
_CREDENTIALS = struct.Struct("3i")


def pair(kind: int = SOCK_STREAM) -> tuple[Socket, Socket]:
    """Return two connected sockets."""
    return _socket.socketpair(AF_UNIX, kind)


def accept(listener: Socket) -> Socket:
    """Return the next connection of a listening socket; it is closed on exec."""
    fd, _ = listener._accept()  # type: ignore[attr-defined]  # as `socket` does
    os.set_inheritable(fd, False)
    return Socket(fileno=fd)


def listen(path: str) -> Socket:
    """Return a socket that listens at a path, for processes of this user and root alone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = Socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(64)
    return listener


def accept_own(listener: Socket) -> Socket | None:
    """Return the next connection of a listening socket; None: another user's, which is closed."""
    connection = accept(listener)
    raw = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    if uid not in (0, os.geteuid()):
        connection.close()
        return None
    return connection


def send_fds(line: Socket, data: bytes, fds: list[int]) -> None:
    """Send one message with descriptors."""
    held = array.array("i", fds)
    line.sendmsg([data], [(SOL_SOCKET, _socket.SCM_RIGHTS, held)] if fds else [])


def recv_fds(line: Socket, size: int, most: int) -> tuple[bytes, list[int], int]:
    """Receive one message of up to `size` bytes with up to `most` descriptors.

    Returns:
        The bytes, the descriptors and the flags of the message.
    """
    space = _socket.CMSG_LEN(most * _INT)
    data, ancillary, flags, _ = line.recvmsg(size, space, _socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (SOL_SOCKET, _socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % _INT])
    return data, list(fds), flags
