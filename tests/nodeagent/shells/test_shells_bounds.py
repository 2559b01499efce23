"""A shell in a keeper: how much output is kept, how much is under way, what ends a connection."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.nodeagent.host import lean_socket
from dlsched.nodeagent.host.event_loop import EventLoop
from dlsched.nodeagent.shells import frames
from dlsched.nodeagent.shells.connection import Connection
from dlsched.nodeagent.shells.frames import CHUNK, Frames, frame
from dlsched.nodeagent.shells.shell import INPUT_WINDOW, OUTPUT_WINDOW, SCROLLBACK, Shell
from dlsched.system import clock

MUCH = 1_000_000  # bytes


class Keeping:
    """A shell with a real program, and clients, in an event loop of a keeper."""

    def __init__(self, *argv: str, terminal: bool = False) -> None:
        self.loop = EventLoop(lambda: None)
        self.shell = Shell(self.loop, "ticket", terminal=terminal, is_own=False, is_command=True)
        self.clients: list[Client] = []
        source, output = self.shell.streams
        self.program = subprocess.Popen(argv, stdin=source, stdout=output, stderr=output)
        self.shell.started(self.program.pid)

    def until(self, condition: Callable[[], object]) -> None:
        """Turn the loop until something is so."""
        until = clock.boottime() + 60
        while not condition():
            assert clock.boottime() < until
            self.loop.turn(clock.boottime() + 0.05)

    def settle(self) -> None:
        """Turn the loop until nothing has happened for a while."""
        for _ in range(10):
            self.loop.turn(clock.boottime() + 0.02)

    def client(self) -> Client:
        self.clients.append(Client(self))
        return self.clients[-1]

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        self.shell.has_ended(0, 9, "")
        for client in self.clients:
            client.close()


class Client:
    """The agent's end of a client's connection."""

    def __init__(self, keeping: Keeping) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MUCH)
        line = lean_socket.Socket(fileno=theirs.detach())
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MUCH)
        self._line, self._frames, self._keeping = ours, Frames(), keeping
        self.data, self.kinds, self.closed = b"", [], False  # type: ignore[var-annotated]
        self.last = b""
        self.connection = Connection(
            keeping.loop, line, on_open=lambda *_: None, on_close=lambda _: None
        )
        keeping.loop.watch(ours.fileno(), lambda _mask: self._read())

    def _read(self) -> None:
        got = self._line.recv(65536)
        if not got:
            self.closed = True
            self._keeping.loop.unwatch(self._line.fileno())
        for kind, content in self._frames.feed(got):
            self.kinds.append(kind)
            self.last = content
            if kind == frames.DATA:
                self.data += content

    def close(self) -> None:
        self.connection.close()
        if not self.closed:
            self._keeping.loop.unwatch(self._line.fileno())
        self._line.close()

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self._line.send(part)


@pytest.fixture
def keep() -> Iterator[Callable[..., Keeping]]:
    made: list[Keeping] = []

    def begin(*argv: str, terminal: bool = False) -> Keeping:
        made.append(Keeping(*argv, terminal=terminal))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def writes(count: int) -> tuple[str, ...]:
    """A program that writes so many bytes, each line its number."""
    return ("sh", "-c", f"seq 1 10000000 | head -c {count}")


def test_without_a_client_a_program_never_waits_and_its_last_output_is_kept(
    keep: Callable[..., Keeping],
) -> None:
    keeping = keep(*writes(MUCH))
    shell = keeping.shell
    keeping.until(lambda: keeping.program.poll() is not None)
    shell.has_ended(0, 0, "")
    assert (shell.written, shell.first) == (MUCH, MUCH - SCROLLBACK)
    client = keeping.client()
    client.connection.attach(shell, 0, started=False)
    keeping.until(lambda: client.closed)
    assert client.data == shell.output(shell.first, SCROLLBACK)
    assert len(client.data) == SCROLLBACK
    assert (client.kinds[0], client.kinds[-1]) == (frames.ATTACHED, frames.ENDED)


def test_a_client_that_takes_nothing_gets_one_window_and_the_rest_in_order(
    keep: Callable[..., Keeping],
) -> None:
    keeping, most = keep(*writes(MUCH)), OUTPUT_WINDOW + CHUNK
    client = keeping.client()
    client.connection.attach(keeping.shell, 0, started=True)
    keeping.until(lambda: len(client.data) >= OUTPUT_WINDOW)
    keeping.settle()
    assert len(client.data) <= most
    assert keeping.program.poll() is None  # it waits
    while len(client.data) < MUCH:
        before = len(client.data)
        client.send(frame(frames.TAKEN, frames.COUNT.pack(before)))
        keeping.until(lambda: len(client.data) > before)  # noqa: B023  # within this turn
        assert keeping.shell.written - before <= most + CHUNK
    assert client.data == subprocess.run(writes(MUCH), capture_output=True, check=True).stdout


def test_a_client_that_comes_again_goes_on_at_the_byte_that_it_names(
    keep: Callable[..., Keeping],
) -> None:
    keeping = keep("cat", terminal=False)
    first, second = keeping.client(), keeping.client()
    first.connection.attach(keeping.shell, 0, started=True)
    first.send(frame(frames.DATA, b"abcdefgh"))
    keeping.until(lambda: first.data == b"abcdefgh")
    first.connection.close()
    second.connection.attach(keeping.shell, 5, started=False)
    keeping.until(lambda: second.data == b"fgh")
    assert keeping.shell.received == 8  # so a client sends nothing twice


def test_a_lost_client_is_waited_for_and_misses_nothing(keep: Callable[..., Keeping]) -> None:
    keeping = keep(*writes(MUCH))
    first, second = keeping.client(), keeping.client()
    first.connection.attach(keeping.shell, 0, started=True)
    keeping.until(lambda: len(first.data) >= OUTPUT_WINDOW)
    first.connection.close()
    keeping.settle()
    assert keeping.program.poll() is None  # it waits
    second.connection.attach(keeping.shell, len(first.data), started=False)
    keeping.settle()
    second.connection.close()
    keeping.settle()
    shell, had = keeping.shell, len(first.data + second.data)
    assert shell.first <= had  # nothing that it has not had is dropped
    assert shell.hold_until is not None
    shell.wake(shell.hold_until)
    keeping.until(lambda: keeping.program.poll() is not None)  # now it waits for no client


def test_input_beyond_the_bound_ends_the_connection_and_not_the_program(
    keep: Callable[..., Keeping],
) -> None:
    keeping = keep("sleep", "60")  # reads nothing; a pipe takes 64 KiB
    client = keeping.client()
    client.connection.attach(keeping.shell, 0, started=True)
    piece = frame(frames.DATA, b"x" * CHUNK)
    for _ in range((3 * INPUT_WINDOW + 65536) // CHUNK):
        if client.connection.is_open:
            client.send(piece)
            keeping.loop.turn(clock.boottime() + 0.05)
    assert not client.connection.is_open
    assert keeping.program.poll() is None
    assert keeping.shell.received - keeping.shell.given <= 2 * INPUT_WINDOW


def test_the_end_arrives_although_frames_of_the_client_are_unread(
    keep: Callable[..., Keeping],
) -> None:
    keeping = keep("sleep", "60")
    client = keeping.client()
    client.connection.attach(keeping.shell, 0, started=True)
    keeping.settle()
    client.send(frame(frames.END))  # as a client without input does at once
    keeping.shell.has_ended(5, 0, "")
    keeping.until(lambda: client.closed)
    assert (client.kinds[-1], json.loads(client.last)["code"]) == (frames.ENDED, 5)
    assert client.connection.is_open  # until the agent closes
    client.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 5,
        frame(frames.WINDOW, b"x"),
        frame(frames.TAKEN, b""),
        frame(frames.SIGNAL, b"long"),
        frames.HEAD.pack(frames.DATA, frames.MAX_CONTENT + 1),
        frame(frames.OPEN, b"[1]"),
        frame(frames.OPEN, json.dumps("no object").encode()),
        frame(frames.OPEN, b"\xff"),
    ],
    ids=map(str, range(8)),
)
def test_what_is_not_understood_ends_the_connection_alone(
    keep: Callable[..., Keeping], sent: bytes
) -> None:
    keeping = keep("sleep", "60")
    client = keeping.client()
    client.connection.attach(keeping.shell, 0, started=True)
    client.send(sent)
    keeping.until(lambda: client.closed)
    assert keeping.shell.client is None
    assert keeping.program.poll() is None


def test_a_terminal_has_the_size_that_it_is_given(keep: Callable[..., Keeping]) -> None:
    keeping = keep("sh", "-c", "read line; stty size", terminal=True)
    client = keeping.client()
    client.connection.attach(keeping.shell, 0, started=True)
    client.send(frame(frames.WINDOW, frames.SIZE.pack(33, 77)), frame(frames.DATA, b"\n"))
    keeping.until(lambda: b"33 77" in client.data)


@pytest.mark.parametrize("terminal", [True, False])
def test_no_descriptor_is_left_of_a_shell_that_could_not_start(terminal: bool) -> None:
    loop = EventLoop(lambda: None)
    before = set(os.listdir("/proc/self/fd"))
    shell = Shell(loop, "t", terminal=terminal, is_own=False, is_command=True)
    shell.abandon()
    assert set(os.listdir("/proc/self/fd")) <= before


@given(st.lists(st.tuples(st.integers(1, 10), st.binary(max_size=40))), st.integers(1, 9))
def test_frames_arrive_however_they_are_cut(sent: list[tuple[int, bytes]], step: int) -> None:
    raw = b"".join(frame(kind, content) for kind, content in sent)
    parts = Frames()
    got = [each for at in range(0, len(raw), step) for each in parts.feed(raw[at : at + step])]
    assert got == sent
