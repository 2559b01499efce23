"""The agent's side of one keeper: its process, and the connection to it.

The connection may break and be made again; only the end of the process is the end of the keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from dlsched.nodeagent.framing import BrokenFrame, Frames, frame
from dlsched.nodeagent.plainjson import plain
from dlsched.protocol.messages import Order, RunId

log = logging.getLogger(__name__)


class KeeperLink:
    """Reads what a keeper says, and notices when it is gone."""

    def __init__(
        self,
        run_id: RunId,
        pid: int,
        handle: int,
        path: str,
        *,
        heard: Callable[[RunId, dict[str, Any]], None],
        gone: Callable[[RunId], None],
    ) -> None:
        self.run_id, self.pid = run_id, pid
        self._handle, self._path = handle, path
        self._heard, self._gone = heard, gone
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: list[dict[str, Any]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._connected = asyncio.Event()
        self._over = False

    def begin(self, connection: socket.socket | None = None) -> None:
        """Watch the process; talk over `connection`, or dial."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._handle, self._ended)
        self._tasks.append(loop.create_task(self._converse(connection)))

    async def _converse(self, connection: socket.socket | None) -> None:
        while not self._over:
            try:
                if connection is not None:
                    reader, writer = await asyncio.open_unix_connection(sock=connection)
                else:
                    reader, writer = await asyncio.open_unix_connection(self._path)
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
                    self._heard(self.run_id, message)
            except (OSError, BrokenFrame) as error:
                log.warning("keeper-connection run=%s why=%s", self.run_id, error)
                return

    def tell(self, message: dict[str, Any]) -> None:
        """Say something, now or as soon as it is connected."""
        if self._writer is not None:
            self._writer.write(frame(message))
        else:
            self._waiting.append(message)

    def order(self, order: Order, **more: object) -> None:
        """Give an order."""
        self.tell({"order": type(order).__name__, "with": plain(order), **more})

    def _ended(self) -> None:
        """The process has ended; what it said before is still read."""
        asyncio.get_running_loop().remove_reader(self._handle)
        if self._over:
            return
        self._tasks.append(asyncio.get_running_loop().create_task(self._after_the_end()))

    async def _after_the_end(self) -> None:
        for _ in range(100):
            if self._writer is None:
                break
            await asyncio.sleep(0.01)  # its last words are in the socket
        self.close()
        self._gone(self.run_id)

    def close(self) -> None:
        """Let go of it; it lives on."""
        if self._over:
            return
        self._over = True
        with contextlib.suppress(ValueError, OSError):
            asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        if self._writer is not None:
            self._writer.close()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
