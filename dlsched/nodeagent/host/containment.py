"""How a keeper reaches all processes of its job, and no others.

There are three ways, strongest first: a cgroup; a process-id namespace with the keeper as its first
process; and the tree of its descendants, which is complete because the keeper is a subreaper.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from dlsched.nodeagent.host import cgroups, processes
from dlsched.system import clock


class Containment:
    """All processes of a job: here the keeper's descendants, found in /proc.

    Attributes:
        spared: ids of the keeper's children that serve the job and are none of its processes.
    """

    def __init__(self) -> None:
        """Spare none."""
        self.spared: set[int] = set()

    def members(self) -> list[processes.Stat]:
        """Return the live descendants."""
        return [each for each in processes.descendants(os.getpid()) if each.pid not in self.spared]

    def send(self, number: int) -> None:
        """Signal every descendant."""
        processes.send(self.members(), number)

    def kill(self) -> None:
        """Kill every process; called again until there is none."""
        processes.send(self.members(), signal.SIGSTOP)  # none forks while the others die
        processes.send(self.members(), signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend every process."""
        known: set[int] = set()
        for _ in range(16):  # until no new process is found
            members = self.members()
            processes.send(members, signal.SIGSTOP)
            found = {each.pid for each in members}
            if found <= known:
                return
            known = found

    def stands_still(self) -> bool:
        """Whether every process is suspended or dead, after a freeze."""
        return all(each.state in "TtZX" for each in self.members())

    def settles(self, limit_s: float) -> bool:
        """Wait until every process stands still after a freeze; whether they do in time."""
        deadline = clock.boottime() + limit_s
        while not self.stands_still():
            if clock.boottime() > deadline:
                return False
            self.freeze_rest()
            time.sleep(0.002)
        return True

    def freeze_rest(self) -> None:
        """Suspend what still moves after a freeze.

        A process that starts a program by vfork waits in the kernel until its child has that
        program. A child that was stopped before goes on till then; a later call stops it again.
        """
        members = self.members()
        waiting = {each.pid for each in members if each.state == "D"}
        processes.send([each for each in members if each.state not in "TtZX"], signal.SIGSTOP)
        held_up = [each for each in members if each.state == "T" and each.parent in waiting]
        processes.send(held_up, signal.SIGCONT)

    def thaw(self) -> None:
        """Let every descendant go on."""
        self.send(signal.SIGCONT)

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process because memory was short; False: not known."""
        return False

    def entrance(self) -> int | None:
        """Return a descriptor through which a child enters; None where every child is inside."""
        return None

    def remove(self) -> None:
        """Remove what the kernel has for the job, which is over."""


class Namespace(Containment):
    """Every process that this /proc shows, except the keeper, which is process 1."""

    def members(self) -> list[processes.Stat]:
        """Return every process of the namespace, also those that entered it from outside."""
        return [
            each
            for each in processes.all_processes()
            if each.pid not in (1, *self.spared) and each.state not in "ZX"
        ]

    def send(self, number: int) -> None:
        """Signal all: with one call, if none is spared."""
        if self.spared:
            super().send(number)
        else:
            self._send_all(number)

    def kill(self) -> None:
        """Kill all: one call kills or stops them, so that no process can escape by a fork."""
        if self.spared:
            self.freeze()
            super().send(signal.SIGKILL)
        else:
            self._send_all(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all with one call."""
        self._send_all(signal.SIGSTOP)
        for pid in self.spared:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _send_all(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)


class Cgroup(Containment):
    """The leaf `job` of the run's cgroup; signals go through the tree or the namespace."""

    def __init__(self, path: str, below: Containment) -> None:
        """Use the run's cgroup `path`, and `below` for what the kernel cannot do with it."""
        super().__init__()
        self.spared = below.spared  # they are in the keeper's leaf
        self._path = path
        self._below = below
        self._job = os.path.join(path, "job")
        self._oom_before = self._oom_kills()

    def members(self) -> list[processes.Stat]:
        """Return the job's processes as the keeper sees them."""
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
        """Kill the whole leaf at once; older kernels cannot, and kill each process."""
        if not self._write("cgroup.kill", "1"):
            self._below.kill()

    def freeze(self) -> None:
        """Freeze the whole leaf at once."""
        if not self._write("cgroup.freeze", "1"):
            self._below.freeze()

    def stands_still(self) -> bool:
        """Whether the kernel says that the leaf is frozen, or every process is stopped."""
        return cgroups.is_frozen(self._job) or self._below.stands_still()

    def freeze_rest(self) -> None:
        """Wait for the kernel, which freezes what starts a program, too."""
        if not self._write("cgroup.freeze", "1"):
            self._below.freeze_rest()

    def thaw(self) -> None:
        """Thaw the whole leaf at once."""
        if not self._write("cgroup.freeze", "0"):
            self._below.thaw()

    def _oom_kills(self) -> int:
        try:
            with open(os.path.join(self._job, "memory.events"), encoding="utf-8") as file:
                for line in file:
                    name, _, count = line.partition(" ")
                    if name == "oom_kill":
                        return int(count)
        except (OSError, ValueError):
            pass
        return 0

    def out_of_memory(self) -> bool:
        """Whether the memory controller has counted a kill since the start."""
        return self._oom_kills() > self._oom_before

    def entrance(self) -> int | None:
        """Return a descriptor of the leaf's list of processes."""
        return os.open(os.path.join(self._job, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)

    def remove(self) -> None:
        """Remove the empty leaf; the agent removes the keeper's own after its end."""
        with contextlib.suppress(OSError):
            os.rmdir(self._job)


def containment_of(cgroup: str, namespace: bool) -> Containment:
    """Return the strongest way to reach all processes of a job of this process.

    This process moves into the leaf `keeper` of its cgroup, if it has one, out of what is frozen
    and killed; `namespace` says that it is the first of a process-id namespace. Unless it is, it
    reaches its descendants only: `kill(-1)` would reach every process of the machine.

    Raises:
        OSError: when this process cannot enter the cgroup.
    """
    below = Namespace() if namespace and os.getpid() == 1 else Containment()
    if not cgroup:
        return below
    cgroups.write(os.path.join(cgroup, "keeper"), "cgroup.procs", "0")
    return Cgroup(cgroup, below)
