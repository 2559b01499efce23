"""The HTTP side of a service: one request of a bounded size for each connection."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from dlsched.service.frames import MOST_BYTES

MOST_HEAD = 64 * 1024  # bytes
MOST_CONNECTIONS = 4096
MOST_HELD = 256 << 20  # bytes of all requests and answers that are here at once
PATIENCE_S = 30.0  # in which a client sends its request, and takes its answer

Answer = Callable[[bytes], Awaitable[bytes]]


class Declined(Exception):
    """A request that gets no answer of a replica."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        """Say why.

        Args:
            status: of HTTP.
            why: one line.
        """
        super().__init__(why)
        self.status, self.why = status, why

    @property
    def answer(self) -> bytes:
        """The answer as bytes."""
        body = f"{self.why}\n".encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


def most_connections() -> int:
    """How many connections may be open: half of the descriptors that this process has."""
    return min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


@dataclass(slots=True)
class HttpServer:
    """Takes requests over HTTP.

    Attributes:
        answer: gives the answer to a request, both as they are sent; raises `Declined`.
        open: how many connections there are.
        held: bytes of requests and answers that are here.
    """

    answer: Answer
    open: int = 0
    held: int = 0
    _most: int = field(default_factory=most_connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.open += 1
        size = 0
        try:
            answer = await self._answered(reader)
            size = len(answer)
            self.held += size
            writer.write(answer)
            async with asyncio.timeout(PATIENCE_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, ConnectionError, asyncio.CancelledError):  # the last: it all ends
            writer.transport.abort()
        finally:
            self.open -= 1
            self.held -= size

    async def _answered(self, reader: asyncio.StreamReader) -> bytes:
        size = 0
        try:
            if self.open > self._most:
                raise Declined(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
            async with asyncio.timeout(PATIENCE_S):
                head, length = await read_head(reader)
                if self.held + len(head) + length > MOST_HELD:
                    raise Declined(HTTPStatus.SERVICE_UNAVAILABLE, "too many bytes wait already")
                size = len(head) + length
                self.held += size
                request = head + await _body(reader, length)
            return await self._asked(reader, request)
        except Declined as refused:
            return refused.answer
        except TimeoutError:
            return Declined(HTTPStatus.REQUEST_TIMEOUT, "the request is not complete").answer
        finally:
            self.held -= size

    async def _asked(self, reader: asyncio.StreamReader, request: bytes) -> bytes:
        # a client that has gone away waits for nothing: its request leaves the queue
        asked = asyncio.ensure_future(self.answer(request))
        left = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done() and left.done() and not left.result():
            asked.cancel()
            raise ConnectionError("the client has gone away")
        left.cancel()
        return await asked


async def read_head(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """The head of a request, as a server gets it that is to close the connection afterwards.

    Returns:
        It, and the bytes of the body that follows.

    Raises:
        Declined: it is no request, or too long.
        ConnectionError: the client is gone.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise ConnectionError("the client has sent no request") from None
    except asyncio.LimitOverrunError:
        raise Declined(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head above {MOST_HEAD} bytes"
        ) from None
    first, *lines = head[:-4].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise Declined(HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1")
    lengths, kept = set(), [first]
    for line in lines:
        name, colon, value = line.partition(b":")
        word = name.lower()
        if not colon or word == b"transfer-encoding":
            raise Declined(HTTPStatus.LENGTH_REQUIRED, "a body needs its Content-Length")
        if word != word.strip():  # servers differ in what they read here
            raise Declined(HTTPStatus.BAD_REQUEST, "a space before a header's name or colon")
        if word == b"content-length":
            lengths.add(value.strip())
        if word not in (b"connection", b"keep-alive", b"expect"):
            kept.append(line)
    length = _length(lengths)
    if length + len(head) > MOST_BYTES:
        raise Declined(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MOST_BYTES} bytes")
    return b"\r\n".join([*kept, b"Connection: close", b"", b""]), length


def _length(told: set[bytes]) -> int:
    """The bytes of a body, as one header or several equal ones say."""
    if not told:
        return 0
    text = told.pop()
    if told or not text.isdigit():
        raise Declined(HTTPStatus.BAD_REQUEST, "Content-Length is not one number")
    return int(text) if len(text) <= 20 else MOST_BYTES + 1


async def _body(reader: asyncio.StreamReader, length: int) -> bytes:
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise ConnectionError("the client has sent a part of its request") from None
