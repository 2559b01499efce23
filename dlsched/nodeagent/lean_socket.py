"""Sockets without the module `socket`, whose enumerations cost every keeper half a megabyte.

The same objects underneath; only what keepers and the zygote use.
"""

from __future__ import annotations

import _socket
import array
import os
from _socket import (
    AF_INET,
    AF_UNIX,
    MSG_DONTWAIT,
    MSG_NOSIGNAL,
    MSG_TRUNC,
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
    "MSG_TRUNC",
    "SOCK_DGRAM",
    "SOCK_NONBLOCK",
    "SOCK_SEQPACKET",
    "SOCK_STREAM",
    "SOL_SOCKET",
    "SO_PEERCRED",
    "SO_REUSEADDR",
    "Socket",
    "accept",
    "pair",
    "recv_fds",
    "send_fds",
]

Socket = _socket.socket
_INT = array.array("i").itemsize


def pair() -> tuple[Socket, Socket]:
    """Two connected stream sockets."""
    return _socket.socketpair(AF_UNIX, SOCK_STREAM)


def accept(listener: Socket) -> Socket:
    """The next connection, closed on exec."""
    fd, _ = listener._accept()  # type: ignore[attr-defined]  # as `socket` does
    os.set_inheritable(fd, False)
    return Socket(fileno=fd)


def send_fds(line: Socket, data: bytes, fds: list[int]) -> None:
    """One message with descriptors."""
    held = array.array("i", fds)
    line.sendmsg([data], [(SOL_SOCKET, _socket.SCM_RIGHTS, held)] if fds else [])


def recv_fds(line: Socket, size: int, most: int) -> tuple[bytes, list[int], int]:
    """One message, the descriptors in it, and its flags."""
    space = _socket.CMSG_LEN(most * _INT)
    data, ancillary, flags, _ = line.recvmsg(size, space, _socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (SOL_SOCKET, _socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % _INT])
    return data, list(fds), flags
