"""SIGTERM as a wish: the handler sets a flag, training acts on it at the end of a step.

Runtimes tend to signal whole process groups. A forked worker that got the signal together with its
parent ignores it: it is needed until the parent's last step. One that its parent alone wants ended
(a pool's `terminate`) ends. The two are told apart by a byte that parent and children share.
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

__all__ = ["StopSignal"]

TOGETHER_S = 0.3  # within which a signal to a group has reached the parent as well


class StopSignal:
    """Whether this process was asked to stop, by a signal."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._asked = mmap.mmap(-1, 1)  # shared with forked children
        self._before: Any = None
        self._installed = False

    @property
    def asked(self) -> bool:
        """Whether the signal has come; local, costs nothing."""
        return self._asked[0] != 0

    def install(self) -> None:
        """Handle SIGTERM; outside the main thread, where Python cannot, do nothing."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._handle)
            self._installed = True

    def note(self) -> None:
        """Somebody else has asked; children that get the signal from now on ignore it."""
        self._asked[0] = 1

    def remove(self) -> None:
        """Give SIGTERM back to whoever handled it before."""
        if self._is_ours():
            with contextlib.suppress(TypeError):  # a handler that Python did not install
                signal.signal(signal.SIGTERM, self._before)
            self._installed = False

    def let_finish(self) -> None:
        """The training is done: a wish to stop that comes now must not make it start again.

        Programs take a while to leave (seconds, with large libraries), and what they did is only
        known from their exit code. Who does not leave within the grace is killed all the same.
        """
        if self._before is not signal.SIG_DFL or not self._is_ours():
            self.remove()
            return
        signal.signal(signal.SIGTERM, _take_no_notice)  # not SIG_IGN, which programs inherit
        atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)  # handlers end before
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


def _take_no_notice(number: int, frame: FrameType | None) -> None:
    pass
