"""Loads saved states in a copy of this process, to learn at the first save whether a restore can.

A script's own `load` may change objects that the training uses, so it is not called here but in a
forked child, beside the training, which waits for it at most at its end. The child has no
connections: the files, sockets and pipes of this process are closed in it, so that `load` cannot
send anything.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from dlsched.job.errors import JobError

MOST_BYTES = 1 << 30  # larger states are not loaded: that would need as much memory again
WITHIN_S = 60.0
NOT_FORKED = {"jax", "tensorflow"}  # modules whose threads do not bear that a process is forked
CERTAIN = (  # errors of reading; others may come from the child having no GPU and no connections
    pickle.UnpicklingError, LookupError, ValueError, TypeError, AttributeError, ImportError,
    EOFError, AssertionError, JobError,
)  # fmt: skip
Load = Callable[[BinaryIO], object]


class Trial:
    """States that a child loads, one after the other."""

    def __init__(self, states: Iterable[tuple[str, Path, Load]]) -> None:
        """Begin to load states, each with its name, its file and what reads it.

        Nothing is loaded in a process that must not be forked, no large state, and none where the
        memory could become short: pages that the training writes meanwhile are there twice.
        """
        wanted = list(states) if not NOT_FORKED & sys.modules.keys() else []
        small = [each for each in wanted if each[1].stat().st_size <= MOST_BYTES]
        self._said = b""
        self._until = time.monotonic() + WITHIN_S
        self._reading = self._child = -1
        self._process: int | None = None  # a descriptor of it
        if not small or not has_room_for_a_copy():
            return
        self._reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the process may have threads
            self._child = os.fork()
        if self._child == 0:
            _load_and_end(small, writing)
        os.close(writing)
        with contextlib.suppress(OSError):  # it has ended, and the script waits for no child
            self._process = os.pidfd_open(self._child)

    def is_over(self, within_s: float = 0.0) -> bool:
        """Wait so long for the child; return whether it has ended, or has no time left."""
        until = min(time.monotonic() + within_s, self._until)
        while self._reading >= 0:
            said = select.poll()
            said.register(self._reading, select.POLLIN)
            if not said.poll(1000.0 * max(0.0, until - time.monotonic())):
                if time.monotonic() < self._until:
                    return False
                self.stop()
                break
            more = os.read(self._reading, 4096)
            self._said += more
            if not more:
                self.stop()
        return True

    def stop(self) -> None:
        """End the child, whatever it does. Harmless when repeated."""
        if self._reading < 0:
            return
        os.close(self._reading)
        self._reading = -1
        process, self._process = self._process, None
        if process is not None:  # a script may wait for all children, so the id may be another's
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            os.close(process)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, 0)

    def unreadable(self) -> list[tuple[str, str]]:
        """Return the states that the child could not load, each with the reason in one line."""
        lines = self._said.decode(errors="replace").splitlines()
        return [(name, why) for name, _, why in (line.partition(" ") for line in lines)]


def has_room_for_a_copy() -> bool:
    """Whether this process, if all its pages were there twice, leaves memory to the job."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        free = _number_after("MemAvailable:", Path("/proc/meminfo").read_text()) * 1024
        group = Path("/proc/self/cgroup").read_text().partition("0::/")[2].splitlines()
        at = Path("/sys/fs/cgroup", *group[:1])
        most = (at / "memory.max").read_text().strip() if (at / "memory.max").exists() else "max"
        if most != "max":
            free = min(free, int(most) - int((at / "memory.current").read_text()))
    except (OSError, ValueError, IndexError):
        return False
    return 2 * pages * os.sysconf("SC_PAGE_SIZE") <= free


def _number_after(word: str, text: str) -> int:
    return int(text.partition(word)[2].split()[0])


def _load_and_end(states: Sequence[tuple[str, Path, Load]], writing: int) -> None:
    """Load the states, write which cannot be, and end this process without its clean-up."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(WITHIN_S))  # the training may have died by then
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        os.closerange(3, writing)
        os.closerange(writing + 1, 1 << 16)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)  # its other threads do not exist here
        for name, path, load in states:
            why = _why_unreadable(path, load)
            if why:
                os.write(writing, f"{name} {why}\n".encode(errors="replace"))
    finally:
        os._exit(0)


def _why_unreadable(path: Path, load: Load) -> str:
    try:
        with path.open("rb") as file:
            load(file)
    except CERTAIN as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:500]
    except BaseException:  # not certain
        return ""
    return ""
