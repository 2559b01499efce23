"""Small HTTP servers in threads, of which strangers can take only so many, and each for a while.

No caller is known before a request is there. So when all connections are taken, one that has not
said anything yet gives way to the next: silence does not keep others out.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

MOST = 64  # connections at a time
ENDING = 64  # further ones that were closed, and whose threads have not ended yet
LONGEST_S = 60.0  # of a connection
SOON_S = 5.0  # after which an answer that is not taken gives way too


@dataclass(slots=True)
class _Connection:
    request: socket.socket
    source: str
    since: float
    is_heard: bool = False  # has its request arrived?
    is_closed: bool = False


class BoundedServer(ThreadingTCPServer):
    """A thread for each connection, but not for any number of them, and not for ever."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, *given: Any, **more: Any) -> None:
        """As the base class."""
        self._open: dict[int, _Connection] = {}  # by identity of the connection's object
        self._lock = threading.Lock()
        super().__init__(*given, **more)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there is room."""
        with self._lock:
            has_room = self._make_room()
            if has_room:
                source = str(client_address[0])
                self._open[id(request)] = _Connection(request, source, time.monotonic())
        if has_room:
            super().process_request(request, client_address)
        else:
            super().shutdown_request(request)

    def _make_room(self) -> bool:
        """Close what gives way to one more connection, if that is needed; is there room?"""
        there = [each for each in self._open.values() if not each.is_closed]
        if len(there) < MOST:
            return len(self._open) < MOST + ENDING
        silent = [each for each in there if not each.is_heard]
        last = time.monotonic() - SOON_S
        leaving = _oldest(silent) or _oldest(each for each in there if each.since < last)
        if leaving is None or len(self._open) >= MOST + ENDING:
            return False
        _close(leaving)
        return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def goes_on_as(self, request: socket.socket, wrapped: socket.socket) -> None:
        """Note that a connection is used through another object, as with TLS."""
        with self._lock:
            self._open[id(request)].request = wrapped

    def heard(self, request: socket.socket) -> None:
        """Note that a connection's request has arrived."""
        with self._lock:
            for each in self._open.values():
                each.is_heard |= each.request is request

    def service_actions(self) -> None:
        """Cut off those that take too long."""
        super().service_actions()
        last = time.monotonic() - LONGEST_S
        with self._lock:
            for each in self._open.values():
                if each.since < last and not each.is_closed:
                    _close(each)


class BoundedHandler(BaseHTTPRequestHandler):
    """A handler that says when a request is there."""

    server: BoundedServer

    def parse_request(self) -> bool:
        """Read the head of a request."""
        is_there = super().parse_request()
        if is_there:
            self.server.heard(self.connection)
        return is_there


def _oldest(some: Iterable[_Connection]) -> _Connection | None:
    """The oldest one of the source that has most of them."""
    found = list(some)
    count = Counter(each.source for each in found)
    return min(found, key=lambda each: (-count[each.source], each.since), default=None)


def _close(each: _Connection) -> None:
    each.is_closed = True
    with contextlib.suppress(OSError):  # it has just ended
        each.request.shutdown(socket.SHUT_RDWR)
