"""Clients that are attached to jobs of this node: to shells, and to ports of the jobs' processes.

The daemon has authenticated the client; the agent checks once more that the user is the run's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dlsched.core.errors import DlschedError, NotAllowed, Unavailable
from dlsched.nodeagent.agent.keepers.all_keepers import Keepers
from dlsched.nodeagent.agent.tasks import AgentTasks
from dlsched.nodeagent.host import ports
from dlsched.nodeagent.shells import frames
from dlsched.nodeagent.shells.frames import frame
from dlsched.protocol.messages import DesiredRun, NodeName, RunId
from dlsched.rpc.v1 import attach_pb2 as wire
from dlsched.system import clock

CLIENTS, CLIENTS_OF_RUN = 256, 64  # at a time on this node, and of one run here
CHUNK = 16 * 1024
_CONNECT_S = 5.0
_STARTS_S, _LOOK_S = 5.0, 0.05  # the daemon may know of a start before this agent does
Inputs = AsyncIterator[Any]
Outputs = AsyncGenerator[Any]
Connect = Callable[[Any, Inputs], Outputs]


@dataclass(eq=False, slots=True)
class Clients:
    """The clients of one agent."""

    node: NodeName  # this agent's
    tasks: AgentTasks
    keepers: Keepers
    running: Callable[[RunId], DesiredRun | None]  # a run that the agent holds and has not ended
    _count: Counter[RunId] = field(default_factory=Counter, init=False)

    async def attach(self, target: wire.AttachTarget, inputs: Inputs) -> Outputs:
        """Connect a client to a shell of a run, through the run's keeper.

        Raises:
            Unavailable: the connection was lost; the client may ask again.
            DlschedError: there is no such run, or its keeper refuses.
        """
        run_id = await self._run(target)
        with self._counted(run_id):
            reader, writer = await self._keeper(run_id)
            writer.write(frame(frames.OPEN, _wanted(target)))
            async with _passed_on(inputs, writer, _to_keeper):
                ended = False
                async for output in _from_keeper(reader, self.node):
                    ended = ended or output.HasField("ended")
                    yield output
                if not ended:
                    raise Unavailable(f"node {self.node}: the connection to the run was lost")

    async def forward(self, target: wire.AttachTarget, inputs: Inputs) -> Outputs:
        """Connect a client to a port at which a process of a run listens.

        Raises:
            DlschedError: there is no such run, or none of its processes listens there.
        """
        run_id = await self._run(target)
        with self._counted(run_id):
            listener = await self._listener(run_id, target)
            try:
                async with asyncio.timeout(_CONNECT_S):
                    reader, writer = await asyncio.open_connection(listener.host, target.port)
            except (OSError, TimeoutError):
                raise DlschedError(f"port {target.port} of node {self.node}: no answer") from None
            try:  # what listened before may have left the port to another process
                if await self._listener(run_id, target) != listener:
                    raise DlschedError(f"port {target.port} of node {self.node} has changed hands")
            except DlschedError:
                writer.close()
                raise
            yield wire.AttachOutput(attached=wire.Attached(node=self.node))
            async with _passed_on(inputs, writer, _to_port):
                with contextlib.suppress(ConnectionError):
                    while data := await reader.read(CHUNK):
                        yield wire.AttachOutput(data=data)
                yield wire.AttachOutput(end=True)

    async def _listener(self, run_id: RunId, target: wire.AttachTarget) -> ports.Listener:
        found = await self.tasks.in_thread(ports.listeners, target.port, target.uid)
        pids = {pid for each in found for pid in each.pids}
        runs = await self.tasks.in_thread(self.keepers.runs_of, pids)
        for each in found:
            if any(runs[pid] == run_id for pid in each.pids):
                return each
        raise DlschedError(
            f"no process of job {target.key.job} listens on port {target.port} of node {self.node}"
        )

    async def _run(self, target: wire.AttachTarget) -> RunId:
        """The run that a target means; one that is about to start here is waited for.

        Raises:
            DlschedError: it does not run here, or is another user's.
        """
        run_id, until = RunId(target.key.run_id), clock.boottime() + _STARTS_S
        while (facts := self.keepers.facts.get(run_id)) is None or self.running(run_id) is None:
            if clock.boottime() >= until:
                raise DlschedError(f"node {self.node}: job {target.key.job} does not run here")
            await asyncio.sleep(_LOOK_S)
        if (facts.user, facts.uid) != (target.user, target.uid):
            raise NotAllowed(f"node {self.node}: the run is not of user {target.user}")
        return run_id

    async def _keeper(self, run_id: RunId) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a run's keeper; one that begins is waited for.

        Raises:
            Unavailable: it does not take the connection.
        """
        until = clock.boottime() + _CONNECT_S
        while True:
            line = socket.socket(socket.AF_UNIX)
            line.setblocking(False)
            try:
                line.connect(self.keepers.shells_socket(run_id))
            except OSError:  # also when many connect at once; asyncio would take it for connected
                line.close()
                if clock.boottime() >= until or self.running(run_id) is None:
                    raise Unavailable(f"node {self.node}: the run cannot be reached now") from None
                await asyncio.sleep(_LOOK_S)
            else:
                return await asyncio.open_unix_connection(sock=line)

    @contextlib.contextmanager
    def _counted(self, run_id: RunId) -> Iterator[None]:
        if self._count[run_id] >= CLIENTS_OF_RUN or self._count.total() >= CLIENTS:
            raise DlschedError(
                f"node {self.node}: {CLIENTS_OF_RUN} connections to one run, or {CLIENTS} in all, "
                "are the most"
            )
        self._count[run_id] += 1
        try:
            yield
        finally:
            self._count[run_id] -= 1


