"""Servers on unix sockets, of which one user's connections do not take every turn of the loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

WAITING = 256  # connections that the kernel keeps until they are accepted
AT_ONCE = 8  # of them accepted in a turn of the event loop; asyncio would take all that wait
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serve_unix(
    serve: Serve, path: Path, *, mode: int, limit: int = 1 << 16
) -> asyncio.Server:
    """Listen on a path that is free.

    Args:
        serve: called with each connection.
        path: of the socket.
        mode: its permissions.
        limit: bytes that are read ahead of each connection.

    Raises:
        OSError: the socket cannot be made.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
        server = await asyncio.start_unix_server(serve, sock=listener, backlog=AT_ONCE, limit=limit)
        listener.listen(WAITING)
        os.chmod(path, mode)
    except BaseException:
        listener.close()
        raise
    return server
