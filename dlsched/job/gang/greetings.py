"""Connections to a port of a rank, where any program of the network may connect.

A connection counts once it has said its greeting, some bytes of a fixed number. Others wait beside
it, a bounded number for a bounded time, so none of them delays a rank or costs it memory.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time

MOST_WAITING = 64  # connections without a whole greeting; the oldest one makes room
GREETING_S = 5.0  # in which a greeting arrives
BACKLOG = 1024  # connections that the kernel makes meanwhile; others would try again after 1 s, 3 s


class Greetings:
    """A listening socket, and the connections that have not said their greeting yet."""

    def __init__(self, listener: socket.socket, size: int) -> None:
        """Take greetings of so many bytes; closes the listener at the end."""
        self._listener, self._size = listener, size
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self._ready = select.epoll()
        self._ready.register(listener, select.EPOLLIN)
        self._waiting: dict[int, tuple[socket.socket, bytearray, float]] = {}  # in order of age

    def fileno(self) -> int:
        """The descriptor that is readable when `take` has something to do."""
        return self._ready.fileno()

    def take(self, timeout_s: float = 0.0) -> list[tuple[bytes, socket.socket]]:
        """The connections whose greeting is complete by now, each with it; they block, as usual.

        Args:
            timeout_s: to wait until there is something to do.
        """
        found = []
        for descriptor, _ in self._ready.poll(timeout_s):
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor in self._waiting:  # else it has made room meanwhile
                greeted = self._read(descriptor)
                found += [] if greeted is None else [greeted]
        late = time.monotonic() - GREETING_S
        for descriptor in [d for d, (_, _, since) in self._waiting.items() if since < late]:
            self._forget(descriptor).close()
        return found

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it has left, or no descriptor is free
            link, _ = self._listener.accept()
            if len(self._waiting) >= MOST_WAITING:
                self._forget(next(iter(self._waiting))).close()
            link.setblocking(False)
            self._waiting[link.fileno()] = link, bytearray(), time.monotonic()
            self._ready.register(link, select.EPOLLIN)

    def _read(self, descriptor: int) -> tuple[bytes, socket.socket] | None:
        link, said, _ = self._waiting[descriptor]
        try:
            more = link.recv(self._size - len(said))
        except OSError:
            more = b""
        said += more
        if more and len(said) < self._size:
            return None
        self._forget(descriptor)
        if not more:
            link.close()
            return None
        link.setblocking(True)
        return bytes(said), link

    def _forget(self, descriptor: int) -> socket.socket:
        self._ready.unregister(descriptor)
        return self._waiting.pop(descriptor)[0]

    def close(self) -> None:
        """Listen no more."""
        for descriptor in list(self._waiting):
            self._forget(descriptor).close()
        self._ready.close()
        self._listener.close()
