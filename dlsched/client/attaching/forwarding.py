"""Connections of this machine's user to a port at which a process of a job listens.

It listens on the loopback address only, and takes connections of its own user only: the kernel says
whose they are.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

from dlsched.client.connection import Connection
from dlsched.client.errors import Unavailable
from dlsched.core.errors import DlschedError
from dlsched.rpc.v1 import attach_pb2 as wire

CHUNK = 8 * 1024
MOST = 60  # connections at a time; the daemon lets 64 into a job
PATIENCE_S, _AGAIN_S = 20.0, 0.2  # while the daemon or the agent is away
HOST = "127.0.0.1"


class Forwarding:
    """Passes local connections on to one port of one job."""

    def __init__(self, connection: Connection, job: int, port: int, *, node: str = "") -> None:
        """Prepare; `listen` comes next."""
        self._connection = connection
        self._target = wire.AttachTarget(job=job, port=port, node=node)
        self._places = threading.BoundedSemaphore(MOST)
        self._listener: socket.socket | None = None

    def listen(self, local: int) -> int:
        """Listen at a local port, 0: any; return its number.

        Raises:
            OSError: it cannot be had.
        """
        self._listener = socket.create_server((HOST, local))
        found: int = self._listener.getsockname()[1]
        return found

    def check(self) -> str:
        """Connect once and leave; return the node.

        Raises:
            DlschedError: the job or the daemon refuses it.
        """
        outgoing: SimpleQueue[Any] = SimpleQueue()
        outgoing.put(wire.AttachInput(target=self._target))
        call = self._connection.converse("Forward", iter(outgoing.get, None))
        try:
            for answer in call:
                if answer.HasField("attached"):
                    return str(answer.attached.node)
        finally:
            outgoing.put(None)
            call.close()
        raise DlschedError("the daemon has closed the connection")

    def serve(self, on_refused: Callable[[str], bool], over: threading.Event) -> None:
        """Pass connections on until it is over.

        Args:
            on_refused: gets each refusal, and says whether it ends all.
            over: set by such a refusal, or by the caller.
        """
        assert self._listener is not None
        with self._listener as listener:
            listener.settimeout(0.5)
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    client, peer = listener.accept()
                    client.settimeout(None)
                    if not _is_own(peer, client.getsockname()):
                        on_refused(f"a connection of another user of this machine, {peer[1]}")
                        client.close()
                        continue
                    arguments = (client, on_refused, over)
                    threading.Thread(target=self._one, args=arguments, daemon=True).start()

    def _one(
        self, client: socket.socket, on_refused: Callable[[str], bool], over: threading.Event
    ) -> None:
        with client, self._places:
            try:
                until = time.monotonic() + PATIENCE_S
                while not self._pass_on(client, is_last=time.monotonic() > until):
                    time.sleep(_AGAIN_S)
            except DlschedError as error:
                if on_refused(str(error)):
                    over.set()
            except OSError:
                pass  # the local side has left

    def _pass_on(self, client: socket.socket, *, is_last: bool) -> bool:
        """Pass one connection on; return False when it could not begin, and may be tried again.

        Raises:
            DlschedError: the job or the daemon refuses it, or it was lost.
        """
        begun = SimpleQueue[bool]()  # what goes in first says whether to read from the client
        call = self._connection.converse("Forward", _requests(self._target, client, begun))
        is_begun = False
        try:
            for answer in call:
                if answer.HasField("attached"):
                    is_begun = True
                    begun.put(True)
                if answer.data:
                    client.sendall(answer.data)
                if answer.end:
                    break
        except Unavailable:
            if is_begun or is_last:
                raise
            return False
        finally:
            begun.put(False)
            if is_begun:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
            call.close()
        return True


def _requests(
    target: wire.AttachTarget, client: socket.socket, begun: SimpleQueue[bool]
) -> Iterator[wire.AttachInput]:
    """The messages of one connection; gRPC asks for each when it can send it."""
    yield wire.AttachInput(target=target)
    if not begun.get():
        return
    with contextlib.suppress(OSError):
        while data := client.recv(CHUNK):
            yield wire.AttachInput(data=data)
    yield wire.AttachInput(end=True)


def _is_own(peer: tuple[str, int], own: tuple[str, int]) -> bool:
    """Whether this process's user has made a local connection, as the kernel says."""
    wanted = [_as_proc_has(peer), _as_proc_has(own)]
    with open("/proc/net/tcp", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words[1:3] == wanted:
                return int(words[7]) == os.getuid()
    return False


def _as_proc_has(address: tuple[str, int]) -> str:
    number = int.from_bytes(socket.inet_aton(address[0]), "little")
    return f"{number:08X}:{address[1]:04X}"
