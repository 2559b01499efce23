"""A link that tests can cut: connections to it reach another port until then.

A cut holds bytes back, as lost packets do, until it is healed; `sever` breaks connections.
"""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType

__all__ = ["Relay"]


class Relay:
    """Between a server and the clients that dial its port.

    Attributes:
        port: where clients dial.
        delay_s: each piece takes so much longer, in both directions.
        refuses: new connections are closed at once.
    """

    def __init__(self, upstream: int | str) -> None:
        """Begin to listen.

        Args:
            upstream: a port of loopback, or the path of a Unix socket.
        """
        self._upstream = upstream
        self._up, self._down = threading.Event(), threading.Event()
        self.delay_s = 0.0
        self.refuses = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._over = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heal()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = True
        with socket.create_connection(("127.0.0.1", self.port)):  # wakes the listener
            pass
        self.heal()
        self.sever()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def cut(self, *, up: bool = True, down: bool = True) -> None:
        """Hold back what clients say, what the server says, or both."""
        if up:
            self._up.clear()
        if down:
            self._down.clear()

    def heal(self) -> None:
        """Let everything through again, what was held back first."""
        self._up.set()
        self._down.set()

    def sever(self) -> None:
        """Break all connections."""
        with self._lock:
            for end in self._open:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._over or self.refuses:
                client.close()
                if self._over:
                    return
                continue
            try:
                server = self._dial()
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            left = threading.Semaphore(0)
            for source, target, gate in (
                (client, server, self._up),
                (server, client, self._down),
            ):
                thread = threading.Thread(
                    target=self._pump, args=(source, target, gate, left), daemon=True
                )
                self._threads.append(thread)
                thread.start()
            closer = threading.Thread(target=self._close, args=(client, server, left), daemon=True)
            self._threads.append(closer)
            closer.start()

    def _dial(self) -> socket.socket:
        if isinstance(self._upstream, int):
            return socket.create_connection(("127.0.0.1", self._upstream))
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.connect(self._upstream)
        except OSError:
            server.close()
            raise
        return server

    def _pump(
        self,
        source: socket.socket,
        target: socket.socket,
        gate: threading.Event,
        left: threading.Semaphore,
    ) -> None:
        try:
            while data := source.recv(65536):
                gate.wait()
                if self.delay_s:
                    time.sleep(self.delay_s)
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            left.release()

    def _close(
        self, client: socket.socket, server: socket.socket, left: threading.Semaphore
    ) -> None:
        left.acquire()
        left.acquire()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()
