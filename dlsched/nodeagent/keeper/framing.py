"""JSON messages over a stream socket between agent and keeper: four bytes of length, then the text.

Neither side ever waits for the other: a message that cannot be sent now is kept until it can be.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

from dlsched.nodeagent.host import lean_socket
from dlsched.nodeagent.json_values import plain

_LENGTH = struct.Struct("!I")
MAX_FRAME = 64 * 1024 * 1024
_AT_ONCE = 64 * 1024  # bytes
_text = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=plain).encode


class BrokenFrame(Exception):
    """The bytes that arrived are not a message."""


def frame(message: dict[str, Any]) -> bytes:
    """Return a message as it goes over the socket; it may contain frozen dataclasses."""
    data = _text(message).encode()
    return _LENGTH.pack(len(data)) + data


class Frames:
    """Makes messages of bytes, however they are cut."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take bytes; give the messages that are complete.

        Raises:
            BrokenFrame: when the bytes are not a message.
        """
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data)
            if size > MAX_FRAME:
                raise BrokenFrame(f"a message of {size} bytes")
            end = _LENGTH.size + size
            if len(self._data) < end:
                return
            text = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            try:
                found = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise BrokenFrame(str(error)) from None
            if not isinstance(found, dict):
                raise BrokenFrame("not an object")
            yield found


class FrameSocket:
    """One connection of a keeper, never blocking.

    Attributes:
        socket: stays open until `close`, so that a loop that watches it can end the watch first.
        open: whether messages can still come and go.
    """

    def __init__(self, connection: lean_socket.Socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.open = True
        self._incoming = Frames()
        self._outgoing = bytearray()

    @property
    def wants_to_write(self) -> bool:
        """Whether bytes wait to be sent."""
        return self.open and bool(self._outgoing)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message as soon as the other side reads."""
        if self.open:
            self._outgoing += frame(message)
            self.flush()

    def flush(self) -> None:
        """Send as many bytes as can be sent now."""
        while self._outgoing and self.open:
            try:
                sent = self.socket.send(self._outgoing)
            except BlockingIOError:
                return
            except OSError:
                self.open = False
                return
            del self._outgoing[:sent]

    @property
    def backlog(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._outgoing)

    def receive(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """Return messages that have arrived; the connection is over when the other side is.

        Only some of them, so that another side that sends without end keeps nothing else waiting;
        `everything` is for one that sends no more.
        """
        found: list[dict[str, Any]] = []
        while self.open:
            try:
                data = self.socket.recv(_AT_ONCE)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.open = False
                break
            try:
                found.extend(self._incoming.feed(data))
            except BrokenFrame:
                self.open = False
            if not everything:
                break
        return found

    def close(self) -> None:
        """Close the connection."""
        self.open = False
        self.socket.close()
