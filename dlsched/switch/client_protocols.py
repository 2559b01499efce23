"""How clients of the job speak: lines of JSON on a socket, or one HTTP request a connection."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping

MOST_BYTES = 16 << 20  # of a request


class ClientProtocol(ABC):
    """What one client has sent so far.

    Attributes:
        once: the connection ends with the first answer.
    """

    once = False

    def __init__(self) -> None:
        """Start without any received bytes."""
        self._data = b""

    def fed(self, data: bytes) -> list[tuple[str, bytes]]:
        """Take bytes; returns complete requests: a service ("": the document names it), a document.

        Raises:
            ValueError: what was sent cannot be a request.
        """
        self._data += data
        if len(self._data) > MOST_BYTES:
            raise ValueError(f"a request above {MOST_BYTES} bytes")
        return self._requests()

    @abstractmethod
    def _requests(self) -> list[tuple[str, bytes]]:
        """Take complete requests out of what was sent."""

    @abstractmethod
    def answer(self, found: Mapping[str, object]) -> bytes:
        """An answer as it is sent."""


class Lines(ClientProtocol):
    """A line for each request, and one for each answer."""

    def _requests(self) -> list[tuple[str, bytes]]:
        *lines, self._data = self._data.split(b"\n")
        return [("", line) for line in lines]

    def answer(self, found: Mapping[str, object]) -> bytes:
        """An answer as it is sent."""
        return json.dumps(found).encode() + b"\n"


class Http(ClientProtocol):
    """`POST /SERVICE` with the document as its body."""

    once = True

    def _requests(self) -> list[tuple[str, bytes]]:
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return []
        first, *lines = head.decode("latin-1").split("\r\n")
        named = dict(line.lower().split(":", 1) for line in lines if ":" in line)
        length = int(named.get("content-length", "0"))
        words = first.split(" ")
        if len(words) != 3 or words[0] != "POST" or length < 0:
            raise ValueError("POST /SERVICE with a Content-Length is expected")
        if len(body) < length:
            return []
        self._data = b""
        return [(words[1].strip("/"), body[:length])]

    def answer(self, found: Mapping[str, object]) -> bytes:
        """An answer as it is sent."""
        body = json.dumps(found).encode()
        status = "400 Bad Request" if "error" in found else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body
