"""Reading a job's output file, as the job's user.

A child process becomes the user, opens the file and writes its content to a pipe; the agent only
reads that pipe. A mount that hangs, a link into another home or a pipe in place of a file then
harms only the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.ranks.child_process import expand_pattern
from dlsched.nodeagent.ranks.launch_spec import RunFacts
from dlsched.nodeagent.ranks.line_merger import label_of

OPEN_S = 10.0  # until the first byte, or the end
_CHUNK = 64 * 1024
_FOLLOW_S = 0.2


async def read_output(
    facts: RunFacts,
    *,
    node: str,
    node_rank: int,
    rank: int,
    only_rank: bool,
    error: bool,
    tail_lines: int,
    follow: bool,
    is_running: Callable[[], bool],
) -> AsyncGenerator[bytes]:
    """Give the bytes of one stream of a run's output, as they are.

    Args:
        facts: the user of the run and the patterns of its output files.
        node: replaces %N in the pattern.
        node_rank: replaces %n in the pattern.
        rank: replaces %t in the pattern.
        only_rank: only the lines with the label of `rank`, without it.
        error: read the error stream, where it has a file of its own.
        tail_lines: only so many lines from the end; negative: all.
        follow: go on while the run goes on.
        is_running: whether it does.

    Raises:
        DlschedError: when the file cannot be read.
    """
    pattern = (facts.error if error else "") or facts.output
    if not pattern:
        raise DlschedError("this run has no output file")
    path = expand_pattern(pattern, node=node, node_rank=node_rank, rank=rank)
    request = {
        "path": os.path.join(facts.working_directory or "/", path),
        "uid": facts.uid,
        "gid": facts.gid,
        "groups": list(facts.groups),
        "tail": tail_lines,
        "follow": follow,
        "label": label_of(rank).decode() if only_rank else "",
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
    watching = asyncio.ensure_future(_end_with_run(is_running, child.stdin)) if follow else None
    try:
        child.stdin.write(json.dumps(request).encode() + b"\n")
        await child.stdin.drain()
        try:
            ready = await asyncio.wait_for(child.stderr.readline(), OPEN_S)
        except TimeoutError:
            raise DlschedError(f"cannot open {path}: the file system does not answer") from None
        if ready != b"ready\n":
            why = ready.decode("utf-8", "replace").strip() or "it cannot be read"
            raise DlschedError(f"cannot open {path}: {why}")
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


async def _end_with_run(is_running: Callable[[], bool], line: asyncio.StreamWriter) -> None:
    """Tell the child when the run is over: it then reads to the end and exits."""
    while is_running():
        await asyncio.sleep(_FOLLOW_S)
    with contextlib.suppress(OSError):
        line.write(b"over\n")
        await line.drain()