def _wanted(target: wire.AttachTarget) -> bytes:
    """What the keeper is asked."""
    return json.dumps(
        {
            "ticket": target.ticket,
            "argv": list(target.argv),
            "terminal": target.terminal,
            "rows": target.window.rows & 0xFFFF,
            "columns": target.window.columns & 0xFFFF,
            "term": target.term,
            "fresh": target.fresh,
            "again": target.again,
            "taken": target.taken,
        }
    ).encode()


async def _from_keeper(reader: asyncio.StreamReader, node: str) -> Outputs:
    """What a keeper says to a client.

    Raises:
        DlschedError: the keeper refuses the client.
    """
    parts = frames.Frames()
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            for kind, content in parts.feed(data):
                match kind:
                    case frames.DATA:
                        yield wire.AttachOutput(data=content)
                    case frames.TAKEN:
                        yield wire.AttachOutput(taken=frames.COUNT.unpack(content)[0])
                    case frames.ATTACHED:
                        yield wire.AttachOutput(
                            attached=wire.Attached(node=node, **json.loads(content))
                        )
                    case frames.NOTICE:
                        yield wire.AttachOutput(notice=content.decode("utf-8", "replace"))
                    case frames.ENDED:
                        yield wire.AttachOutput(ended=wire.AttachEnd(**json.loads(content)))
                    case frames.REFUSED:
                        raise DlschedError(f"node {node}: {content.decode('utf-8', 'replace')}")


async def _to_keeper(message: wire.AttachInput, writer: asyncio.StreamWriter) -> None:
    if message.HasField("window"):
        size = frames.SIZE.pack(message.window.rows & 0xFFFF, message.window.columns & 0xFFFF)
        writer.write(frame(frames.WINDOW, size))
    if message.signal:
        writer.write(frame(frames.SIGNAL, frames.NUMBER.pack(message.signal & 0xFF)))
    if message.taken:
        writer.write(frame(frames.TAKEN, frames.COUNT.pack(message.taken)))
    for start in range(0, len(message.data), frames.CHUNK):
        writer.write(frame(frames.DATA, message.data[start : start + frames.CHUNK]))
    if message.end:
        writer.write(frame(frames.END))


async def _to_port(message: wire.AttachInput, writer: asyncio.StreamWriter) -> None:
    if message.data:
        writer.write(message.data)
    if message.end and writer.can_write_eof():
        writer.write_eof()


@contextlib.asynccontextmanager
async def _passed_on(
    inputs: Inputs,
    writer: asyncio.StreamWriter,
    write: Callable[[Any, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[None]:
    """Pass on what the client sends, while the block runs; a client that is gone ends it."""

    async def pass_on() -> None:
        try:
            async for message in inputs:
                await write(message, writer)
                await writer.drain()
        except BaseException:
            writer.close()  # ends the other direction too
            raise

    passing = asyncio.ensure_future(pass_on())
    try:
        yield
    finally:
        passing.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await passing
        writer.close()
