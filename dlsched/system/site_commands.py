"""Commands that a site configures: without a shell, with a time limit, and with bounded words.

A command has a session of its own; when its time is over, all that it has started there is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

LONGEST_WORDS = 300  # characters of what a command has said
_KILLED_S = 5.0  # until a killed command has ended


async def run_command(
    words: Sequence[str],
    timeout_s: float,
    *,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command to its end; returns why it did not succeed, empty if it did.

    Args:
        words: the program and its arguments.
        timeout_s: how long it may take.
        given: what it reads on standard input.
        environment: its variables; None: those of this process.
    """
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as read:
        read.write(given)
        read.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=read,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env=environment,
            )
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        try:
            code = await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            return f"took longer than {timeout_s:g} s" + last_words(said)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with contextlib.suppress(TimeoutError):  # it may be stuck in the kernel
                    await asyncio.wait_for(process.wait(), _KILLED_S)
        if code == 0:
            return ""
        return f"ended with {code}" + last_words(said)


def last_words(file: IO[bytes]) -> str:
    """The last line that a command has written, after a colon; empty if there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4 * LONGEST_WORDS))
    lines = file.read().decode(errors="replace").split("\n")
    told = [line.strip() for line in lines if line.strip()]
    return f": {told[-1][-LONGEST_WORDS:]}" if told else ""
