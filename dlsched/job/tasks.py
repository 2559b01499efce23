"""What a token of a job with short tasks executes: one task after the other, as it is given them.

Each task is a line for the shell. This program tells its keeper which tasks have ended and gets
more before it has none left, so that no task waits for an answer. A task counts when the daemon has
stored its end; when this program dies before that, another run executes the task again.

It is started by the keeper, as the job's user, and uses the standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque

from dlsched.job import messages as words
from dlsched.job.errors import JobError
from dlsched.job.runtime import Runtime

TELL_S = 5.0  # at the latest, an end is told
AGAIN_S = 60.0  # without an answer, the same is told again
STOPPED = 143
LAST_WORD_S = 3.0  # a stopped job waits so long until its last ends are stored
_SHELL = "/bin/sh"


class TaskRunner:
    """Executes short tasks, one at a time."""

    def __init__(self, link: socket.socket) -> None:
        """Have no task yet; `link` is connected to the keeper."""
        self._link = link
        self._waiting: deque[tuple[int, str]] = deque()
        self._had: set[int] = set()  # every task that was ever given to this process
        self._all_ends: dict[int, tuple[int, int, int, float]] = {}  # by number
        self._bundle = 0  # tasks held after the last answer
        self._ends: list[tuple[int, int, int, float]] = []  # number, code, signal, seconds
        self._told: list[tuple[int, int, int, float]] = []  # on their way
        self._packet = b""  # the newest request
        self._asked_at: float | None = None  # the answer is still to come
        self._last_at = -TELL_S
        self._over = False
        self._now: tuple[int, float, subprocess.Popen[bytes]] | None = None
        self._stopping = False
        self.failed = 0

    # -- the keeper ----------------------------------------------------------------------------

    def _ask(self) -> None:
        """Tell what has ended and ask for more; or tell the same again, without an answer."""
        now = time.monotonic()
        if self._asked_at is not None:
            self._asked_at = now
            self._link.send(self._packet, socket.MSG_NOSIGNAL)
            return
        self._told, self._ends = self._ends, []
        held = [number for number, _ in self._waiting]
        if self._now is not None:
            held.append(self._now[0])
        message = words.WantTasks(
            ended=tuple(end[0] for end in self._told),
            codes=tuple(end[1] for end in self._told),
            signals=tuple(end[2] for end in self._told),
            ran_s=tuple(end[3] for end in self._told),
            held=tuple(held),
        )
        self._packet = words.encode(message)
        self._link.send(self._packet, socket.MSG_NOSIGNAL)
        self._asked_at = self._last_at = now

    def _read(self) -> None:
        """Take one message of the keeper.

        Raises:
            JobError: it is gone.
        """
        packet = self._link.recv(words.MAX_MESSAGE)
        if not packet:
            raise JobError("tasks: the keeper is gone")
        message = words.decode_from_keeper(packet)
        if not isinstance(message, words.Tasks):
            return
        self._asked_at, self._told = None, []
        self._over = message.over
        for number, line in zip(message.numbers, message.lines, strict=True):
            if number not in self._had:
                self._had.add(number)
                self._waiting.append((number, line))
            elif number in self._all_ends:  # its end was lost with an older database
                self._ends.append(self._all_ends[number])
        self._bundle = len(self._waiting)

    def _should_ask(self) -> bool:
        if self._asked_at is not None:
            return time.monotonic() - self._asked_at >= AGAIN_S
        if self._ends and (self._is_idle or time.monotonic() - self._last_at >= TELL_S):
            return True
        return not (self._over or self._stopping) and len(self._waiting) <= self._bundle // 2

    @property
    def _is_idle(self) -> bool:
        return self._now is None and (not self._waiting or self._stopping)

    # -- tasks ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Execute tasks until there are no more, or this job must stop; return the exit code."""
        wake, write = os.pipe()
        for end in (wake, write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        until: float | None = None
        while True:
            if self._stopping and until is None:
                until = time.monotonic() + LAST_WORD_S
            self._reap()
            if self._now is None and self._waiting and not self._stopping:
                self._start(*self._waiting.popleft())
            if self._should_ask():
                self._ask()
            if self._is_idle and self._asked_at is None and not self._ends:
                if self._stopping:
                    return STOPPED
                if self._over:
                    return 1 if self.failed else 0
            if until is not None and time.monotonic() >= until:
                return STOPPED
            patience = TELL_S if until is None else max(until - time.monotonic(), 0.0)
            ready, _, _ = select.select([self._link.fileno(), wake], [], [], patience)
            if wake in ready:
                os.read(wake, 4096)
            if self._link.fileno() in ready:
                self._read()

    def _start(self, number: int, line: str) -> None:
        environment = {**os.environ, "DLSCHED_TASK": str(number)}
        began = time.monotonic()
        try:
            process = subprocess.Popen([_SHELL, "-c", line], env=environment)
        except OSError as error:  # no process is left, or the line is too long
            self._ended(number, 126, 0, 0.0, f"{error.strerror}")
            return
        self._now = (number, began, process)

    def _reap(self) -> None:
        if self._now is None:
            return
        number, began, process = self._now
        code = process.poll()
        if code is None:
            return
        self._now = None
        if self._stopping and code:
            return  # it was ended with the job: it has to be executed again
        ran_s = time.monotonic() - began
        if code < 0:
            self._ended(number, 0, -code, ran_s, f"signal {-code}")
        else:
            self._ended(number, code, 0, ran_s, f"exit {code}" if code else "")

    def _ended(self, number: int, code: int, by: int, ran_s: float, why: str) -> None:
        self._all_ends[number] = (number, code, by, ran_s)
        self._ends.append(self._all_ends[number])
        if why:
            self.failed += 1
            print(f"dlsched: task {number}: {why}", file=sys.stderr, flush=True)

    def _stop(self) -> None:
        """Begin no more tasks; the one that runs gets the signal, too."""
        self._stopping = True
        if self._now is not None:
            self._now[2].terminate()


def main() -> int:
    """Execute the tasks of this job; return its exit code."""
    runtime = Runtime.of(os.environ)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    with link:
        try:
            link.connect(runtime.control_socket)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * words.MAX_MESSAGE)
            hello = words.Hello(rank=runtime.rank, pid=os.getpid(), run_id=runtime.run_id)
            link.send(words.encode(hello), socket.MSG_NOSIGNAL)
            return TaskRunner(link).run()
        except (OSError, JobError, words.BadMessage) as error:
            print(f"dlsched: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
