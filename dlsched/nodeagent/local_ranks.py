"""The ranks of one `dlsched run` on this node: children of the keeper, and their output.

What a rank writes is read only as fast as it is taken away: `taken` says how much has been.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dlsched.nodeagent import child, clock, process
from dlsched.nodeagent.environment import Rank, build
from dlsched.nodeagent.rank_plan import Place

if TYPE_CHECKING:
    from dlsched.nodeagent.kept_run import KeptRun

WINDOW = 1024 * 1024  # bytes on their way
CHUNK = 32 * 1024
TERM_S = 10.0  # from TERM to KILL when the caller is gone


class LocalRanks:
    """Ranks of one call."""

    def __init__(
        self,
        keeper: KeptRun,
        *,
        wrote: Callable[[int, int, bytes], None],
        exited: Callable[[int, int, int], None],
    ) -> None:
        self._keeper, self._wrote, self._exited = keeper, wrote, exited
        self._pids: dict[int, int] = {}  # pid -> rank
        self._ends: dict[int, tuple[int, int]] = {}  # rank -> code, signal; its pipes are open yet
        self._pipes: dict[int, tuple[int, int]] = {}  # descriptor -> rank, stream
        self._on_the_way = 0
        self._waiting: set[int] = set()  # descriptors that are not looked at
        self.kill_at: float | None = None

    @property
    def running(self) -> bool:
        """Whether any rank, or output of one, is left."""
        return bool(self._pids or self._pipes or self._ends)

    def start(
        self,
        places: Sequence[Place],
        *,
        argv: Sequence[str],
        environment: Mapping[str, str],
        working_directory: str,
        world: int,
        master_port: int,
        tasks_per_node: str,
        streams: tuple[int, int] | None,
    ) -> None:
        """Start them; `streams` are written by the ranks themselves, else all output is read."""
        keeper = self._keeper
        for place in places:
            rank = Rank(
                rank=place.rank,
                local_rank=place.local_rank,
                world=world,
                local_world=len(places),
                gpus=place.gpus,
                tasks_per_node=tasks_per_node,
            )
            given, ours = streams, []
            if streams is None:
                pairs = [os.pipe2(os.O_CLOEXEC) for _ in (1, 2)]
                given = (pairs[0][1], pairs[1][1])
                ours = [pair[0] for pair in pairs]
            start = child.Start(
                argv=tuple(argv),
                environment=build(
                    keeper.spec, rank, keeper.folder.job_socket, master_port, environment
                ),
                working_directory=working_directory or keeper.spec.launch.working_directory,
                output="",
                error="",
                streams=given,
            )
            self._pids[keeper.start_child(start)] = place.rank
            if streams is None and given is not None:
                for fd in given:
                    os.close(fd)
                for stream, fd in enumerate(ours, 1):
                    os.set_blocking(fd, False)
                    self._pipes[fd] = (place.rank, stream)
                    keeper.watch(fd, lambda _mask, fd=fd: self._readable(fd))  # type: ignore[misc]

    # -- output --------------------------------------------------------------------------------

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        rank, stream = self._pipes[fd]
        if data:
            self._on_the_way += len(data)
            self._wrote(rank, stream, data)
            if self._on_the_way >= WINDOW:
                for each in self._pipes:
                    self._keeper.unwatch(each)
                self._waiting = set(self._pipes)
            return
        self._keeper.unwatch(fd)
        os.close(fd)
        del self._pipes[fd]
        self._tell_ends()

    def taken(self, count: int) -> None:
        """So many bytes have reached the caller."""
        self._on_the_way -= count
        if self._waiting and self._on_the_way < WINDOW // 2:
            for fd in self._waiting & set(self._pipes):
                self._keeper.watch(fd, lambda _mask, fd=fd: self._readable(fd))  # type: ignore[misc]
            self._waiting.clear()

    # -- ends ----------------------------------------------------------------------------------

    def ended(self, pid: int, code: int, number: int, detail: str) -> bool:
        """Whether it was one of these; its end is told after its output."""
        rank = self._pids.pop(pid, None)
        if rank is None:
            return False
        if detail:
            self._wrote(rank, 2, f"dlsched: {detail}\n".encode())
            self._on_the_way += len(detail) + 10
        self._ends[rank] = (code, number)
        self._tell_ends()
        return True

    def _tell_ends(self) -> None:
        writing = {rank for rank, _ in self._pipes.values()}
        for rank in [rank for rank in self._ends if rank not in writing]:
            self._exited(rank, *self._ends.pop(rank))

    def send(self, number: int) -> None:
        """Signal every rank and what it has started."""
        for pid in list(self._pids):
            found = process.stat(pid)
            members = process.descendants(pid)
            process.send([found, *members] if found is not None else members, number)

    def end_soon(self) -> None:
        """KILL what is left in a while."""
        if self._pids and self.kill_at is None:
            self.kill_at = clock.now() + min(TERM_S, self._keeper.spec.desired.grace_s)

    def stop(self) -> None:
        """TERM now, KILL soon; nobody listens any more."""
        for fd in list(self._pipes):
            self._keeper.unwatch(fd)
            os.close(fd)
        self._pipes.clear()
        self._waiting.clear()
        self._tell_ends()
        if self._pids and self.kill_at is None:
            self.send(signal.SIGTERM)
            self.end_soon()

    def wake(self, now: float) -> None:
        """Their time is over."""
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            with contextlib.suppress(OSError):
                self.send(signal.SIGKILL)
