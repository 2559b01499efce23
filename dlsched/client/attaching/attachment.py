"""A process in a job, on this program's terminal or streams, over connections that may be lost.

Nothing that was typed or written is lost with a connection: each side says how many bytes it has
had, and the other one sends again from there, as long as it keeps them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dlsched.client.attaching.conversation import Conversation
from dlsched.client.attaching.local_terminal import (
    HELP_TEXT,
    Escapes,
    is_terminal,
    raw,
    size_of,
)
from dlsched.client.connection import Connection
from dlsched.client.errors import RequestRefused, Unavailable
from dlsched.rpc.v1 import attach_pb2 as wire

CHUNK = 8 * 1024
INPUT_WINDOW = 64 * 1024  # bytes that the process has not been given yet
TAKEN_EACH = 16 * 1024  # bytes of output after which the other side is told
RECONNECT_S = 600.0
_AGAIN_S = 0.2
_LEAVE = (signal.SIGTERM, signal.SIGHUP)  # with a terminal: detach
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachEnded:
    """How an attachment ended.

    Attributes:
        code: exit code of the process, 128 and more for a signal; None: it goes on, or how it
            ended is not known.
        why: why it could not start or was stopped; empty: it ended by itself.
        is_told: whether a notice has said why.
        elsewhere: another client has it now.
        detached: the user has left it running.
        started: whether it was ever attached.
    """

    code: int | None = None
    why: str = ""
    is_told: bool = False
    elsewhere: bool = False
    detached: bool = False
    started: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is called when something is worth a line; each gets the line or what it is about."""

    waits: Callable[[str], None] = lambda _status: None  # the job has not started
    attached: Callable[[str], None] = lambda _node: None  # once
    notice: Callable[[str], None] = lambda _line: None  # of the job
    lost: Callable[[str], None] = lambda _why: None  # once each time
    again: Callable[[], None] = lambda: None  # after that


