"""The processes that a keeper starts, and the ends of these and of all their orphans."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Protocol

from dlsched.nodeagent.host import lean_socket
from dlsched.nodeagent.host.event_loop import EventLoop
from dlsched.nodeagent.host.used import Used, of_rusage
from dlsched.nodeagent.ranks import child_process
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec


class Parent(Protocol):
    """What is told of the children's ends."""

    def child_ended(self, pid: int, status: int, error: str, used: Used) -> None:
        """A child has ended.

        `status` is its exit code, or the negative number of the signal that ended it; `error` says
        why it could not be started, empty when it was.
        """

    def no_child_left(self) -> None:
        """No child is left, and so no descendant: the kernel says so, not a count."""


class Children:
    """Starts processes and collects the exit status of every child."""

    def __init__(self, loop: EventLoop, parent: Parent) -> None:
        """Take SIGCHLD from here on."""
        self._loop, self._parent = loop, parent
        self._error_of: dict[int, bytes] = {}  # why a child cannot start, by pid
        self._pipes: dict[int, int] = {}  # pid, by the pipe on which it may say why
        self.executed: set[int] = set()  # that have executed their program, or may have
        self.start_limit_at: float | None = None  # set by the parent; None once all have executed
        self._reading, self._writing = lean_socket.pair()
        for line in (self._reading, self._writing):
            line.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        loop.watch(self._reading.fileno(), lambda _mask: self.reap())

    def start(self, spec: KeeperSpec, process: child_process.ProcessSpec) -> int:
        """Start one process; return its id."""
        return self.adopt(child_process.spawn(spec, process))

    def adopt(self, forked: tuple[int, int]) -> int:
        """Take what `child_process.fork` has returned; return the id of the process."""
        pid, pipe = forked
        self._pipes[pipe] = pid
        self._loop.watch(pipe, lambda _mask: self._pipe_ready(pipe))
        return pid

    @property
    def are_starting(self) -> bool:
        """Whether a child has neither executed its program nor ended."""
        return bool(self._pipes)

    def _pipe_ready(self, pipe: int) -> None:
        """Read why a child cannot start; an executed program has closed the pipe."""
        data = os.read(pipe, 4096)
        if data:
            self._error_of[self._pipes[pipe]] = data
        else:
            if self._pipes[pipe] not in self._error_of:
                self.executed.add(self._pipes[pipe])
            self._close_pipe(pipe)

    def _close_pipe(self, pipe: int) -> None:
        self._loop.unwatch(pipe)
        os.close(pipe)
        del self._pipes[pipe]
        if not self._pipes:
            self.start_limit_at = None

    def reap(self) -> None:
        """Collect the children that have ended."""
        with contextlib.suppress(BlockingIOError):
            self._reading.recv(4096)
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._parent.no_child_left()
                return
            if pid == 0:
                return
            error = self._error_of.pop(pid, b"")
            for pipe in [pipe for pipe, owner in self._pipes.items() if owner == pid]:
                with contextlib.suppress(BlockingIOError):  # written right before its end
                    error = error or os.read(pipe, 4096)
                self._close_pipe(pipe)
            if not error:
                self.executed.add(pid)
            status = os.waitstatus_to_exitcode(status)
            why = error.decode("utf-8", "replace")
            self._parent.child_ended(pid, status, why, of_rusage(used))
