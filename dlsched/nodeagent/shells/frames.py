"""What agent and keeper say to each other over the connection of one attached client.

A frame is one byte for its kind, four of length, and its content: bytes, or JSON.
The agent speaks first, with `OPEN`; the keeper answers with `ATTACHED` or `REFUSED`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

OPEN, DATA, END, WINDOW, TAKEN, SIGNAL, ATTACHED, NOTICE, ENDED, REFUSED = range(1, 11)
HEAD = struct.Struct("!BI")
SIZE = struct.Struct("!HH")  # of a terminal: rows and columns
NUMBER = struct.Struct("!B")  # of a signal
COUNT = struct.Struct("!Q")  # bytes from the first on
MAX_CONTENT = 1024 * 1024
CHUNK = 16 * 1024  # of data in one frame


class BadFrame(Exception):
    """The bytes that arrived are not a frame."""


def frame(kind: int, content: bytes = b"") -> bytes:
    """Return a frame as it goes over the socket."""
    return HEAD.pack(kind, len(content)) + content


class Frames:
    """Makes frames of bytes, however they are cut."""

    def __init__(self) -> None:
        """Start without any received bytes."""
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take bytes; give the kind and content of each frame that is complete.

        Raises:
            BadFrame: when the bytes are not a frame.
        """
        self._data += data
        while len(self._data) >= HEAD.size:
            kind, size = HEAD.unpack_from(self._data)
            if size > MAX_CONTENT or not OPEN <= kind <= REFUSED:
                raise BadFrame(f"kind {kind}, {size} bytes")
            end = HEAD.size + size
            if len(self._data) < end:
                return
            content = bytes(self._data[HEAD.size : end])
            del self._data[:end]
            yield kind, content
