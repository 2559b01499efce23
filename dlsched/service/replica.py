"""One replica: the user's HTTP server, started here, and its connections to the leader.

The server gets a free port of the loopback address as PORT. Nothing but this process connects to
it. A replica that had no request for the idle time ends itself; no word of the leader does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsched.client.submission.services import Terms
from dlsched.service.frames import MOST_BYTES, read_frame, write_frame
from dlsched.service.rendezvous import Rendezvous

HOST = "127.0.0.1"
READY_S = 1800.0  # in which a server begins to listen
AGAIN_S = 0.5
ORPHAN_S = 120.0  # without a leader
STOP_S = 10.0  # from the request to a server to end, until it is killed
ASKED_TO_STOP = 143


@dataclass(slots=True, kw_only=True)
class Replica:
    """A replica of a service.

    Attributes:
        number: among those of the service.
        terms: of the service.
        folder: where the leader's address is.
        command: the user's server.
    """

    number: int
    terms: Terms
    folder: Path
    command: Sequence[str]
    _port: int = 0
    _last: float = 0.0  # when a request came
    _working: int = 0

    async def run(self) -> int:
        """Serve until the server ends, nothing is asked any more, or it has to stop.

        Returns:
            the exit code of the job.
        """
        self._port = free_port()
        told = {**os.environ, "PORT": str(self._port), "HOST": HOST}
        told["DLSCHED_SERVICE_REPLICA"] = str(self.number)
        server = await asyncio.create_subprocess_exec(
            *self.command, env=told, start_new_session=True
        )
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        asked, ended = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(server.wait())
        done = asyncio.ensure_future(self._serve())
        ends: tuple[asyncio.Future[Any], ...] = (asked, ended, done)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                print(f"the server has ended with {server.returncode}", file=sys.stderr)
                code = server.returncode or 1
                return code if code > 0 else 128 - code
            if done.done():
                return done.result()
            return ASKED_TO_STOP
        finally:
            for each in ends:
                each.cancel()
            await _end(server)

    async def _serve(self) -> int:
        if not await self._is_ready():
            print(f"nothing listens at port {self._port} after {READY_S:g} s", file=sys.stderr)
            return 1
        self._last = time.monotonic()
        async with asyncio.TaskGroup() as group:
            slots = [group.create_task(self._slot()) for _ in range(self.terms.slots)]
            while not all(slot.done() for slot in slots):
                await asyncio.sleep(min(AGAIN_S, self.terms.idle / 4))
                quiet = time.monotonic() - self._last
                mayend = self.number > self.terms.least and not self._working
                if mayend and quiet >= self.terms.idle:
                    print(f"no request for {self.terms.idle:g} s: the replica ends", flush=True)
                    for slot in slots:
                        slot.cancel()
                    return 0
        print(f"no leader for {ORPHAN_S:g} s: the replica ends", file=sys.stderr)
        return 1

    async def _is_ready(self) -> bool:
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, self._port)
                writer.close()
                return True
            await asyncio.sleep(0.05)
        return False

    async def _slot(self) -> None:
        """Take requests over one connection to the leader; connect again when it is lost."""
        left = time.monotonic()
        while time.monotonic() - left < ORPHAN_S:
            with contextlib.suppress(OSError, TimeoutError):
                await self._connected()
                left = time.monotonic()
            await asyncio.sleep(AGAIN_S)

    async def _connected(self) -> None:
        leader = Rendezvous.read(self.folder)
        if leader is None:
            return
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(leader.host, leader.port)
            greeting = {"number": self.number, "secret": leader.secret, "job": _job()}
            writer.write(json.dumps(greeting).encode() + b"\n")
            welcome = await reader.readline()
        try:
            while welcome:
                request = await read_frame(reader)
                self._working += 1
                self._last = time.monotonic()
                try:
                    await write_frame(writer, await self._ask(request))
                finally:
                    self._working -= 1
                    self._last = time.monotonic()
        except ConnectionError:
            return
        finally:
            writer.transport.abort()

    async def _ask(self, request: bytes) -> bytes:
        """What the user's server answers; a failure of it is an answer, too."""
        try:
            reader, writer = await asyncio.open_connection(HOST, self._port)
            try:
                writer.write(request)
                await writer.drain()
                answer = await reader.read(MOST_BYTES)
                parts = [answer]
                while answer and sum(map(len, parts)) <= MOST_BYTES:
                    answer = await reader.read(MOST_BYTES)
                    parts.append(answer)
            finally:
                writer.close()
        except OSError as error:
            return _bad_gateway(f"replica {self.number}: {error.strerror or error}")
        whole = b"".join(parts)
        if not whole or len(whole) > MOST_BYTES:
            why = "no answer" if not whole else f"an answer above {MOST_BYTES} bytes"
            return _bad_gateway(f"replica {self.number}: {why}")
        return whole


def free_port() -> int:
    """A port of the loopback address at which nothing listens."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port


def _job() -> int:
    return int(os.environ.get("DLSCHED_JOB_ID", "0") or "0")


def _bad_gateway(why: str) -> bytes:
    body = f"{why}\n".encode()
    head = f"HTTP/1.1 502 Bad Gateway\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


async def _end(server: asyncio.subprocess.Process) -> None:
    """End the user's server and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await server.wait()
                return
