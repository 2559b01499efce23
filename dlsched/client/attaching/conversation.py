"""One call in both directions: what is sent is put into a queue, what comes is read by a thread."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import Any

from dlsched.client.connection import Connection
from dlsched.core.errors import DlschedError


class Conversation:
    """A call whose answers make a descriptor readable, so that one thread can wait for all."""

    def __init__(
        self, connection: Connection, method: str, first: Any, *, patient: bool = True
    ) -> None:
        """Begin the call with its first message; a daemon that is away is waited for, or not.

        Raises:
            DlschedError: the daemon cannot be reached.
        """
        self._outgoing: SimpleQueue[Any] = SimpleQueue()
        self._outgoing.put(first)
        self._answers: deque[Any] = deque()
        self._error: DlschedError | None = None
        self._over = False
        outgoing = iter(self._outgoing.get, None)
        self._answering = connection.converse(method, outgoing, patient=patient)
        self.readable, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for answer in self._answering:
                self._answers.append(answer)
                self._poke()
        except DlschedError as error:
            self._error = error
        finally:  # whatever it was: the other thread waits for it
            self._over = True
            self._poke()

    def _poke(self) -> None:
        try:
            os.write(self._wake, b".")
        except OSError:  # it is readable already, or closed
            return

    def send(self, message: Any) -> None:
        """Send one more message."""
        self._outgoing.put(message)

    def answers(self) -> list[Any]:
        """Return the answers that have come, without waiting.

        Raises:
            DlschedError: the call has failed, and every answer before that is taken.
            EOFError: the call has ended, and every answer is taken.
        """
        with contextlib.suppress(BlockingIOError):
            os.read(self.readable, 4096)
        over = self._over  # read before the answers
        found = [self._answers.popleft() for _ in range(len(self._answers))]
        if not found and over:
            raise self._error or EOFError
        if over:
            self._poke()
        return found

    def close(self) -> None:
        """End the call."""
        self._outgoing.put(None)
        self._answering.close()
        self._reader.join()
        os.close(self._wake)
        os.close(self.readable)
