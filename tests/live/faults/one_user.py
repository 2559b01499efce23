"""One user who does the worst that a call or a server allows, until the input ends.

Called with the daemon's address, what to do, and a user id to become first (0: none). It prints a
line when it has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import grpc

from dlsched.core.errors import DlschedError
from tests.daemon.cluster_of_tests import Caller, job
from tests.daemon.test_loop_turns import done, largest

AT_ONCE = 12  # calls, over as many connections as users take
LIVE = 500  # jobs of an array, and as many single ones

SILENT = 64  # connections at a time


async def call_for_ever(address: str, method: str) -> None:
    """Make the largest requests of a method, over and over."""
    callers = [Caller(address, f"eve-{method.lower()}", 1666) for _ in range(4)]
    [first] = await callers[0].submit(job(array=f"0-{LIVE - 1}", held=True))
    await callers[0].submit(*[job(held=True) for _ in range(LIVE)])
    requests = [largest(each.control, LIVE, first)[method] for each in callers]

    async def one(number: int) -> None:
        mine, place = requests[number % len(requests)], number
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, ValueError):
                async with asyncio.timeout(2):  # those that last begin anew
                    await done(mine[place % len(mine)]())
            place += 1
            await asyncio.sleep(0)

    await every(AT_ONCE, one)


async def connect_for_ever(address: str, says: bytes) -> None:
    """Open connections, say something, and close them, over and over."""

    async def one(_: int) -> None:
        while True:
            with contextlib.suppress(OSError, DlschedError):
                _, writer = await opened(address)
                writer.write(says)
                writer.close()
            await asyncio.sleep(0)

    await every(AT_ONCE, one)


async def hold_connections(address: str, says: bytes) -> None:
    """Have many connections open, each of which says something and then nothing more."""

    async def one(_: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await opened(address)
                writer.write(says)
                while await reader.read(1 << 16):
                    pass
                writer.close()
            await asyncio.sleep(0.05)

    await every(4 * SILENT, one)


async def begin_messages(address: str) -> None:
    """Begin as many messages as there are places for, as several accounts, and send nothing."""

    async def nothing() -> None:
        await asyncio.Event().wait()
        yield b""  # type: ignore[misc]  # a generator

    async def one(number: int) -> None:
        caller = Caller(address, f"eve{number % 8}", 1666 + number % 8)
        stream = caller.channel.stream_stream("/dlsched.v1.Control/Submit")
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _ in stream(nothing()):
                    pass

    await every(4 * 8, one)


async def opened(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("/"):
        return await asyncio.open_unix_connection(address)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port), family=socket.AF_INET)


async def every(count: int, one: Callable[[int], Awaitable[None]]) -> None:
    """Do `one` so many times at once; say when that has begun."""
    tasks = [asyncio.ensure_future(one(number)) for number in range(count)]
    await asyncio.sleep(0.3)
    print("begun", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()


WORST: dict[str, Callable[[str], Awaitable[None]]] = {
    "churn": partial(connect_for_ever, says=b""),
    "greet": partial(connect_for_ever, says=b"GET /metrics HTTP/1.0\r\n\r\n"),
    "silent": partial(hold_connections, says=b""),
    "half": partial(hold_connections, says=b"GET / HT"),
    "slow": begin_messages,
}

if __name__ == "__main__":
    where, what = sys.argv[1:3]
    work = WORST[what](where) if what in WORST else call_for_ever(where, what)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(work)  # type: ignore[arg-type]  # a coroutine
