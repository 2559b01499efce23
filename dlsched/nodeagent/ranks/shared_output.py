"""A keeper's part in files that ranks share: the pipes of the ranks, and the output writer.

The keeper holds the reading ends too and never reads. So a writer that is killed harms no rank:
another one goes on, and only what the first one had read and not written is lost.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from dlsched.nodeagent.host import lean_socket
from dlsched.nodeagent.ranks import child_process, output_writer
from dlsched.nodeagent.ranks.child_process import ProcessSpec
from dlsched.nodeagent.ranks.output_writer import SharedFile
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.keeper_interface import ProcessesInterface
    from dlsched.nodeagent.ranks.launch_spec import KeeperSpec

DRAIN_S = 10.0  # for the writer, after the last process of the job
MOST_WRITERS = 5  # one after the other


class SharedOutput:
    """The output writer of one run on this node."""

    def __init__(self, spec: KeeperSpec, processes: ProcessesInterface) -> None:
        """Start without a writer."""
        self._spec, self._processes = spec, processes
        self._files: tuple[SharedFile, ...] = ()
        self._writer: int | None = None  # its process id
        self._left = MOST_WRITERS
        self.deadline: float | None = None  # when the writer is given up

    def connect(self, processes: dict[int, ProcessSpec]) -> dict[int, ProcessSpec]:
        """Give ranks pipes in place of the files whose lines get labels, and start the writer.

        `close` is to be called when they are started.

        Args:
            processes: by rank.
        """
        launch = self._spec.launch
        pipes: dict[str, dict[int, tuple[int, int]]] = {}  # by path and rank
        connected: dict[int, ProcessSpec] = {}
        for rank, process in processes.items():
            output = error = None
            if launch.label_output:
                output = _pipe(pipes, process.output, rank)
            if launch.label_error and process.error not in ("", process.output):
                error = _pipe(pipes, process.error, rank)
            connected[rank] = child_process.replace(process, streams=(output, error))
        self._ends: list[int] = []
        self._gate: tuple[lean_socket.Socket, lean_socket.Socket] | None = None
        if not pipes:
            return connected
        self._files = tuple(
            SharedFile(
                path=path,
                truncate=any(processes[rank].truncate for rank in of),
                only_whole=self._is_of_all_nodes(path),
                ranks=tuple(of),
                pipes=tuple(reading for reading, _ in of.values()),
            )
            for path, of in pipes.items()
        )
        self._ends = [writing for of in pipes.values() for _, writing in of.values()]
        self._gate = ours, theirs = lean_socket.pair(lean_socket.SOCK_SEQPACKET)
        self._start(ours)
        return {
            rank: child_process.replace(process, gate=theirs) for rank, process in connected.items()
        }

    def close(self) -> None:
        """Close the ends that only ranks and the writer may have."""
        for fd in self._ends:
            os.close(fd)
        for end in self._gate or ():
            end.close()

    def _is_of_all_nodes(self, path: str) -> bool:
        """Whether other nodes have a file of the same name."""
        launch, desired = self._spec.launch, self._spec.desired
        elsewhere = [
            child_process.expand_pattern(pattern, node="", node_rank=-1, rank=-1)
            for pattern in (launch.output, launch.error)
        ]
        return len(desired.layout) > 1 and path in elsewhere

    def _start(self, gate: lean_socket.Socket | None) -> None:
        forked = output_writer.spawn(self._spec, self._files, gate)
        self._writer = self._processes.adopt_writer(forked)

    def ended(self, pid: int, status: int, error: str) -> bool:
        """Whether the process that has ended is the writer; if it was killed, another one starts.

        Args:
            pid: of the process.
            status: its exit code, or the negative number of the signal that ended it.
            error: why it could not start.
        """
        if pid != self._writer:
            return False
        self._writer, self.deadline = None, None
        self._processes.containment.spared.discard(pid)
        self._left -= 1
        if status != 0 and not error and self._left > 0:
            files = [child_process.replace(file, truncate=False) for file in self._files]
            self._files = tuple(files)
            self._start(None)
            return True
        for file in self._files:
            for pipe in file.pipes:
                os.close(pipe)
        self._files = ()
        if status != 0 and self._left >= 0:  # not given up
            self._processes.fail_job(error or f"the output writer was killed {MOST_WRITERS} times")
        return True

    def no_process_left(self) -> None:
        """Bound the time that the writer still has: only processes elsewhere can be writing."""
        if self._writer is not None and self.deadline is None:
            longest = min(DRAIN_S, self._spec.timing.unkillable_s / 2)
            self.deadline = clock.boottime() + longest

    def wake(self, now: float) -> None:
        """Give the writer up when its time is over."""
        if self.deadline is not None and now >= self.deadline and self._writer is not None:
            self.deadline, self._left = None, 0
            os.kill(self._writer, signal.SIGKILL)
            self._processes.no_child_left()


def _pipe(pipes: dict[str, dict[int, tuple[int, int]]], path: str, rank: int) -> int:
    """Make the pipe of a rank for a path; return the descriptor to write to."""
    found = os.pipe2(os.O_CLOEXEC)
    pipes.setdefault(path, {})[rank] = found
    return found[1]
