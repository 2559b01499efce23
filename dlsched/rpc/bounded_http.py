"""Small HTTP servers in threads, of which strangers can take only so many, and each for a while."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from socketserver import ThreadingTCPServer
from typing import Any

MOST = 64  # connections at a time; further ones are closed
LONGEST_S = 60.0  # of a connection


class BoundedServer(ThreadingTCPServer):
    """A thread for each connection, but not for any number of them, and not for ever."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, *given: Any, **more: Any) -> None:
        """As the base class."""
        self._since: dict[int, tuple[float, Any]] = {}  # by identity, the connections
        self._lock = threading.Lock()
        super().__init__(*given, **more)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there is room."""
        with self._lock:
            has_room = len(self._since) < MOST
            if has_room:
                self._since[id(request)] = time.monotonic(), request
        if has_room:
            super().process_request(request, client_address)
        else:
            super().shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._since.pop(id(request), None)
        super().shutdown_request(request)

    def goes_on_as(self, request: Any, wrapped: Any) -> None:
        """Note that a connection is used through another object, as with TLS."""
        with self._lock:
            since, _ = self._since[id(request)]
            self._since[id(request)] = since, wrapped

    def service_actions(self) -> None:
        """Cut off those that take too long."""
        super().service_actions()
        last = time.monotonic() - LONGEST_S
        with self._lock:
            late = [request for since, request in self._since.values() if since < last]
        for request in late:
            with contextlib.suppress(OSError):  # it has just ended
                request.shutdown(socket.SHUT_RDWR)
