"""The standard input of `dlsched run` and `srun`, which goes to the ranks in bounded pieces."""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from dlsched.job.messages import INPUT_CHUNK, INPUT_WINDOW, Input


def find() -> int | None:
    """Return the descriptor of the standard input; None: it is a terminal, a device or closed."""
    try:
        found = os.fstat(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return None
    return None if stat.S_ISCHR(found.st_mode) else sys.stdin.fileno()


class CallerInput:
    """An input, and how much of it is on its way."""

    def __init__(self, fd: int) -> None:
        """Have read nothing yet of this descriptor."""
        self.fd = fd
        self._sent = self._taken = 0
        self._is_over = False

    @property
    def may_go_on(self) -> bool:
        """Whether more may be read and sent now."""
        return not self._is_over and self._sent - self._taken < INPUT_WINDOW

    def taken(self, count: int) -> None:
        """Note how many bytes every rank has taken."""
        self._taken = count

    def read(self) -> Input | None:
        """Return the next piece, which is empty at the end; None: nothing is there now."""
        data = b""
        with contextlib.suppress(OSError):  # what cannot be read is over
            try:
                data = os.read(self.fd, INPUT_CHUNK)
            except BlockingIOError:
                return None
        self._sent += len(data)
        self._is_over = not data
        return Input(data=data)
