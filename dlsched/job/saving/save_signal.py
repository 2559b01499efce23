"""The warning before the time limit: the ranks save a checkpoint and go on.

`submit --signal` names the signal. The handler sets a flag, and the training saves at the end of a
step; a handler that the script has installed before `attach` is called as well.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType


class SaveSignal:
    """Whether a signal has asked for a checkpoint since the last one.

    Attributes:
        asked: reading it costs nothing; the training clears it when it has saved.
    """

    def __init__(self, number: int) -> None:
        """Handle the signal, 0 for none; outside the main thread this does nothing."""
        self.asked = False
        self._number = number
        self._before: object = None
        if number and threading.current_thread() is threading.main_thread():
            with contextlib.suppress(OSError, ValueError):  # a signal that has no handlers
                self._before = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if callable(self._before):
            self._before(number, frame)
