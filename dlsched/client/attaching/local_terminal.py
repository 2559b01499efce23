"""The user's own terminal while a job's terminal is shown on it."""

from __future__ import annotations

import contextlib
import os
import termios
import tty
from collections.abc import Iterator

DETACH, ESCAPE = b".", b"~"
HELP = b"?"
HELP_TEXT = (
    b"\r\n ~.  leave the shell running and detach\r\n ~?  this text\r\n ~~  the character ~\r\n"
)


def is_terminal(*fds: int) -> bool:
    """Whether all of some descriptors are terminals."""
    return all(os.isatty(fd) for fd in fds)


def size_of(fd: int) -> tuple[int, int]:
    """Return rows and columns of a terminal; 24 and 80 where it does not know."""
    try:
        size = os.get_terminal_size(fd)
    except OSError:
        return 24, 80
    return size.lines or 24, size.columns or 80


def is_raw(fd: int) -> bool:
    """Whether a terminal shows what is written as it is, so that lines need a carriage return."""
    return os.isatty(fd) and not termios.tcgetattr(fd)[1] & termios.OPOST


@contextlib.contextmanager
def raw(fd: int) -> Iterator[None]:
    """Have each key go to the job as it is, also Ctrl-C and Ctrl-Z, until the block ends."""
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSADRAIN)  # what was typed ahead is for the job
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class Escapes:
    """What the user types for this program: `~` at the beginning of a line, and one more key."""

    def __init__(self) -> None:
        """Start with the cursor at the beginning of a line."""
        self._at_begin, self._held = True, False
        self.detach = self.help = False

    def take(self, typed: bytes) -> bytes:
        """Return what is for the job; `detach` and `help` say what else was typed."""
        found = bytearray()
        self.help = False
        for number in typed:
            key = bytes((number,))
            if self._held:
                self._held = False
                if key == DETACH:
                    self.detach = True
                    break
                if key == HELP:
                    self.help = True
                    continue
                found += key if key == ESCAPE else ESCAPE + key
            elif self._at_begin and key == ESCAPE:
                self._held = True
                continue
            else:
                found += key
            self._at_begin = key in b"\r\n\x03\x04"
        return bytes(found)
