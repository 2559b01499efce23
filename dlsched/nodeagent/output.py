"""Reading what a job wrote, as its user.

A child process becomes the user, opens the file and writes what is in it to a pipe; the agent only
reads that pipe. A mount that hangs, a link into somebody else's home or a pipe in place of a file
hurt nobody but the reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.child import expanded
from dlsched.nodeagent.runfiles import Facts

OPEN_S = 10.0  # until the first byte, or the end
_CHUNK = 64 * 1024
_FOLLOW_S = 0.2


async def read_output(
    facts: Facts,
    *,
    node: str,
    node_rank: int,
    rank: int,
    error: bool,
    tail_lines: int,
    follow: bool,
    live: Callable[[], bool],
) -> AsyncGenerator[bytes]:
    """The bytes of one stream, as they are.

    Args:
        facts: whose and where.
        node: for the pattern.
        node_rank: for the pattern.
        rank: whose output.
        error: the error stream.
        tail_lines: only the last so many lines; negative: all.
        follow: go on while the run lives.
        live: whether it does.

    Raises:
        DlschedError: when the file cannot be read.
    """
    pattern = (facts.error if error else "") or facts.output
    if not pattern:
        raise DlschedError("this run has no output file")
    path = expanded(pattern, node=node, node_rank=node_rank, rank=rank)
    asked = {
        "path": os.path.join(facts.working_directory or "/", path),
        "uid": facts.uid,
        "gid": facts.gid,
        "groups": list(facts.groups),
        "tail": tail_lines,
        "follow": follow,
    }
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "tail.py")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env={},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    watching = asyncio.ensure_future(_end_with(live, child.stdin)) if follow else None
    try:
        child.stdin.write(json.dumps(asked).encode() + b"\n")
        await child.stdin.drain()
        try:
            ready = await asyncio.wait_for(child.stderr.readline(), OPEN_S)
        except TimeoutError:
            raise DlschedError(f"cannot open {path}: the file system does not answer") from None
        if ready != b"ready\n":
            said = ready.decode("utf-8", "replace").strip() or "it cannot be read"
            raise DlschedError(f"cannot open {path}: {said}")
        while data := await child.stdout.read(_CHUNK):
            yield data
    finally:
        if watching is not None:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        with contextlib.suppress(OSError):
            child.stdin.close()
        await child.wait()


async def _end_with(live: Callable[[], bool], line: asyncio.StreamWriter) -> None:
    """Tell the child when the run is over: it then reads to the end and leaves."""
    while live():
        await asyncio.sleep(_FOLLOW_S)
    with contextlib.suppress(OSError):
        line.write(b"over\n")
        await line.drain()
