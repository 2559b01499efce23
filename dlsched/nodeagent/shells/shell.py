"""One process that clients attach to: its terminal or pipes, and the end of its output.

The output is kept up to a bound, so that a client that comes again sees what it missed. While a
client is attached, output is read only as fast as the client takes it. A lost client is waited for
`HOLD_S`, so that it misses nothing; after that the oldest is dropped, and the process never waits.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from typing import TYPE_CHECKING

from dlsched.nodeagent.host import processes, syscalls
from dlsched.nodeagent.shells.frames import CHUNK
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.host.event_loop import EventLoop
    from dlsched.nodeagent.shells.connection import Connection

SCROLLBACK = 128 * 1024  # bytes of output that are kept
OUTPUT_WINDOW = 64 * 1024  # bytes of output that a client has not taken
INPUT_WINDOW = 64 * 1024  # bytes of input that a process has not been given
HOLD_S = 30.0  # in which a client that lost its connection comes again
_GONE = select.EPOLLHUP | select.EPOLLERR
_LAST_READS = 16  # of what a process wrote before its end; the kernel holds no more


class Shell:
    """A process with its input and output.

    Attributes:
        ticket: names it; chosen by the client that started it.
        is_own: whether it is the job itself, an interactive one.
        is_command: whether a client named the command; else it is a shell.
        client: the one that is attached, if any.
        end: exit code, signal and why it could not start, once it has ended.
        pid: of the process.
        received: bytes of input that have come.
        given: bytes of input that the process has been given.
        hold_until: a lost client is waited for, until this second since the boot; None: none is.
    """

    def __init__(
        self, loop: EventLoop, ticket: str, *, terminal: bool, is_own: bool, is_command: bool
    ) -> None:
        """Make a terminal or pipes; `started` follows.

        Raises:
            OSError: no descriptor or terminal is left.
        """
        self.ticket, self.is_own, self.is_command = ticket, is_own, is_command
        self.client: Connection | None = None
        self.end: tuple[int, int, str] | None = None
        self.pid = 0
        self.received = self.given = 0
        self.has_terminal = terminal
        self.hold_until: float | None = None
        self._held_taken = 0  # what the lost client had taken
        self._loop = loop
        self._kept = bytearray()
        self._begin = 0  # bytes of output before the kept ones
        self._pending = bytearray()  # input that the process has not been given
        self._input_ends = False
        if terminal:
            ours, theirs = os.openpty()
            self._reading: int | None = ours
            self._writing: int | None = ours
            self.streams = (theirs, theirs)
        else:
            their_input, self._writing = os.pipe2(os.O_CLOEXEC)
            self._reading, their_output = os.pipe2(os.O_CLOEXEC)
            self.streams = (their_input, their_output)
        for fd in {self._reading, self._writing}:
            assert fd is not None
            os.set_blocking(fd, False)
            loop.watch(fd, lambda mask, fd=fd: self._ready(fd, mask))  # type: ignore[misc]
        self.update()

    def give_to(self, uid: int) -> None:
        """Have the user own the terminal.

        Raises:
            OSError: it cannot be given away.
        """
        if self.has_terminal and os.geteuid() == 0:
            os.fchown(self.streams[0], uid, -1)
            os.fchmod(self.streams[0], 0o620)

    def started(self, pid: int) -> None:
        """Note the process, which has the other ends now."""
        self.pid = pid
        self._close_theirs()

    def _close_theirs(self) -> None:
        for fd in set(self.streams):
            os.close(fd)

    def abandon(self) -> None:
        """Close everything: the process could not be forked."""
        self._close_theirs()
        self._close_reading()
        self._close_writing()

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal; the kernel tells the foreground processes."""
        if self.has_terminal and self._reading is not None and rows and columns:
            syscalls.resize_terminal(self._reading, rows, columns)

    def send(self, number: int) -> None:
        """Signal the process and what it has started."""
        found = processes.stat(self.pid) if self.end is None else None
        if found is not None and 0 < number < signal.NSIG:
            processes.send([found, *processes.descendants(self.pid)], number)

    # -- output --------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The number of the first byte that is kept."""
        return self._begin

    @property
    def written(self) -> int:
        """How many bytes of output there have been."""
        return self._begin + len(self._kept)

    def output(self, position: int, most: int) -> bytes:
        """Return kept output from a position on."""
        at = position - self._begin
        return bytes(self._kept[at : at + most])

    def _ready(self, fd: int, mask: int) -> None:
        if fd == self._writing and mask & select.EPOLLOUT:
            self._write()
        if fd == self._reading and mask & (select.EPOLLIN | _GONE):
            # once no process has the other end, what is left is read whatever the client takes
            self._read(_LAST_READS if mask & _GONE else 1)
        elif fd == self._writing and mask & _GONE:
            self._close_writing()

    def _read(self, times: int) -> None:
        for _ in range(times):
            if self._reading is None:
                return
            try:
                data = os.read(self._reading, CHUNK)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EIO:  # of a terminal that no process has open
                    raise
                data = b""
            if not data:
                self._close_reading()
                break
            self._kept += data
            excess = len(self._kept) - SCROLLBACK
            if excess > 0:
                del self._kept[:excess]
                self._begin += excess
        if self.client is not None:
            self.client.push()
        self.update()

    def _close_reading(self) -> None:
        fd, self._reading = self._reading, None
        if fd is not None:
            if fd == self._writing:
                self._writing = None
            self._loop.unwatch(fd)
            os.close(fd)

    # -- input ---------------------------------------------------------------------------------

    def take(self, data: bytes) -> bool:
        """Take input of a client; return False when it is more than may wait."""
        if len(self._pending) + len(data) > 2 * INPUT_WINDOW:
            return False
        self.received += len(data)
        if self._writing is not None:
            self._pending += data
            self._write()
        else:
            self.given = self.received
        return True

    def end_input(self) -> None:
        """Close the input once the process has been given all; a terminal stays open."""
        self._input_ends = not self.has_terminal
        self._write()

    def _write(self) -> None:
        while self._pending and self._writing is not None:
            try:
                count = os.write(self._writing, self._pending[:CHUNK])
            except BlockingIOError:
                break
            except OSError:  # the process has closed its input
                self.given += len(self._pending)
                self._pending.clear()
                break
            del self._pending[:count]
            self.given += count
        if self._input_ends and not self._pending:
            self._close_writing()
        self.update()
        if self.client is not None:
            self.client.tell_given()

    def _close_writing(self) -> None:
        fd, self._writing = self._writing, None
        self._pending.clear()
        if fd is not None:
            if fd == self._reading:
                self._writing = fd  # one descriptor for both: `_close_reading` closes it
                return
            self._loop.unwatch(fd)
            os.close(fd)

    # -- clients -------------------------------------------------------------------------------

    def attach(self, client: Connection | None) -> None:
        """Replace the client; None: the shell has none from now on."""
        if client is None and self.client is not None and self.end is None:
            self.hold_until, self._held_taken = clock.boottime() + HOLD_S, self.client.taken
        elif client is not None:
            self.hold_until = None
        self.client = client
        self.update()

    def wake(self, now: float) -> None:
        """Wait for a lost client no longer when its time is over."""
        if self.hold_until is not None and now >= self.hold_until:
            self.hold_until = None
            self.update()

    def update(self) -> None:
        """Wait for what can be done now: output that may be read, input that may be given."""
        wants = True
        if self.client is not None or self.hold_until is not None:
            taken = self._held_taken if self.client is None else self.client.taken
            wants = self.written - taken < OUTPUT_WINDOW
        masks: dict[int, int] = {}
        if self._reading is not None:
            masks[self._reading] = select.EPOLLIN if wants else 0
        if self._writing is not None:
            more = select.EPOLLOUT if self._pending else 0
            masks[self._writing] = masks.get(self._writing, 0) | more
        for fd, mask in masks.items():
            self._loop.set_mask(fd, mask)

    # -- the end -------------------------------------------------------------------------------

    def has_ended(self, code: int, number: int, why: str) -> None:
        """Take what the process wrote last, and close: others may have its terminal still."""
        self._read(_LAST_READS)
        self._close_reading()
        self._close_writing()
        self.end, self.hold_until = (code, number, why), None
        if self.client is not None:
            self.client.push()
