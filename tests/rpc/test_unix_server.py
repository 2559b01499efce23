"""A flood of connections to a unix socket is accepted a few at a time."""

from __future__ import annotations

import asyncio
import socket
import stat
import tempfile
from pathlib import Path

from dlsched.rpc.unix_server import AT_ONCE, WAITING, serve_unix


def test_other_work_goes_on_between_a_few_of_many_connections() -> None:
    async def scene(path: Path) -> None:
        served, most, before = 0, 0, 0

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal served
            served += 1
            writer.close()

        server = await serve_unix(serve, path, mode=0o640)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        lines = [socket.socket(socket.AF_UNIX) for _ in range(WAITING)]
        try:
            for line in lines:
                line.setblocking(False)
                line.connect(str(path))  # all of them wait in the kernel
            while served < WAITING:
                await asyncio.sleep(0)
                most, before = max(most, served - before), served
        finally:
            for line in lines:
                line.close()
            server.close()
        assert most <= AT_ONCE

    with tempfile.TemporaryDirectory(prefix="u") as folder:
        asyncio.run(asyncio.wait_for(scene(Path(folder) / "s"), 60))
