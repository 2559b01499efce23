"""The output writer: a process of the job's user that writes the files which ranks share.

It is a child of the keeper, as the ranks are, so that a file system that hangs holds up neither the
keeper nor other jobs. It ignores every signal that can be ignored, is killed by no stop of the job,
and ends when the last process that could still write has ended.

A file that cannot be written to, for example because the disk is full, loses output and does not
hold up the training; as soon as it can be written to again, a line says how much was lost.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dlsched.nodeagent.host import lean_socket, syscalls
from dlsched.nodeagent.ranks import child_process
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec
from dlsched.nodeagent.ranks.line_merger import FLUSH_S, LineMerger, label_of

CHUNK = 64 * 1024  # what a pipe holds
LITTLE = 8 * 1024  # bytes of one turn; more is then waited for
PAUSE_S = 0.001
_OWN_SIGNALS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """One file, and the ranks that write to it."""

    path: str
    truncate: bool
    only_whole: bool  # other nodes have a file of this name too, perhaps the same
    ranks: tuple[int, ...]
    pipes: tuple[int, ...]  # descriptors to read from, one for each rank


def spawn(
    spec: KeeperSpec, files: Sequence[SharedFile], gate: lean_socket.Socket | None
) -> tuple[int, int]:
    """Fork the writer of some files; return as `child_process.fork` does.

    On the `gate` the ranks are told that the files are open, or why not.
    """
    return child_process.fork(lambda started: _be_writer(spec, files, gate, started))


def _be_writer(
    spec: KeeperSpec, files: Sequence[SharedFile], gate: lean_socket.Socket | None, started: int
) -> None:
    os.setsid()
    for number in signal.valid_signals() - _OWN_SIGNALS:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    syscalls.set_name("dls-output")
    pipes = [pipe for file in files for pipe in file.pipes]
    _close_others({0, 1, 2, started, *pipes, *([gate.fileno()] if gate is not None else [])})
    try:
        child_process.become_user(spec)
        os.umask(spec.launch.umask & 0o777)
        written = [
            _Written(file, child_process.open_output(file.path, file.truncate)) for file in files
        ]
    except child_process.CannotStart as error:
        if gate is not None:
            gate.send(str(error).encode("utf-8", "replace")[: child_process.LONGEST_ERROR])
        raise
    if gate is not None:
        gate.send(child_process.OPEN)
        gate.close()
    os.close(started)
    try:
        _write_all(written)
    except Exception as error:  # for the agent's log; the keeper starts another one
        print(f"output writer: {type(error).__name__}: {error}", file=sys.stderr)
        raise


def _close_others(kept: set[int]) -> None:
    """Close all descriptors but some: a pipe ends only when none has its other end."""
    place = 0
    for fd in sorted(kept):
        if place < fd:  # an empty range from 0 on would be all
            os.closerange(place, fd)
        place = fd + 1
    os.closerange(place, 1 << 20)


class _Written:
    """One file that is being written."""

    def __init__(self, file: SharedFile, fd: int) -> None:
        self.merger = LineMerger(
            [label_of(rank) for rank in file.ranks], only_whole=file.only_whole
        )
        self.pipes = file.pipes
        self._fd = fd
        self._lost, self._why = 0, ""  # bytes

    def write(self, data: bytes) -> None:
        """Append bytes to the file, or count them as lost."""
        rest = memoryview(data)
        try:
            if self._lost:
                note = f"\ndlsched: {self._lost} bytes of output are lost: {self._why}\n"
                os.write(self._fd, note.encode())
                self._lost = 0
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self._lost, self._why = self._lost + len(rest), str(error.strerror)


def _write_all(files: Sequence[_Written]) -> None:
    """Write what comes through the pipes until all are closed."""
    place_of = {pipe: (file, k) for file in files for k, pipe in enumerate(file.pipes)}
    ready = select.poll()
    for pipe in place_of:
        os.set_blocking(pipe, False)
        ready.register(pipe, select.POLLIN)
    due: dict[int, float] = {}  # when an unfinished line is written, by pipe
    while place_of:
        wait_s = max(0.0, min(due.values()) - time.monotonic()) if due else None
        found: dict[_Written, list[bytes]] = {}
        count = 0
        for pipe, _ in ready.poll(None if wait_s is None else 1000 * wait_s + 1):
            file, source = place_of[pipe]
            data = os.read(pipe, CHUNK)
            count += len(data)
            text = file.merger.take(source, data) if data else file.merger.flush(source)
            found.setdefault(file, []).append(text)
            if not data:
                ready.unregister(pipe)
                del place_of[pipe]
            if not file.merger.is_waiting(source):
                due.pop(pipe, None)
            elif pipe not in due or b"\n" in data:
                due[pipe] = time.monotonic() + FLUSH_S
        now = time.monotonic()
        for pipe in [pipe for pipe, at in due.items() if now >= at]:
            del due[pipe]
            file, source = place_of[pipe]
            found.setdefault(file, []).append(file.merger.flush(source))
        for file, texts in found.items():
            file.write(b"".join(texts))
        if count < LITTLE:
            time.sleep(PAUSE_S)
    for file in files:
        file.write(file.merger.end())
