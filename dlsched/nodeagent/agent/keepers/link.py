"""The agent's side of one keeper: it watches its process and talks to it.

The connection may break and be made again; only the end of the process is the end of the keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dlsched.nodeagent.host import cgroups, processes
from dlsched.nodeagent.json_values import UNCLEAR
from dlsched.nodeagent.keeper.framing import FrameSocket
from dlsched.protocol.messages import Order, RunId

log = logging.getLogger(__name__)
_AGAIN_S, _BROKEN_S = 0.2, 0.05  # until the next try, and the first one after a connection broke
_AT_ONCE, _PER_S = 50, 2000  # messages of one keeper that are taken


@dataclass(eq=False, slots=True)
class KeeperLink:
    """The connection to one keeper, which notices the keeper's end too."""

    run_id: RunId
    pid: int
    process_fd: int  # of the keeper's process; the link closes it
    path: str  # of the keeper's socket
    on_message: Callable[[RunId, dict[str, Any]], None]
    on_end: Callable[[RunId], None]  # called once: the process has ended, its messages are read
    _line: FrameSocket | None = field(default=None, init=False)
    _waiting: list[dict[str, Any]] = field(default_factory=list, init=False)
    _connecting: asyncio.Task[None] | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)
    silent: int = field(default=0, init=False)  # looks in a row without a sign of life
    _asked: int = field(default=0, init=False)  # the newest question for one
    _answered: int = field(default=0, init=False)
    _answers: bool = field(default=False, init=False)  # keepers of the version before do not

    @property
    def process(self) -> int | None:
        """The descriptor of the keeper's process; None when the link has closed it."""
        return None if self._is_closed else self.process_fd

    def begin(self, connection: socket.socket | None = None) -> None:
        """Watch the process; talk over `connection`, or connect to the keeper's socket."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.process_fd, self._ended)
        if connection is not None:
            self._attach(connection)
        else:
            self._connecting = loop.create_task(self._connect())

    async def _connect(self, wait_s: float = 0.0) -> None:
        """Connect to the keeper's socket, after a while, again and again."""
        while True:
            await asyncio.sleep(wait_s)
            wait_s = _AGAIN_S
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(connection, self.path)
            except OSError:
                connection.close()
            except asyncio.CancelledError:
                connection.close()
                raise
            else:
                self._attach(connection)
                return

    def _attach(self, connection: socket.socket) -> None:
        line = self._line = FrameSocket(connection)
        self._answered = self._asked  # what was asked over another connection may be lost
        asyncio.get_running_loop().add_reader(connection.fileno(), self._readable, line)
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self.send(message)

    def _readable(self, line: FrameSocket) -> None:
        """Take some of what has arrived; connect again when the other side has closed it."""
        found = line.receive()
        for message in found:
            self._take(message)
        if len(found) > _AT_ONCE and line.open and line is self._line:
            loop = asyncio.get_running_loop()  # what a job floods is read at a bounded rate
            loop.remove_reader(line.socket.fileno())
            loop.call_later(len(found) / _PER_S, self._read_on, line)
        if not line.open and line is self._line:
            self._hang_up()
            if not self._is_closed:
                again = self._connect(_BROKEN_S)
                self._connecting = asyncio.get_running_loop().create_task(again)

    def _read_on(self, line: FrameSocket) -> None:
        if line is self._line:
            asyncio.get_running_loop().add_reader(line.socket.fileno(), self._readable, line)

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            loop, fd = asyncio.get_running_loop(), line.socket.fileno()
            loop.remove_reader(fd)
            loop.remove_writer(fd)
            line.close()

    def _writable(self, line: FrameSocket) -> None:
        line.flush()
        if not line.wants_to_write:
            asyncio.get_running_loop().remove_writer(line.socket.fileno())

    def _take(self, message: dict[str, Any]) -> None:
        if "pong" in message:
            self._answers = True
            self._answered = max(self._answered, int(message["pong"]))
            return
        try:
            self.on_message(self.run_id, message)
        except UNCLEAR as error:  # a keeper of another version must not end its job
            what = f"{type(error).__name__}: {error}"
            log.error("keeper-unclear run=%s why=%.300s", self.run_id, what)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, now or as soon as the keeper is connected."""
        line = self._line
        if line is None or not line.open:
            self._waiting.append(message)
            return
        line.send(message)
        if line.wants_to_write:
            asyncio.get_running_loop().add_writer(line.socket.fileno(), self._writable, line)

    def order(self, order: Order, **more: object) -> None:
        """Send an order, with what the keeper needs beside it."""
        self.send({"order": type(order).__name__, "with": order, **more})

    def look(self, cgroup: str = "") -> int:
        """Ask for a sign of life; return how often in a row none has come.

        `cgroup` is the run's; empty: it has none.
        """
        if self._answered == self._asked:
            self.silent = 0
            if self._line is not None:
                self._asked += 1
                self.send({"ping": self._asked})
        elif (
            self._answers
            or processes.is_stopped(self.pid)
            or (cgroup and cgroups.is_frozen(os.path.join(cgroup, "keeper")))
        ):
            self.silent += 1
        return self.silent

    def kill(self) -> None:
        """Kill the keeper's process; `on_end` follows."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send the keeper's process a signal."""
        if not self._is_closed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process_fd, number)

    def _ended(self) -> None:
        """The process has ended; its last messages are in the socket."""
        if self._line is not None:
            for message in self._line.receive(everything=True):
                self._take(message)
        self.close()
        self.on_end(self.run_id)

    def close(self) -> None:
        """Close the connection; the keeper lives on."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(ValueError, OSError):
            asyncio.get_running_loop().remove_reader(self.process_fd)
        os.close(self.process_fd)
        self._hang_up()
        if self._connecting is not None:
            self._connecting.cancel()
