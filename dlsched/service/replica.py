"""One replica: the user's HTTP server, started here, and its connections to the leader.

The server gets a free port of the loopback address as PORT. Nothing but this process connects to
it. A replica that had no request for the idle time ends itself; no word of the leader does.

This process asks the keeper for a message in place of SIGTERM, which would reach the server, too.
When it comes, or the replica ends itself, the leader is told and sends no request more; those that
the server works on are answered, and only then does it get SIGTERM.
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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.client.submission.services import Terms
from dlsched.core.errors import plural
from dlsched.job import PREEMPTED, Job
from dlsched.service.frames import LEAVES, MOST_BYTES, read_frame, send_frame, write_frame
from dlsched.service.rendezvous import Rendezvous

HOST = "127.0.0.1"
READY_S = 1800.0  # in which a server begins to listen
AGAIN_S = 0.5
ORPHAN_S = 120.0  # without a leader
STOP_S = 10.0  # from the request to a server to end, until it is killed
LOOK_S = 0.1  # for the request to stop


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
    _leaves: bool = False  # it takes no request more
    _ending: bool = False  # its server has been told to end, or has ended
    _links: set[asyncio.StreamWriter] = field(default_factory=set)  # to the leader

    async def run(self, job: Job) -> int:
        """Serve until the server ends, nothing is asked any more, or it has to stop.

        Args:
            job: whose replica it is.

        Returns:
            the exit code of the job.
        """
        self._port = free_port()
        told = {**os.environ, "PORT": str(self._port), "HOST": HOST}
        told["DLSCHED_SERVICE_REPLICA"] = str(self.number)
        server = await asyncio.create_subprocess_exec(
            *self.command, env=told, start_new_session=True
        )
        asked, ended = (
            asyncio.ensure_future(_until_asked(job)),
            asyncio.ensure_future(server.wait()),
        )
        done = asyncio.ensure_future(self._serve())
        try:
            await asyncio.wait({asked, ended, done}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() and not ended.done():
                self._leave()
                patience_s = _patience_s(asked.result())
                await asyncio.wait(
                    {ended, done}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
                )
                if self._working:
                    print(
                        f"{plural(self._working, 'request')} had no answer {patience_s:.3g} s "
                        "after the request to stop; another replica gets them",
                        file=sys.stderr,
                    )
            if asked.done():
                return PREEMPTED
            if ended.done():
                print(f"the server has ended with {server.returncode}", file=sys.stderr)
                code = server.returncode or 1
                return code if code > 0 else 128 - code
            return done.result()
        finally:
            self._ending = True
            await _end(server)  # what it answers until then still gets to the leader
            for each in (asked, ended, done):
                each.cancel()

    async def _serve(self) -> int:
        if not await self._is_ready():
            print(f"nothing listens at port {self._port} after {READY_S:g} s", file=sys.stderr)
            return 1
        self._last = time.monotonic()
        ends_itself = False
        async with asyncio.TaskGroup() as group:
            slots = [group.create_task(self._slot()) for _ in range(self.terms.slots)]
            while not all(slot.done() for slot in slots):
                await asyncio.wait(slots, timeout=min(AGAIN_S, self.terms.idle / 4))
                quiet = time.monotonic() - self._last
                mayend = self.number > self.terms.least and not (self._working or self._leaves)
                if mayend and quiet >= self.terms.idle:
                    print(f"no request for {self.terms.idle:g} s: the replica ends", flush=True)
                    ends_itself = True
                    self._leave()
                    _, late = await asyncio.wait(slots, timeout=ORPHAN_S)
                    for each in late:  # the leader is not there
                        each.cancel()
        if self._leaves:
            return 0 if ends_itself else PREEMPTED
        print(f"no leader for {ORPHAN_S:g} s: the replica ends", file=sys.stderr)
        return 1

    def _leave(self) -> None:
        """Tell the leader that this replica takes no request more; it closes each connection."""
        self._leaves = True
        for each in self._links:
            send_frame(each, LEAVES)

    async def _is_ready(self) -> bool:
        until = time.monotonic() + READY_S
        while time.monotonic() < until and not self._leaves:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, self._port)
                writer.close()
                return True
            await asyncio.sleep(0.05)
        return self._leaves

    async def _slot(self) -> None:
        """Take requests over one connection to the leader; connect again when it is lost."""
        left = time.monotonic()
        while time.monotonic() - left < ORPHAN_S and not self._leaves:
            with contextlib.suppress(OSError, TimeoutError):
                await self._connected()
                left = time.monotonic()
            if not self._leaves:
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
        async with self._linked(writer):
            while welcome:
                request = await read_frame(reader)
                self._working += 1
                self._last = time.monotonic()
                try:
                    await write_frame(writer, await self._ask(request))
                finally:
                    self._working -= 1
                    self._last = time.monotonic()

    @asynccontextmanager
    async def _linked(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Have a connection over which requests come, until it is lost or closed."""
        self._links.add(writer)
        if self._leaves:
            send_frame(writer, LEAVES)
        try:
            yield
        except ConnectionError:
            return
        finally:
            self._links.discard(writer)
            writer.transport.abort()

    async def _ask(self, request: bytes) -> bytes:
        """What the user's server answers; a failure of it is an answer, too.

        Raises:
            ConnectionError: the server ends, so that another replica has to answer.
        """
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
            if self._ending:
                raise ConnectionError("the server ends") from error
            return _bad_gateway(f"replica {self.number}: {error.strerror or error}")
        whole = b"".join(parts)
        if self._ending and not is_whole(whole):
            raise ConnectionError("the server has ended before it had answered")
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


def is_whole(answer: bytes) -> bool:
    """Whether an answer has a head, and the body that its head announces, if it announces one."""
    head, blank, body = answer.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return bool(blank) and len(body) >= int(value)
    return bool(blank)


async def _until_asked(job: Job) -> float:
    """Wait until the job has to stop; returns the seconds that it has."""
    while True:
        left_s = job.deadline()  # and reads what the keeper has sent
        if not job.lease:
            return float(job.runtime.grace_s) if left_s is None else left_s
        await asyncio.sleep(LOOK_S)


def _patience_s(left_s: float) -> float:
    """How long requests may take of the seconds that a replica has: its server needs some, too."""
    return max(left_s - STOP_S, left_s / 2)


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