class Attachment:
    """One attachment to one process of a job."""

    def __init__(
        self,
        connection: Connection,
        job: int,
        *,
        argv: Sequence[str] = (),
        node: str = "",
        fresh: bool = False,
        wait: bool = False,
        told: Told,
        passes_interrupt: bool = True,
        streams: tuple[int, int] = (0, 1),
    ) -> None:
        """Prepare; `run` attaches.

        Args:
            connection: to the daemon.
            job: its id.
            argv: a command to start; empty: a shell.
            node: of the job; empty: its first.
            fresh: a new shell, even if there is one to come back to.
            wait: for the start of the job.
            told: is told what happens.
            passes_interrupt: without a terminal, SIGINT goes to the process; else to the caller.
            streams: where input is read from and output is written to.
        """
        self._connection, self._told = connection, told
        self._input, self._output = streams
        self.has_terminal = is_terminal(*streams)
        self._passed_on = set(_PASSED_ON) - (set() if passes_interrupt else {signal.SIGINT})
        self._target = wire.AttachTarget(
            job=job,
            node=node,
            argv=argv,
            ticket=secrets.token_hex(16),
            terminal=self.has_terminal,
            window=self._window(),
            term=os.environ.get("TERM", "") if self.has_terminal else "",
            fresh=fresh,
            wait=wait,
        )
        self._attached = False
        self._noticed = ""  # the last notice of the job
        self._position = self._told_taken = 0  # bytes of output
        self._given = 0  # bytes of input before those that are kept here
        self._kept = bytearray()
        self._input_open = True
        self._escapes = Escapes()
        self._lost_at = 0.0  # 0: the connection is not lost
        self._signals: list[int] = []
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stack = contextlib.ExitStack()  # what is put back at the end

    def _window(self) -> wire.Window:
        rows, columns = size_of(self._output)
        return wire.Window(rows=rows, columns=columns)

    # -- connections ---------------------------------------------------------------------------

    def run(self) -> AttachEnded:
        """Attach, and again after a lost connection, until the process ends or the user detaches.

        Only the main thread may call it, because it takes signals.

        Raises:
            DlschedError: the job or the daemon refuses it, or stays away for too long.
        """
        with self._stack:
            self._stack.callback(os.close, self._woken)
            self._stack.callback(os.close, self._wake)
            while True:
                try:
                    return self._once()
                except Unavailable as error:
                    now = time.monotonic()
                    if not self._connection.answered:
                        raise
                    if not self._lost_at:
                        self._lost_at = now
                        self._told.lost(str(error))
                    if now - self._lost_at > RECONNECT_S:
                        raise
                except RequestRefused as error:
                    if not self._lost_at or not self._attached:
                        raise
                    return AttachEnded(why=str(error))  # it ended while the connection was lost
                self._connection.close()
                if self._pause():
                    return AttachEnded(detached=True)

    def _once(self) -> AttachEnded:
        """Attach once, over one connection."""
        target = wire.AttachTarget()
        target.CopyFrom(self._target)
        target.window.CopyFrom(self._window())
        target.taken, target.again = self._position, self._attached
        first = wire.AttachInput(target=target)
        conversation = Conversation(self._connection, "Attach", first, patient=not self._lost_at)
        joined = False
        try:
            while True:
                sources = [conversation.readable, self._woken]
                if joined and self._takes_input:
                    sources.append(self._input)
                readable, _, _ = select.select(sources, [], [])
                if self._woken in readable and self._pass_signals(conversation if joined else None):
                    return AttachEnded(detached=True)
                if conversation.readable in readable:
                    for answer in _answers(conversation):
                        joined = joined or answer.HasField("attached")
                        end = self._take(answer, conversation)
                        if end is not None:
                            return end
                    self._tell_taken(conversation)
                if self._input in readable and self._read_input(conversation):
                    return AttachEnded(detached=True)
        finally:
            conversation.close()

    @property
    def _takes_input(self) -> bool:
        return self._attached and self._input_open and len(self._kept) < INPUT_WINDOW

    def _pause(self) -> bool:
        """Wait a little before the next connection; return whether the user detaches meanwhile."""
        until = time.monotonic() + _AGAIN_S
        while (left := until - time.monotonic()) > 0:
            sources = [self._woken, *([self._input] if self._takes_input else [])]
            readable, _, _ = select.select(sources, [], [], left)
            if self._woken in readable and self._pass_signals(None):
                return True
            if self._input in readable and self._read_input(None):
                return True
        return False

    # -- from the job --------------------------------------------------------------------------

    def _take(self, answer: wire.AttachOutput, conversation: Conversation) -> AttachEnded | None:
        if answer.waits:
            self._told.waits(answer.waits)
        if answer.HasField("attached"):
            self._join(answer.attached, conversation)
        if answer.HasField("taken"):
            self._forget_input(answer.taken)
        if answer.notice:
            self._noticed = answer.notice
            self._told.notice(answer.notice)
        if answer.data:
            self._write(answer.data)
            self._position += len(answer.data)
        if not answer.HasField("ended"):
            return None
        end = answer.ended
        if end.elsewhere:
            return AttachEnded(elsewhere=True)
        code = 128 + end.signal if end.signal else end.code
        return AttachEnded(code=code, why=end.why, is_told=self._noticed.startswith(end.why))

    def _join(self, attached: wire.Attached, conversation: Conversation) -> None:
        self._target.ticket = attached.ticket
        self._target.node = attached.node
        self._target.wait = False
        self._position = self._told_taken = attached.position
        if self._attached:
            self._forget_input(attached.taken)
            self._send_input(conversation, bytes(self._kept))
            self._told.again()
        else:
            self._given = attached.taken
            self._attached = True
            self._told.attached(attached.node)
            self._catch_signals()
            if self.has_terminal:
                self._stack.enter_context(raw(self._input))
        self._lost_at = 0.0
        if not self._input_open:
            conversation.send(wire.AttachInput(end=True))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._output, rest) :]

    def _tell_taken(self, conversation: Conversation) -> None:
        if self._position - self._told_taken >= TAKEN_EACH:
            self._told_taken = self._position
            conversation.send(wire.AttachInput(taken=self._position))

    # -- to the job ----------------------------------------------------------------------------

    def _read_input(self, conversation: Conversation | None) -> bool:
        """Read what there is of the input; return whether the user detaches.

        Without a connection the input is kept for the next one.
        """
        try:
            data = os.read(self._input, CHUNK)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self._input_open = False
            if conversation is not None:
                conversation.send(wire.AttachInput(end=True))
            return self.has_terminal
        if self.has_terminal:
            data = self._escapes.take(data)
            if self._escapes.help:
                self._write(HELP_TEXT)
        self._kept += data
        if conversation is not None:
            self._send_input(conversation, data)
        return self._escapes.detach

    def _send_input(self, conversation: Conversation, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            conversation.send(wire.AttachInput(data=data[start : start + CHUNK]))

    def _forget_input(self, given: int) -> None:
        if given > self._given:
            del self._kept[: given - self._given]
            self._given = given

    # -- signals -------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        """Have signals wake this program from now on."""

        def caught(number: int, _frame: object) -> None:
            self._signals.append(number)
            with contextlib.suppress(OSError):
                os.write(self._wake, b".")

        numbers = (signal.SIGWINCH, *_LEAVE) if self.has_terminal else self._passed_on
        for number in numbers:
            self._stack.callback(signal.signal, number, signal.signal(number, caught))

    def _pass_signals(self, conversation: Conversation | None) -> bool:
        """Do what signals ask for, as far as there is a connection; return whether to leave."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        signals, self._signals = dict.fromkeys(self._signals), []
        if self.has_terminal and not signals.keys().isdisjoint(_LEAVE):
            return True
        if conversation is not None:
            for number in signals:
                if number == signal.SIGWINCH:
                    conversation.send(wire.AttachInput(window=self._window()))
                else:
                    conversation.send(wire.AttachInput(signal=number))
        return False


def _answers(conversation: Conversation) -> list[Any]:
    """The answers that have come.

    Raises:
        Unavailable: the call ended without an end of the process.
    """
    try:
        return conversation.answers()
    except EOFError:
        raise Unavailable("lost the connection to the job") from None
