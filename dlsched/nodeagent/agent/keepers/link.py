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

from dlsched.nodeagent.json_values import UNCLEAR
from dlsched.nodeagent.keeper.framing import BrokenFrame, Frames, frame
from dlsched.protocol.messages import Order, RunId

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class KeeperLink:
    """The connection to one keeper, which notices the keeper's end too."""

    run_id: RunId
    pid: int
    process_fd: int  # of the keeper's process; the link closes it
    path: str  # of the keeper's socket
    on_message: Callable[[RunId, dict[str, Any]], None]
    on_end: Callable[[RunId], None]  # called once: the process has ended, its messages are read
    _writer: asyncio.StreamWriter | None = field(default=None, init=False)
    _waiting: list[dict[str, Any]] = field(default_factory=list, init=False)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _connected: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_closed: bool = field(default=False, init=False)

    def begin(self, connection: socket.socket | None = None) -> None:
        """Watch the process; talk over `connection`, or connect to the keeper's socket."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.process_fd, self._ended)
        self._tasks.append(loop.create_task(self._talk(connection)))

    async def _talk(self, connection: socket.socket | None) -> None:
        while not self._is_closed:
            try:
                if connection is not None:
                    reader, writer = await asyncio.open_unix_connection(sock=connection)
                else:
                    reader, writer = await asyncio.open_unix_connection(self.path)
            except OSError:
                await asyncio.sleep(0.2)
                continue
            connection = None
            self._writer = writer
            self._connected.set()
            for message in self._waiting:
                writer.write(frame(message))
            self._waiting.clear()
            await self._read(reader)
            self._connected.clear()
            self._writer = None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            await asyncio.sleep(0.05)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = Frames()
        while True:
            try:
                data = await reader.read(65536)
                if not data:
                    return
                for message in frames.feed(data):
                    self._take(message)
            except (OSError, BrokenFrame) as error:
                log.warning("keeper-connection run=%s why=%s", self.run_id, error)
                return

    def _take(self, message: dict[str, Any]) -> None:
        try:
            self.on_message(self.run_id, message)
        except UNCLEAR as error:  # a keeper of another version must not end its job
            what = f"{type(error).__name__}: {error}"
            log.error("keeper-unclear run=%s why=%.300s", self.run_id, what)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, now or as soon as the keeper is connected."""
        if self._writer is not None:
            self._writer.write(frame(message))
        else:
            self._waiting.append(message)

    def order(self, order: Order, **more: object) -> None:
        """Send an order, with what the keeper needs beside it."""
        self.send({"order": type(order).__name__, "with": order, **more})

    def kill(self) -> None:
        """Kill the keeper's process; `on_end` follows."""
        if not self._is_closed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process_fd, signal.SIGKILL)

    def _ended(self) -> None:
        """The process has ended; its last messages are still read."""
        asyncio.get_running_loop().remove_reader(self.process_fd)
        if self._is_closed:
            return
        self._tasks.append(asyncio.get_running_loop().create_task(self._after_the_end()))

    async def _after_the_end(self) -> None:
        for _ in range(100):
            if self._writer is None:
                break
            await asyncio.sleep(0.01)  # its last messages are in the socket
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
        if self._writer is not None:
            self._writer.close()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
