"""Takes the stacks of all ranks of a run that hangs, and reports them to the agent.

py-spy reads them where it is installed. A rank that it cannot read is asked with a signal, if it
offers a file in memory (see `dlsched.job.stacks`); no other file is read, because reading one could
make the keeper wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlsched.job.messages import STACKS_SIGNAL
from dlsched.nodeagent.host import processes
from dlsched.nodeagent.keeper.py_spy import Found, PySpy
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.job_socket import Peer
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

WRITTEN_S = 1.0  # until all threads of a rank are written
LONGEST = 12_000  # bytes of one rank that are kept


class Stacks:
    """The stacks of the ranks on this node."""

    def __init__(self, keeper: KeeperInterface) -> None:
        """Ask no rank yet."""
        self._keeper = keeper
        self._py_spy = PySpy(keeper)
        self._reading = False
        self._asked: dict[int, str] = {}  # why py-spy cannot read a rank's process, by its id
        self._peers: dict[int, Peer] = {}  # the ranks, by process id
        self._written_at: float | None = None

    @property
    def deadline(self) -> float | None:
        """When this has to wake next, in seconds since the boot; None when it need not."""
        times = [each for each in (self._written_at, self._py_spy.deadline) if each is not None]
        return min(times, default=None)

    def take(self, peers: Iterable[Peer]) -> None:
        """Read the stacks of ranks and their descendants; they are reported soon."""
        if self._reading or self._written_at is not None:
            return
        self._peers = {each.pid: each for each in peers if each.rank is not None}
        members = {each.pid: each for each in self._keeper.processes.containment.members()}
        self._reading = True
        ranks = [pid for pid in self._peers if pid in members]
        self._py_spy.read([*ranks, *(pid for pid in members if pid not in ranks)], self._read)

    def _read(self, found: Found) -> None:
        """Report what py-spy has read, and ask the ranks that it could not read."""
        self._reading = False
        texts: dict[int, list[str]] = {}
        first = min(self._peers, key=lambda pid: self._peers[pid].rank or 0, default=0)
        for pid, (worked, text) in found.items():
            if worked:
                texts.setdefault(self._rank_above(pid) or first, []).append(text)
        for pid, peer in self._peers.items():
            worked, why = found.get(pid, (False, ""))
            if worked:
                self._report(peer, "\n\n".join(texts[pid]))
            elif processes.stat(pid) is not None:
                self._ask(peer, why)
        if self._asked:
            self._written_at = clock.boottime() + WRITTEN_S

    def _rank_above(self, pid: int) -> int | None:
        """Return the process of the rank that is, or has started, a process; None: no rank."""
        while pid not in self._peers:
            found = processes.stat(pid)
            if found is None or found.parent <= 1:
                return None
            pid = found.parent
        return pid

    def _ask(self, peer: Peer, why: str) -> None:
        process = processes.stat(peer.pid)
        if process is None or not peer.streams or not _is_in_memory(peer.streams[0]):
            return
        with contextlib.suppress(OSError):
            os.ftruncate(peer.streams[0], 0)
            os.lseek(peer.streams[0], 0, os.SEEK_SET)
            processes.send([process], STACKS_SIGNAL)
            self._asked[peer.pid] = why

    def ended(self, pid: int, code: int, number: int, error: str) -> bool:
        """Whether the process that has ended is a py-spy; see `PySpy.ended`."""
        return self._py_spy.ended(pid, code, number, error)

    def wake(self, now: float) -> None:
        """Report the stacks when the ranks have had time to write them."""
        self._py_spy.wake(now)
        if self._written_at is None or now < self._written_at:
            return
        asked, self._asked, self._written_at = self._asked, {}, None
        for pid, why in asked.items():
            with contextlib.suppress(OSError, IndexError):  # it may have ended
                peer = self._peers[pid]
                text = os.pread(peer.streams[0], LONGEST, 0).decode("utf-8", "replace")
                if text:
                    self._report(peer, f"(py-spy: {why})\n{text}" if why else text)

    def _report(self, peer: Peer, text: str) -> None:
        report = {"rank": peer.rank or 0, "stacks": text[:LONGEST]}
        self._keeper.send_to_agent({"report": report})


def _is_in_memory(fd: int) -> bool:
    """Whether a descriptor is of a file in memory: only such a file can have seals."""
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True
