"""SIGTERM as a request: the handler sets a flag, and the training obeys at the end of a step.

Runtimes often signal whole process groups. A forked worker that got the signal together with its
parent ignores it, because the parent needs it until its last step. A worker that only its parent
signals (a pool's `terminate`) ends. A byte that parent and children share tells the two cases
apart.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

TOGETHER_S = 0.3  # within which a signal to a group has reached the parent too


class StopSignal:
    """Whether a signal has asked this process to stop."""

    def __init__(self) -> None:
        """Handle no signal yet."""
        self._owner = os.getpid()
        self._asked = mmap.mmap(-1, 1)  # shared with forked children
        self._before: Any = None
        self._installed = False

    @property
    def asked(self) -> bool:
        """Whether the signal has arrived; reading it costs nothing."""
        return self._asked[0] != 0

    def install(self) -> None:
        """Handle SIGTERM; outside the main thread Python cannot, and this does nothing."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._handle)
            self._installed = True

    def handle_again(self) -> None:
        """Handle SIGTERM, where another part of the program has replaced the handler since."""
        if self._is_ours():
            signal.signal(signal.SIGTERM, self._handle)

    def note(self) -> None:
        """Note that the keeper has asked to stop: children then ignore the signal."""
        self._asked[0] = 1

    def remove(self) -> None:
        """Restore the handler that SIGTERM had before."""
        if self._is_ours():
            with contextlib.suppress(TypeError):  # a handler that Python did not install
                signal.signal(signal.SIGTERM, self._before)
            self._installed = False

    def let_finish(self) -> None:
        """Ignore SIGTERM from now on: a training that is done must not be started again.

        Programs with large libraries take seconds to exit, and only their exit code tells that
        they were done. A program that does not exit within its grace is killed anyway.
        """
        if self._before is not signal.SIG_DFL or not self._is_ours():
            self.remove()
            return
        signal.signal(signal.SIGTERM, _ignore)  # not SIG_IGN: started programs would inherit it
        atexit.register(
            signal.signal, signal.SIGTERM, signal.SIG_IGN
        )  # Python's handlers end before the process
        self._installed = False

    def _is_ours(self) -> bool:
        main = threading.current_thread() is threading.main_thread()
        return self._installed and main and os.getpid() == self._owner

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._owner:
            self._asked[0] = 1
        else:
            self._handle_in_child(number)

    def _handle_in_child(self, number: int) -> None:
        until = time.monotonic() + TOGETHER_S
        while time.monotonic() < until:
            if self._asked[0]:
                return
            time.sleep(0.01)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass
