"""The ranks of one `dlsched run` on this node: children of the keeper, and their output.

The output of ranks is read only as fast as the caller takes it: `taken` counts what it has taken.
Their input is in `shared_input`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dlsched.nodeagent.host import processes
from dlsched.nodeagent.host.used import Used
from dlsched.nodeagent.ranks import child_process
from dlsched.nodeagent.ranks.job_environment import Rank, build_environment
from dlsched.nodeagent.ranks.rank_plan import RankCommand, RankPlace
from dlsched.nodeagent.ranks.shared_input import SharedInput
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

WINDOW = 1024 * 1024  # bytes that the caller has not taken yet
CHUNK = 32 * 1024
LEAST = 256  # bytes that an output counts for, however short: it takes memory on its way
TERM_S = 10.0  # from TERM to KILL when the caller is gone


class LocalRanks:
    """The ranks of one call on this node."""

    def __init__(
        self,
        keeper: KeeperInterface,
        *,
        on_output: Callable[[int, int, bytes], None],
        on_exit: Callable[[int, int, int, Used], None],
        on_input_taken: Callable[[int], None],
    ) -> None:
        """Start none yet.

        `on_output` takes a rank, a stream (1 or 2) and the bytes that the rank has written;
        `on_exit` takes a rank, its exit code, the signal that has ended it, and what it has used;
        `on_input_taken` takes how many bytes every rank that reads has taken.
        """
        self._keeper, self._on_output, self._on_exit = keeper, on_output, on_exit
        self._pids: dict[int, int] = {}  # rank, by pid
        # code, signal and use, by rank; its pipes are open
        self._exits: dict[int, tuple[int, int, Used]] = {}
        self.used = Used()  # by ranks that have ended
        self._pipes: dict[int, tuple[int, int]] = {}  # rank and stream, by descriptor
        self._not_taken = 0  # bytes
        self._paused: set[int] = set()  # descriptors that are not read now
        self.kill_at: float | None = None
        self.input = SharedInput(keeper, on_input_taken)

    @property
    def executing(self) -> bool:
        """Whether any rank has not ended."""
        return bool(self._pids)

    @property
    def running(self) -> bool:
        """Whether any rank is left, or output of one."""
        return bool(self._pids or self._pipes or self._exits)

    def start(
        self,
        command: RankCommand,
        places: Sequence[RankPlace],
        streams: tuple[int, int] | None,
        inputs: Mapping[int, int],
    ) -> None:
        """Start the ranks of this node.

        Args:
            command: what they execute, and which of them read the call's input.
            places: of the ranks.
            streams: where they write; None: their output is read here.
            inputs: descriptors of ranks that read for themselves, by rank.

        Raises:
            OSError: when there is no process or descriptor left; some ranks may have started, and
                `stop` ends them.
        """
        keeper = self._keeper
        here = ",".join(str(place.rank) for place in places)
        for place in places:
            rank = Rank(
                rank=place.rank,
                local_rank=place.local_rank,
                world=command.world,
                local_world=len(places),
                gpus=place.gpus,
                command=command,
                here=here,
            )
            with contextlib.ExitStack() as theirs:  # the rank's ends of its pipes
                given = inputs.get(place.rank)
                if command.reads(place.rank):
                    given = self.input.open(place.rank)
                    theirs.callback(os.close, given)
                process = child_process.ProcessSpec(
                    argv=command.argv,
                    environment=build_environment(
                        keeper.spec,
                        rank,
                        keeper.job_socket_path,
                        command.master_port,
                    ),
                    working_directory=command.working_directory
                    or keeper.spec.launch.working_directory,
                    output="",
                    error="",
                    streams=streams
                    or (self._pipe(place.rank, 1, theirs), self._pipe(place.rank, 2, theirs)),
                    input=given,
                    input_path=child_process.expand_pattern(
                        command.input_file,
                        node=keeper.spec.node,
                        node_rank=command.nodes.index(keeper.spec.node),
                        rank=place.rank,
                    ),
                )
                self._pids[keeper.processes.start_child(process)] = place.rank

    # -- output --------------------------------------------------------------------------------

    def _pipe(self, rank: int, stream: int, theirs: contextlib.ExitStack) -> int:
        """Make the pipe of a rank's stream; return its end, which `theirs` closes here."""
        fd, end = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, end)
        os.set_blocking(fd, False)
        self._pipes[fd] = (rank, stream)
        self._keeper.watch(fd, lambda _mask: self._readable(fd))
        return end

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        rank, stream = self._pipes[fd]
        if data:
            self._not_taken += max(len(data), LEAST)
            self._on_output(rank, stream, data)
            if self._not_taken >= WINDOW:
                for each in self._pipes:
                    self._keeper.unwatch(each)
                self._paused = set(self._pipes)
            return
        self._keeper.unwatch(fd)
        os.close(fd)
        del self._pipes[fd]
        self._report_exits()

    def taken(self, count: int) -> None:
        """Note that the caller has taken an output of so many bytes; read on if there is room."""
        self._not_taken -= max(count, LEAST)
        if self._paused and self._not_taken < WINDOW // 2:
            for fd in self._paused & set(self._pipes):
                self._keeper.watch(fd, lambda _mask, fd=fd: self._readable(fd))  # type: ignore[misc]
            self._paused.clear()

    # -- ends ----------------------------------------------------------------------------------

    def ended(self, pid: int, code: int, number: int, detail: str, used: Used) -> bool:
        """Whether the process that has ended is a rank; its exit is reported after its output.

        Args:
            pid: of the process.
            code: its exit code.
            number: of the signal that has ended it, or 0.
            detail: why it could not be started, or empty.
            used: by it.
        """
        rank = self._pids.pop(pid, None)
        if rank is None:
            return False
        if detail:
            data = f"dlsched: {detail}\n".encode()
            self._not_taken += max(len(data), LEAST)
            self._on_output(rank, 2, data)
        self.used += used
        self.input.leave(rank)
        self._exits[rank] = (code, number, used)
        self._report_exits()
        return True

    def _report_exits(self) -> None:
        writing = {rank for rank, _ in self._pipes.values()}
        for rank in [rank for rank in self._exits if rank not in writing]:
            self._on_exit(rank, *self._exits.pop(rank))

    def send(self, number: int) -> None:
        """Signal every rank."""
        if self._pids:
            self._keeper.processes.signals.send(number, below=self._pids)

    def end_with_others(self) -> set[int]:
        """Send TERM now and KILL soon; return the ranks that had not ended by themselves."""
        found = {rank: processes.stat(pid) for pid, rank in self._pids.items()}
        self._end_soon()
        return {rank for rank, each in found.items() if each is not None and each.state != "Z"}

    def _end_soon(self) -> None:
        """Send TERM, and kill what is left after a grace period, or at the end of the run's own."""
        if self._pids and self.kill_at is None:
            self._keeper.processes.signals.ask_to_end(self._pids)
            if self._keeper.state.stop is None:
                self.kill_at = clock.boottime() + min(TERM_S, self._keeper.spec.desired.grace_s)

    def stop(self) -> None:
        """Send TERM now and KILL soon, and drop the output: the caller is gone."""
        for fd in list(self._pipes):
            self._keeper.unwatch(fd)
            os.close(fd)
        self._pipes.clear()
        self._paused.clear()
        self.input.close()
        self._report_exits()
        self._end_soon()

    def wake(self, now: float) -> None:
        """Kill the ranks if their grace period is over."""
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            with contextlib.suppress(OSError):
                self.send(signal.SIGKILL)
