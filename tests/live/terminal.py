"""A user's terminal: a program on a pty, what is typed to it and what it shows."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

WITHIN_S = 120.0
# A program of its own, not `preexec_fn`: that forks, which threads of gRPC can hold up for ever.
# Tests in the background of a shell ignore Ctrl-C.
_TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """One program on a terminal of its own."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        rows: int = 30,
        columns: int = 100,
    ) -> None:
        """Start the program."""
        self._fd, theirs = os.openpty()
        self._set_size(theirs, rows, columns)
        self.shown = ""
        self._read = 0  # of what is shown, by `expect`
        self.program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, *argv],
            cwd=cwd,
            env={**env, "TERM": "xterm", "PS1": "$ ", "SHELL": "/bin/sh"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    @staticmethod
    def _set_size(fd: int, rows: int, columns: int) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        os.close(self._fd)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window; the kernel tells the program."""
        self._set_size(self._fd, rows, columns)

    def type(self, text: str) -> None:
        """Type keys."""
        os.write(self._fd, text.encode())

    def line(self, text: str) -> None:
        """Type a line."""
        self.type(text + "\r")

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until the program has shown something new, and return it."""
        until = time.monotonic() + WITHIN_S
        while True:
            found = re.compile(pattern, re.DOTALL).search(self.shown, self._read)
            if found is not None:
                self._read = found.end()
                return found
            left = until - time.monotonic()
            if left <= 0 or not self._take(left):
                raise AssertionError(f"no {pattern!r} in {self.shown[self._read :]!r}")

    def _take(self, within_s: float) -> bool:
        """Read more of what is shown; False when the program has closed its terminal."""
        if not select.select([self._fd], [], [], within_s)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # no process has the terminal any more
            return False
        self.shown += data.decode("utf-8", "replace")
        return bool(data)

    def ends(self) -> int:
        """Wait for the end of the program, read what it shows last, and return its exit code."""
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until and self._take(1.0):
            pass
        return self.program.wait(max(1.0, until - time.monotonic()))

    def kill(self) -> None:
        """Kill the program, as a lost machine would."""
        if self.program.poll() is None:
            self.program.send_signal(signal.SIGKILL)
        self.program.wait()
