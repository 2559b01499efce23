"""Reading a job's output file, as the job's user.

One process of the node opens the files, each with the rights of its user, and sends their content
through a socket; the agent only reads that. A mount that hangs, a link into another home or a pipe
in place of a file then harms no other job.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.ranks.child_process import expand_pattern
from dlsched.nodeagent.ranks.launch_spec import RunFacts
from dlsched.nodeagent.ranks.line_merger import label_of

OUTPUTS, OUTPUTS_OF_ONE = 128, 16  # read at a time on this node, and with the rights of one user
OPEN_S = 10.0  # until the first byte, or the end
_CHUNK = 64 * 1024
_FOLLOW_S = 0.2


class LogReader:
    """The process that reads outputs, and how many it reads; it starts when it is first needed."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._of: Counter[int] = Counter()
        self._process: asyncio.subprocess.Process | None = None
        self._channel: socket.socket | None = None
        self._starting = asyncio.Lock()

    @contextlib.contextmanager
    def one(self, uid: int, user: str) -> Iterator[None]:
        """Count one more while it is read.

        Raises:
            DlschedError: there are as many as there may be.
        """
        if self._of[uid] >= OUTPUTS_OF_ONE:
            raise DlschedError(
                f"{OUTPUTS_OF_ONE} outputs of {user or uid} are read on this node, the most at once"
            )
        if self._of.total() >= OUTPUTS:
            raise DlschedError(
                f"{OUTPUTS} outputs are read on this node, which is the most at once"
            )
        self._of[uid] += 1
        try:
            yield
        finally:
            self._of[uid] -= 1

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the process for one output.

        Raises:
            DlschedError: it takes none.
        """
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()
        assert self._channel is not None
        mine, its = socket.socketpair()
        with its:
            try:
                socket.send_fds(self._channel, [b"."], [its.fileno()])
            except OSError as error:
                mine.close()
                raise DlschedError(f"the reader of outputs is busy: {error.strerror}") from None
        return await asyncio.open_connection(sock=mine)

    async def _start(self) -> None:
        self._leave()
        self._channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        with its:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S"),
                os.path.join(os.path.dirname(__file__), "log_reader.py"),
                stdin=its.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                cwd="/",
                env={},
            )

    def _leave(self) -> None:
        """Close the channel; the process ends when it sees that."""
        if self._channel is not None:
            self._channel.close()

    async def close(self) -> None:
        """End the process."""
        self._leave()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def read_output(
    reader: LogReader,
    facts: RunFacts,
    *,
    node: str,
    node_rank: int,
    rank: int,
    only_rank: bool,
    error: bool,
    tail_lines: int,
    follow: bool,
    is_running: Callable[[], bool],
) -> AsyncGenerator[bytes]:
    """Give the bytes of one stream of a run's output, as they are.

    Args:
        reader: the process that reads it.
        facts: the user of the run and the patterns of its output files.
        node: replaces %N in the pattern.
        node_rank: replaces %n in the pattern.
        rank: replaces %t in the pattern.
        only_rank: only the lines with the label of `rank`, without it.
        error: read the error stream, where it has a file of its own.
        tail_lines: only so many lines from the end; negative: all.
        follow: go on while the run goes on.
        is_running: whether it does.

    Raises:
        DlschedError: when the file cannot be read.
    """
    pattern = (facts.error if error else "") or facts.output
    if not pattern:
        raise DlschedError("this run has no output file")
    path = expand_pattern(pattern, node=node, node_rank=node_rank, rank=rank)
    request = {
        "path": os.path.join(facts.working_directory or "/", path),
        "uid": facts.uid,
        "gid": facts.gid,
        "groups": list(facts.groups),
        "tail": tail_lines,
        "follow": follow,
        "label": label_of(rank).decode() if only_rank else "",
    }
    content, order = await reader.connect()
    watching = asyncio.ensure_future(_end_with_run(is_running, order)) if follow else None
    try:
        order.write(json.dumps(request).encode() + b"\n")
        await order.drain()
        try:
            ready = await asyncio.wait_for(content.readline(), OPEN_S)
        except TimeoutError:
            raise DlschedError(f"cannot open {path}: the file system does not answer") from None
        if ready != b"ready\n":
            why = ready.decode("utf-8", "replace").strip() or "it cannot be read"
            raise DlschedError(f"cannot open {path}: {why}")
        while data := await content.read(_CHUNK):
            yield data
    except ConnectionError:
        raise DlschedError(f"{path}: the reader of outputs has ended; ask again") from None
    finally:
        if watching is not None:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        with contextlib.suppress(OSError):
            order.write_eof()  # so that the reader leaves it: a file system may still hold it
            while await content.read(_CHUNK):
                pass
        order.close()


async def _end_with_run(is_running: Callable[[], bool], line: asyncio.StreamWriter) -> None:
    """Tell the reader when the run is over: it then reads to the end and closes."""
    while is_running():
        await asyncio.sleep(_FOLLOW_S)
    with contextlib.suppress(OSError):
        line.write(b"over\n")
        await line.drain()
