"""Writes the parts of one rank in a thread, while the training goes on.

What is written is a copy that was taken between two steps. The ranks tell each other at their
rendezvous that they have written; when all have, the checkpoint is finished.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, Generic, TypeVar

Writer = Callable[[BinaryIO], object]
Result = TypeVar("Result")


def copy_of(save: Writer) -> Writer:
    """Return what writes the state later that `save` writes now."""
    buffer = io.BytesIO()
    save(buffer)
    return lambda file: file.write(buffer.getbuffer())


class InBackground(Generic[Result]):
    """A call that runs in a thread of its own.

    Attributes:
        result: what it has returned.
        error: with which it has ended; None: there is none.
        began_at: on the monotonic clock.
    """

    def __init__(self, call: Callable[[], Result]) -> None:
        """Begin the call."""
        self.result: Result | None = None
        self.error: Exception | None = None
        self.began_at = time.monotonic()
        self._call = call
        self._thread = threading.Thread(target=self._run, name="dlsched-checkpoint")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the call has ended, with or without an error."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the call has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self.result = self._call()
        except Exception as error:  # the script's own code can raise any
            self.error = error
