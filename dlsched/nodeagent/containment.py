"""How a keeper reaches all processes of its job, and no other.

Three ways, strongest first: a cgroup, a process-id namespace that the keeper is the first process
of, and the tree of its descendants, which is complete because the keeper is a subreaper.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Protocol

from dlsched.nodeagent import process


class Containment(Protocol):
    """What a keeper does to its job as a whole."""

    def members(self) -> list[process.Stat]:
        """The live processes of the job."""

    def send(self, number: int) -> None:
        """Signal every process."""

    def kill(self) -> None:
        """Kill every process; to be repeated until there is none."""

    def freeze(self) -> None:
        """Stop every process where it stands."""

    def stands_still(self) -> bool:
        """Whether every process does, after a freeze."""

    def thaw(self) -> None:
        """Let them go on."""

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process of the job for want of memory."""

    def entrance(self) -> int | None:
        """A descriptor through which a child enters; None where birth is enough."""

    def remove(self) -> None:
        """The job is over."""


class Tree:
    """The keeper's descendants, by /proc."""

    def members(self) -> list[process.Stat]:
        """The live descendants."""
        return process.descendants(os.getpid())

    def send(self, number: int) -> None:
        """Signal every descendant."""
        process.send(self.members(), number)

    def kill(self) -> None:
        """Stop first, so that none forks while the others die."""
        process.send(self.members(), signal.SIGSTOP)
        process.send(self.members(), signal.SIGKILL)

    def freeze(self) -> None:
        """Stop until no new process turns up."""
        known: set[int] = set()
        for _ in range(16):
            members = self.members()
            process.send(members, signal.SIGSTOP)
            found = {each.pid for each in members}
            if found <= known:
                return
            known = found

    def stands_still(self) -> bool:
        """Every process is stopped, or dead."""
        return all(each.state in "TtZX" for each in self.members())

    def thaw(self) -> None:
        """Let every descendant go on."""
        self.send(signal.SIGCONT)

    def out_of_memory(self) -> bool:
        """Not known here."""
        return False

    def entrance(self) -> int | None:
        """Children are descendants."""
        return None

    def remove(self) -> None:
        """Nothing is left to remove."""


class Namespace(Tree):
    """All that this /proc shows but the keeper, which is process 1."""

    def members(self) -> list[process.Stat]:
        """Everything in the namespace, processes that entered it from outside too."""
        return [
            each for each in process.all_processes() if each.pid != 1 and each.state not in "ZX"
        ]

    def _all(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)

    def send(self, number: int) -> None:
        """One call reaches all."""
        self._all(number)

    def kill(self) -> None:
        """One call reaches all: none can fork away from it."""
        self._all(signal.SIGKILL)

    def freeze(self) -> None:
        """One call reaches all."""
        self._all(signal.SIGSTOP)

    def thaw(self) -> None:
        """One call reaches all."""
        self._all(signal.SIGCONT)


class Cgroup(Tree):
    """The leaf `job` of the run's cgroup; signals go through the tree or the namespace."""

    def __init__(self, path: str, below: Tree) -> None:
        self._path = path
        self._below = below
        self._job = os.path.join(path, "job")
        self._oom_before = self._oom_kills()

    def members(self) -> list[process.Stat]:
        """The job's processes as the keeper sees them."""
        return self._below.members()

    def send(self, number: int) -> None:
        """Signal every process."""
        self._below.send(number)

    def _write(self, name: str, text: str) -> bool:
        try:
            fd = os.open(os.path.join(self._job, name), os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.write(fd, text.encode())
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def kill(self) -> None:
        """The kernel kills the whole leaf at once; older kernels need more."""
        if not self._write("cgroup.kill", "1"):
            self._below.kill()

    def freeze(self) -> None:
        """The kernel holds the whole leaf."""
        if not self._write("cgroup.freeze", "1"):
            self._below.freeze()

    def stands_still(self) -> bool:
        """The kernel says so."""
        try:
            with open(os.path.join(self._job, "cgroup.events"), encoding="ascii") as file:
                if "frozen 1" in file.read().splitlines():
                    return True
        except OSError:
            pass
        return self._below.stands_still()

    def thaw(self) -> None:
        """And lets it go."""
        if not self._write("cgroup.freeze", "0"):
            self._below.thaw()

    def _oom_kills(self) -> int:
        try:
            with open(os.path.join(self._job, "memory.events"), encoding="ascii") as file:
                for line in file:
                    name, _, count = line.partition(" ")
                    if name == "oom_kill":
                        return int(count)
        except (OSError, ValueError):
            pass
        return 0

    def out_of_memory(self) -> bool:
        """Where the memory controller counts."""
        return self._oom_kills() > self._oom_before

    def entrance(self) -> int | None:
        """The leaf's list of processes."""
        return os.open(os.path.join(self._job, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)

    def remove(self) -> None:
        """The leaf is empty; the keeper's own goes with the keeper, by the agent."""
        with contextlib.suppress(OSError):
            os.rmdir(self._job)
