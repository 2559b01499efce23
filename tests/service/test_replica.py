"""A replica that has to stop: a real process with a real server, and the leader's queue here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dlsched.service.rendezvous import Rendezvous
from dlsched.service.replica import is_whole
from dlsched.service.request_queue import RequestQueue, Slot

PROGRAM = Path(__file__).with_name("answers_when_told_program.py")
REQUEST = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
GRACE_S = 60


@asynccontextmanager
async def replica(folder: Path, queue: RequestQueue) -> AsyncIterator[asyncio.subprocess.Process]:
    """A replica's process, which has met the queue."""
    met = asyncio.Event()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"welcome\n")
        met.set()
        with contextlib.suppress(asyncio.CancelledError):
            await queue.serve(Slot(1, reader, writer))
        writer.transport.abort()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        Rendezvous(host="127.0.0.1", port=port, secret="").write(folder)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dlsched.service", "replica", "1", "--folder", str(folder)),
            *("--terms", "within=1,share=0.9,most=1,slots=2", "--"),
            *(sys.executable, str(PROGRAM), str(folder)),
            env={**os.environ, "DLSCHED_GRACE": str(GRACE_S)},
        )
        try:
            await met.wait()
            yield process
        finally:
            (folder / "answer").touch()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_a_replica_that_stops_answers_what_it_has_before_its_server_gets_term(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        queue = RequestQueue(
            most=10,
            longest_s=60.0,
            usable=lambda: {1},
            used=lambda number: None,
            served=lambda seconds: None,
        )
        async with asyncio.timeout(90), replica(tmp_path, queue) as process:
            asked = asyncio.create_task(queue.ask(REQUEST))
            await until((tmp_path / "asked").exists)
            process.terminate()
            # its second connection is idle, and closed as soon as the leader knows
            await until(lambda: not queue.idle)
            waits = asyncio.create_task(queue.ask(REQUEST))
            await asyncio.sleep(0)
            assert queue.waiting == 1
            assert not (tmp_path / "term").exists()
            assert not asked.done()
            (tmp_path / "answer").touch()
            assert (await asked).endswith(b"done")
            assert await process.wait() == 143
            assert (tmp_path / "term").exists()
            assert queue.waiting == 1
            waits.cancel()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (b"", False),
        (b"HTTP/1.1 200 OK\r\nContent-Le", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nok", True),
        (b"HTTP/1.1 200 OK\r\n\r\nwithout a length", True),
    ],
)
def test_a_part_of_an_answer_is_none(answer: bytes, whole: bool) -> None:
    assert is_whole(answer) is whole
