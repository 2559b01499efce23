"""A keeper's end of the connection of one attached client, which an agent passes on.

No more than `OUTPUT_WINDOW` bytes are on their way to the client: it says what it has taken. After
the last frame the agent closes: a keeper that closed first, with frames unread, would have the
kernel cut off what it sent last.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlsched.nodeagent.host import lean_socket
from dlsched.nodeagent.host.event_loop import READABLE, WRITABLE, EventLoop
from dlsched.nodeagent.shells import frames
from dlsched.nodeagent.shells.shell import OUTPUT_WINDOW

if TYPE_CHECKING:
    from dlsched.nodeagent.shells.shell import Shell


class Connection:
    """One client, or one that has not said yet what it wants.

    Attributes:
        shell: that it is attached to.
        taken: bytes of output that the client has.
        is_open: whether the client is there.
    """

    def __init__(
        self,
        loop: EventLoop,
        socket: lean_socket.Socket,
        *,
        on_open: Callable[[Connection, dict[str, Any]], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        """Listen to the agent.

        Args:
            loop: of the keeper.
            socket: to the agent.
            on_open: takes what the client wants, once.
            on_close: is called when the connection is closed.
        """
        socket.setblocking(False)
        self.shell: Shell | None = None
        self.taken = 0
        self._sent = 0  # bytes of output
        self._given_told = 0
        self._loop, self._socket = loop, socket
        self._on_open, self._on_close = on_open, on_close
        self.is_open, self._ends, self._asked = True, False, False
        self._has_said_all = False
        self._incoming = frames.Frames()
        self._outgoing = bytearray()
        loop.watch(socket.fileno(), self._ready)

    # -- from the client -----------------------------------------------------------------------

    def _ready(self, mask: int) -> None:
        if mask & WRITABLE:
            self._flush()
        if self.is_open and mask & ~WRITABLE:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data and self._ends:
            return  # nothing is done with what comes after the end
        try:
            for kind, content in self._incoming.feed(data):
                self._take(kind, content)
                if not self.is_open:
                    return
        except (frames.BadFrame, ValueError, TypeError, KeyError, struct.error):
            data = b""
        if not data:
            self.close()

    def _take(self, kind: int, content: bytes) -> None:
        if kind == frames.OPEN and not self._asked:
            self._asked = True
            self._on_open(self, dict(json.loads(content)))
            return
        shell = self.shell
        if shell is None:
            return
        if kind == frames.DATA:
            if not shell.take(content):
                self.close()
        elif kind == frames.END:
            shell.end_input()
        elif kind == frames.WINDOW:
            shell.resize(*frames.SIZE.unpack(content))
        elif kind == frames.SIGNAL:
            shell.send(*frames.NUMBER.unpack(content))
        elif kind == frames.TAKEN:
            (taken,) = frames.COUNT.unpack(content)
            self.taken = max(self.taken, min(taken, self._sent))
            self.push()
            shell.update()

    # -- to the client -------------------------------------------------------------------------

    def attach(self, shell: Shell, taken: int, *, started: bool) -> None:
        """Join a process; output comes from the byte `taken` on, or what is kept of it."""
        self.shell = shell
        self._sent = self.taken = min(max(taken, shell.first), shell.written)
        self._given_told = shell.given
        answer = {
            "ticket": shell.ticket,
            "position": self._sent,
            "taken": shell.received,
            "started": started,
        }
        self._send(frames.ATTACHED, json.dumps(answer).encode())
        shell.attach(self)
        self.push()

    def push(self) -> None:
        """Send the output that may be sent now, and the end after it."""
        shell = self.shell
        if shell is None or self._ends:
            return
        over = shell.end is not None
        while self._sent < shell.written and (over or self._sent - self.taken < OUTPUT_WINDOW):
            data = shell.output(self._sent, frames.CHUNK)
            self._sent += len(data)
            self._send(frames.DATA, data)
        if shell.end is not None and self._sent >= shell.written:
            code, number, why = shell.end
            self.finish({"code": code, "signal": number, "why": why})

    def tell_given(self) -> None:
        """Say how much input the process has been given."""
        shell = self.shell
        if shell is not None and shell.given != self._given_told:
            self._given_told = shell.given
            self._send(frames.TAKEN, frames.COUNT.pack(shell.given))

    def notice(self, text: str) -> None:
        """Send one line about the job, unless all is said."""
        if self._ends:
            return
        self._send(frames.NOTICE, text.encode())

    def refuse(self, why: str) -> None:
        """Say why the client is not attached; nothing follows."""
        self._ends = True
        self._send(frames.REFUSED, why.encode())

    def finish(self, end: dict[str, object]) -> None:
        """Say how it ended; nothing follows."""
        self._ends = True
        self._leave()
        self._send(frames.ENDED, json.dumps(end).encode())

    def _send(self, kind: int, content: bytes) -> None:
        if self.is_open:
            self._outgoing += frames.frame(kind, content)
            self._flush()

    def _flush(self) -> None:
        while self._outgoing and self.is_open:
            try:
                sent = self._socket.send(self._outgoing)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            del self._outgoing[:sent]
        if not self.is_open:
            return
        if self._ends and not self._outgoing and not self._has_said_all:
            self._has_said_all = True
            self._socket.shutdown(lean_socket.SHUT_WR)
        self._loop.set_mask(self._socket.fileno(), READABLE | (WRITABLE if self._outgoing else 0))

    def close(self) -> None:
        """Close the connection; the process goes on."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._leave()
        self._on_close(self)

    def _leave(self) -> None:
        """Stop being the shell's client; the shell goes on."""
        shell, self.shell = self.shell, None
        if shell is not None and shell.client is self:
            shell.attach(None)
