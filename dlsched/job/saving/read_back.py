"""Loads a saved state in a copy of this process, to learn at the first save whether a restore can.

A script's own `load` may change objects that the training uses, so it is not called here but in a
forked child, which ends right after it. The child has no connections: the files, sockets and pipes
of this process are closed in it, so that `load` cannot send anything.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from dlsched.job.errors import JobError

MOST_BYTES = 1 << 30  # a larger state is not loaded: it would need as much memory again
WITHIN_S = 60.0
CERTAIN = (  # errors of reading; others may come from the child having no GPU and no connections
    pickle.UnpicklingError, LookupError, ValueError, TypeError, AttributeError, ImportError,
    EOFError, AssertionError, JobError,
)  # fmt: skip


def why_unreadable(path: Path, load: Callable[[BinaryIO], object]) -> str:
    """Return why `load` cannot read a file, in one line; empty when it can, or it is not certain.

    Args:
        path: of the file.
        load: reads the state from an open binary file.
    """
    if path.stat().st_size > MOST_BYTES:
        return ""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the process may have threads
        child = os.fork()
    if child == 0:
        _load_and_end(path, load, writing)
    os.close(writing)
    try:
        return _answer(reading)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(reading: int) -> str:
    """Return what the child writes until it ends; empty when it takes too long."""
    found, until = b"", time.monotonic() + WITHIN_S
    while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        more = os.read(reading, 4096)
        if not more:
            return found.decode(errors="replace")
        found += more
    return ""


def _load_and_end(path: Path, load: Callable[[BinaryIO], object], writing: int) -> None:
    """Load the file, write why it fails, if it does, and end this process without its clean-up."""
    why = ""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        os.closerange(3, writing)
        os.closerange(writing + 1, 1 << 16)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)  # its other threads do not exist here
        with path.open("rb") as file:
            load(file)
    except CERTAIN as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    except BaseException:  # not certain
        pass
    finally:
        os.write(writing, why.encode(errors="replace"))
        os._exit(0)
