"""What the agent does with paths that users named: it asks the file server (`file_server`).

No process of the agent opens, lists or deletes such a path itself. The server is one process of the
node, which starts when it is first needed, and again when it takes no request any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dlsched.core.errors import DlschedError

TAKES_S = 10.0  # a request, or the server is replaced
OUTPUTS, OUTPUTS_OF_ONE = 128, 16  # read at a time on this node, and with the rights of one user
PROGRAM = (  # of `python -c`, with the folders of modules as arguments
    "import sys; sys.path += sys.argv[1:]; "
    "from dlsched.nodeagent.agent.file_server import main; main()"
)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UserFiles:
    """The file server, and how many outputs it reads."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._of: Counter[int] = Counter()
        self._process: asyncio.subprocess.Process | None = None
        self._channel: socket.socket | None = None
        self._starting = asyncio.Lock()

    @contextlib.contextmanager
    def one(self, uid: int, user: str) -> Iterator[None]:
        """Count one more output while it is read.

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

    async def ask(
        self,
        do: str,
        *,
        uid: int,
        gid: int,
        groups: Sequence[int],
        keeper: Callable[[], int | None] = lambda: None,
        **more: Any,
    ) -> Streams:
        """Ask a process of a user for something; return the connection, on which it answers.

        Args:
            do: what.
            uid: of the user.
            gid: the user's own group.
            groups: all groups of the user.
            keeper: gives the keeper's process as a descriptor, while the run lives: the process
                sees the mounts that the run sees.
            more: what the request has beside that.

        Raises:
            DlschedError: the file server takes no request, nor does the one in its place.
            ConnectionError: it has ended.
        """
        try:
            content, order = await self._connect(keeper)
        except ConnectionError:
            raise
        except OSError as error:  # this agent has no descriptor or process left
            raise DlschedError(f"the file server cannot be asked: {error.strerror}") from None
        request = {"do": do, "uid": uid, "gid": gid, "groups": list(groups), **more}
        order.write(json.dumps(request).encode() + b"\n")
        await order.drain()
        return content, order

    async def _connect(self, keeper: Callable[[], int | None]) -> Streams:
        """Connect with a process for one request; a server that takes none is replaced."""
        for _ in range(2):
            async with self._starting:
                if self._process is None or self._process.returncode is not None:
                    await self._start()
                process = self._process
            mine = self._send(keeper)
            try:
                if await _is_taken(mine):
                    return await asyncio.open_connection(sock=mine)
            except BaseException:
                mine.close()
                raise
            mine.close()
            if self._process is process is not None:  # no other request has replaced it
                self._process = None
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        raise DlschedError("the file server does not answer")

    def _send(self, keeper: Callable[[], int | None]) -> socket.socket:
        """Send the server a socket for one request; return the other end."""
        assert self._channel is not None
        mine, its = socket.socketpair()
        mine.setblocking(False)
        with its:
            process = keeper()
            fds = [its.fileno(), *([process] if process is not None else [])]
            try:
                socket.send_fds(self._channel, [b"."], fds)
            except BrokenPipeError:
                pass  # it has ended: nothing answers there
            except OSError as error:
                mine.close()
                raise DlschedError(f"the file server is busy: {error.strerror}") from None
        return mine

    async def _start(self) -> None:
        self._leave()
        self._channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        with its:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", PROGRAM, *filter(os.path.isabs, sys.path)),
                stdin=its.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                cwd="/",
                env={},
            )

    def _leave(self) -> None:
        """Close the channel; the server ends when it sees that, and its processes with it."""
        if self._channel is not None:
            self._channel.close()

    async def close(self) -> None:
        """End the server."""
        self._leave()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _is_taken(mine: socket.socket) -> bool:
    """Whether the server says in time that it has taken a request."""
    try:
        answer = asyncio.get_running_loop().sock_recv(mine, 1)
        return bool(await asyncio.wait_for(answer, TAKES_S))
    except (TimeoutError, ConnectionError):
        return False
