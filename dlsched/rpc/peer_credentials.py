"""The user at the other end of a unix socket, as the kernel noted it."""

from __future__ import annotations

import socket
import struct

CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a unix socket, as the kernel noted it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, uid, _ = CREDENTIALS.unpack(raw)
    return int(uid) & 0xFFFFFFFF
