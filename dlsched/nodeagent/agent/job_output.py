"""Reading a job's output file, as the job's user: the agent's part.

A process of the file server opens the file and sends its content; the agent only reads that. A
mount that hangs, a link into another home or a pipe in place of a file then harms no other job.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.agent.user_files import UserFiles
from dlsched.nodeagent.ranks.child_process import expand_pattern
from dlsched.nodeagent.ranks.launch_spec import RunFacts
from dlsched.nodeagent.ranks.line_merger import label_of

OPEN_S = 10.0  # until the first byte, or the end
_CHUNK = 64 * 1024
_FOLLOW_S = 0.2
_ENDED = "the file server has ended; ask again"


async def read_output(
    files: UserFiles,
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
    keeper: Callable[[], int | None],
) -> AsyncGenerator[bytes]:
    """Give the bytes of one stream of a run's output, as they are.

    Args:
        files: what reads it.
        facts: the user of the run and the patterns of its output files.
        node: replaces %N in the pattern.
        node_rank: replaces %n in the pattern.
        rank: replaces %t in the pattern.
        only_rank: only the lines with the label of `rank`, without it.
        error: read the error stream, where it has a file of its own.
        tail_lines: only so many lines from the end; negative: all.
        follow: go on while the run goes on.
        is_running: whether it does.
        keeper: a descriptor of the process of the run's keeper, while there is one.

    Raises:
        DlschedError: when the file cannot be read.
    """
    pattern = (facts.error if error else "") or facts.output
    if not pattern:
        raise DlschedError("this run has no output file")
    path = expand_pattern(pattern, node=node, node_rank=node_rank, rank=rank)
    try:
        content, order = await files.ask(
            "read",
            uid=facts.uid,
            gid=facts.gid,
            groups=facts.groups,
            keeper=keeper,
            path=os.path.join(facts.working_directory or "/", path),
            tail=tail_lines,
            follow=follow,
            label=label_of(rank).decode() if only_rank else "",
        )
    except ConnectionError:
        raise DlschedError(f"{path}: {_ENDED}") from None
    watching = asyncio.ensure_future(_end_with_run(is_running, order)) if follow else None
    try:
        try:
            ready = await asyncio.wait_for(content.readline(), OPEN_S)
        except TimeoutError:
            raise DlschedError(f"cannot open {path}: the file system does not answer") from None
        if ready != b"ready\n":
            why = ready.decode("utf-8", "replace").strip() or "it cannot be read"
            raise DlschedError(f"cannot open {path}: {why}")
        while data := await content.read(_CHUNK):
            yield data
    except ConnectionError:
        raise DlschedError(f"{path}: {_ENDED}") from None
    finally:
        if watching is not None:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        with contextlib.suppress(OSError):
            order.write_eof()  # so that its process leaves it: a file system may still hold it
            while await content.read(_CHUNK):
                pass
        order.close()


async def _end_with_run(is_running: Callable[[], bool], line: asyncio.StreamWriter) -> None:
    """Tell the reader when the run is over: it then reads to the end and closes."""
    while is_running():
        await asyncio.sleep(_FOLLOW_S)
    with contextlib.suppress(OSError):
        line.write(b"over\n")
        await line.drain()
