"""Requests over real connections: to the least loaded replica, bounded, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from dlsched.service.frames import LEAVES, read_frame, write_frame
from dlsched.service.http_server import MOST_HELD, HttpServer, read_head
from dlsched.service.request_queue import MOST_TRIES, RequestQueue, Slot

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Scene:
    """A queue behind an HTTP server, with the ports of both sides."""

    queue: RequestQueue
    outer: int = 0
    inner: int = 0
    allowed: set[int] = field(default_factory=lambda: {1, 2, 3})
    used: list[int] = field(default_factory=list)
    open: list[asyncio.StreamWriter] = field(default_factory=list)
    server: HttpServer = field(init=False)
    met: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def replica(self, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.inner)
        self.open.append(writer)
        writer.write(bytes([number]))
        await self.met.acquire()
        return reader, writer

    async def get(self, words: bytes = b"GET / HTTP/1.1\r\n\r\n") -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.outer)
        self.open.append(writer)
        writer.write(words)
        return await reader.read()


@asynccontextmanager
async def scene(most: int = 10, longest_s: float = 60.0) -> AsyncIterator[Scene]:
    used: list[int] = []
    queue = RequestQueue(
        most=most,
        longest_s=longest_s,
        usable=lambda: made.allowed,
        used=used.append,
        served=lambda seconds: None,
    )
    made = Scene(queue, used=used)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = (await reader.readexactly(1))[0]
        made.met.release()
        try:
            await queue.serve(Slot(number, reader, writer))
        except asyncio.CancelledError:
            return
        finally:
            writer.transport.abort()

    inner = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.server = HttpServer(queue.ask)
    outer = await asyncio.start_server(made.server.serve, "127.0.0.1", 0, limit=64 * 1024)
    async with inner, outer:
        made.inner = inner.sockets[0].getsockname()[1]
        made.outer = outer.sockets[0].getsockname()[1]
        yield made
        for writer in made.open:
            writer.close()
        await asyncio.gather(*(each.wait_closed() for each in made.open), return_exceptions=True)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_an_idle_replica_gets_the_request_the_lowest_first_and_others_wait() -> None:
    async def work() -> None:
        async with scene() as made:
            two, one = await made.replica(2), await made.replica(1)
            again = await made.replica(1)  # its second slot
            asked = [asyncio.create_task(made.get()) for _ in range(4)]
            await until(lambda: made.queue.waiting == 1)
            # the second request goes to 2, which has none, not to the free slot of 1
            assert made.used == [1, 2, 1]
            for reader, _ in (one, two, again):
                assert (await read_frame(reader)).startswith(b"GET / HTTP/1.1\r\nConnection: close")
            await write_frame(one[1], ANSWER)
            await read_frame(one[0])  # the fourth
            for _, writer in (one, two, again):
                await write_frame(writer, ANSWER)
            assert all(found.endswith(b"ok") for found in await asyncio.gather(*asked))

    run(work)


def test_replicas_that_are_not_needed_get_nothing_until_they_are() -> None:
    async def work() -> None:
        async with scene() as made:
            made.allowed = {1}
            reader, writer = await made.replica(3)
            asked = asyncio.create_task(made.get())
            await until(lambda: made.queue.waiting == 1)
            made.allowed = {1, 2, 3}
            made.queue.match()
            await read_frame(reader)
            await write_frame(writer, ANSWER)
            assert (await asked).endswith(b"ok")

    run(work)


def test_a_request_whose_replica_dies_goes_to_another_but_not_for_ever() -> None:
    async def work() -> None:
        async with scene() as made:
            asked = asyncio.create_task(made.get())
            for number in range(1, MOST_TRIES):
                reader, writer = await made.replica(number)
                await read_frame(reader)
                writer.transport.abort()
            reader, writer = await made.replica(1)
            await read_frame(reader)
            await write_frame(writer, ANSWER)
            assert (await asked).endswith(b"ok")
            fatal = asyncio.create_task(made.get())
            await read_frame(reader)
            writer.transport.abort()
            for _ in range(MOST_TRIES - 1):
                reader, writer = await made.replica(2)
                await read_frame(reader)
                writer.transport.abort()
            assert (await fatal).startswith(b"HTTP/1.1 502")

    run(work)


def test_a_replica_that_leaves_gets_no_request_more() -> None:
    async def work() -> None:
        async with scene() as made:
            one, two = await made.replica(1), await made.replica(2)
            await write_frame(one[1], LEAVES)
            assert await one[0].read() == b""  # the leader has closed the idle connection
            asked = asyncio.create_task(made.get())
            await read_frame(two[0])
            await write_frame(two[1], ANSWER)
            assert (await asked).endswith(b"ok")
            assert made.used == [2]

    run(work)


def test_what_a_replica_works_on_when_it_leaves_is_answered_by_it() -> None:
    async def work() -> None:
        async with scene() as made:
            reader, writer = await made.replica(1)
            asked = asyncio.create_task(made.get())
            await read_frame(reader)
            await write_frame(writer, LEAVES)
            waits = asyncio.create_task(made.get())
            await until(lambda: made.queue.waiting == 1)
            await write_frame(writer, ANSWER)
            assert (await asked).endswith(b"ok")
            assert await reader.read() == b""
            assert made.queue.waiting == 1  # for another one
            reader, writer = await made.replica(2)
            await read_frame(reader)
            await write_frame(writer, ANSWER)
            assert (await waits).endswith(b"ok")

    run(work)


def test_the_queue_is_bounded_in_number_and_time() -> None:
    async def work() -> None:
        async with scene(most=2, longest_s=0.2) as made:
            asked = [asyncio.create_task(made.get()) for _ in range(2)]
            await until(lambda: made.queue.waiting == 2)
            assert (await made.get()).startswith(b"HTTP/1.1 503")
            for each in asked:
                assert (await each).startswith(b"HTTP/1.1 504")
            assert made.queue.waiting == 0

    run(work)


def test_a_client_that_goes_away_leaves_the_queue() -> None:
    async def work() -> None:
        async with scene() as made:
            _, writer = await asyncio.open_connection("127.0.0.1", made.outer)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: made.queue.waiting == 1)
            writer.close()
            await until(lambda: made.queue.waiting == 0)

    run(work)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc", b"400"),
        (b"POST / HTTP/1.1\r\nA: b\r\n Content-Length: 3\r\n\r\nabc", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
    ],
)
def test_what_is_no_request_is_declined_at_the_door(sent: bytes, status: bytes) -> None:
    async def work() -> None:
        async with scene() as made:
            assert (await made.get(sent)).startswith(b"HTTP/1.1 " + status)

    run(work)


def test_a_request_keeps_its_words_and_body() -> None:
    async def work() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(b"POST /a HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n")
        reader.feed_data(b"Content-Length: 3\r\n\r\nabcdef")
        head, length = await read_head(reader)
        assert head == (
            b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
        )
        assert (length, await reader.readexactly(length)) == (3, b"abc")

    run(work)


def test_bodies_that_do_not_come_take_no_more_than_the_bound() -> None:
    """Announced bytes count, so no crowd of clients can fill the memory of the leader."""
    size = 15 << 20
    head = f"POST / HTTP/1.1\r\nContent-Length: {size}\r\n\r\n".encode()

    async def work() -> None:
        async with scene() as made:
            crowd = [await asyncio.open_connection("127.0.0.1", made.outer) for _ in range(30)]
            for _, writer in crowd:
                writer.write(head)
            await until(lambda: made.server.held > MOST_HELD - size)
            assert made.server.held <= MOST_HELD
            assert (await made.get(head)).startswith(b"HTTP/1.1 503")
            for _, writer in crowd:
                writer.close()
            await until(lambda: made.server.held == 0)

    run(work)
