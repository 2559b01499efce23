"""Reads the stacks of processes with py-spy, one process after another.

The node's py-spy runs as the job's user, because it opens files that the job's processes name; it
may read these processes whatever the node's rules for tracing are. Where there is none, one in the
job's PATH runs as a process of the job. Nothing is paused (`--nonblocking`), so a py-spy that is
killed leaves no process stopped. Time and output are bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dlsched.nodeagent.ranks.child_process import NOT_FOUND, ProcessSpec
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

NAME = "py-spy"
LIMIT_S = 5.0  # for all processes
PROCESS_LIMIT_S = 2.0
_LONGEST = 16 * 1024  # bytes that one process may have
Found = dict[int, tuple[bool, str]]  # by process: whether it worked, and the stacks or why not


class PySpy:
    """Reads the stacks of a run's processes on this node."""

    def __init__(self, keeper: KeeperInterface) -> None:
        """Read nothing yet."""
        self._keeper = keeper
        self._left: list[int] = []
        self._found: Found = {}
        self._done: Callable[[Found], None] | None = None
        self._end = 0.0
        self._tool: int | None = None  # process id of the py-spy that runs
        self._file = -1  # in memory, for its output
        self._late = False
        self.deadline: float | None = None

    def read(self, pids: Sequence[int], done: Callable[[Found], None]) -> None:
        """Read the stacks of processes; `done` gets them within `LIMIT_S`."""
        self._left, self._found, self._done = [*pids], {}, done
        self._end = clock.boottime() + LIMIT_S
        self._next()

    def _next(self) -> None:
        now = clock.boottime()
        if not self._left or now >= self._end:
            done, self._done = self._done, None
            if done is not None:
                done(self._found)
            return
        self._file = os.memfd_create("dlsched-py-spy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._file, _LONGEST)
        fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
        spec = self._keeper.spec
        process = ProcessSpec(
            argv=(spec.py_spy or NAME, "dump", "--nonblocking", "--pid", str(self._left[0])),
            environment=os.environ if spec.py_spy else spec.launch.environment,
            working_directory="/",
            output="",
            error="",
            streams=(self._file, None),
            traces=bool(spec.py_spy),
        )
        self._tool, self._late = self._keeper.processes.start_child(process), False
        self.deadline = min(now + PROCESS_LIMIT_S, self._end)

    def wake(self, now: float) -> None:
        """Kill a py-spy that has had its time."""
        if self._tool is not None and self.deadline is not None and now >= self.deadline:
            self.deadline, self._late = None, True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._tool, signal.SIGKILL)

    def ended(self, pid: int, code: int, number: int, error: str) -> bool:
        """Whether the process that has ended is the py-spy; if so, take its output and go on.

        Args:
            pid: of the process.
            code: its exit code.
            number: of the signal that has ended it, or 0.
            error: why it could not be started, or empty.
        """
        if pid != self._tool:
            return False
        self._tool = self.deadline = None
        data = os.pread(self._file, _LONGEST, 0)
        os.close(self._file)
        text = data.rstrip(b"\0").decode("utf-8", "replace").strip()
        is_full = bool(data[-1:].strip(b"\0"))  # cut off, so it had to fail
        first = next(iter(text.splitlines()), f"exit {code}")
        why = error or ("it takes too long" if self._late else first)
        of = self._left.pop(0)
        if (code == NOT_FOUND and error) or (number and not self._late):
            self._left.clear()  # none is installed, or the job is killed
        else:
            worked = is_full or not (code or number)
            self._found[of] = worked, text if worked else why
        self._next()
        return True
