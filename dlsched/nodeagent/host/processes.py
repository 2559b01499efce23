"""Processes as /proc shows them: their identity, their descendants, their runs.

The kernel uses process ids again: only boot id, process id and start time name one process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dlsched.nodeagent.host import cgroups
from dlsched.protocol.messages import RunId
from dlsched.system import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process of one boot; no other process has the same identity."""

    boot_id: str
    pid: int
    start: int  # field 22 of /proc/PID/stat, clock ticks since the boot

    def is_alive(self) -> bool:
        """Whether the process runs; a zombie does not."""
        if self.boot_id != clock.boot_id():
            return False
        found = stat(self.pid)
        return found is not None and found.start == self.start and found.state not in "ZX"

    def open(self) -> int | None:
        """Return a descriptor of the process; None when it has ended."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.is_alive():  # checked while the descriptor holds the id
            return fd
        os.close(fd)
        return None

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """Signal the process; return whether it was there."""
        fd = self.open()
        if fd is None:
            return False
        try:
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says."""

    pid: int
    state: str
    parent: int
    session: int
    start: int


def stat(pid: int | str) -> Stat | None:
    """Return the state of a process; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    head, _, tail = text.rpartition(b")")  # a name may contain anything
    words = tail.split()
    if len(words) < 20:
        return None
    return Stat(
        int(head.split(b" ", 1)[0]), words[0].decode(), int(words[1]), int(words[3]), int(words[19])
    )


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    found = stat(pid)
    return found is not None and found.state in "Tt"


def identity(pid: int) -> Identity | None:
    """Return the identity of a process; None when there is no such process."""
    found = stat(pid)
    if found is None:
        return None
    return Identity(boot_id=clock.boot_id(), pid=pid, start=found.start)


def all_processes() -> Iterator[Stat]:
    """Give every process that this process's /proc shows."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(name)
            if found is not None:
                yield found


def socket_inodes(pid: int) -> Iterator[str]:
    """Give the inodes of the sockets that a process has open.

    Raises:
        OSError: the process has ended, or is another user's.
    """
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        target = os.readlink(f"{folder}/{name}")
        if target.startswith("socket:["):
            yield target[8:-1]


def open_files(pid: int) -> set[str]:
    """Return the paths of the files that a process has open; none of one that cannot be read."""
    folder, found = f"/proc/{pid}/fd", set()
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # it has just been closed
                found.add(os.readlink(f"{folder}/{name}"))
    return found


def descendants(root: int) -> list[Stat]:
    """Return the live descendants of a process; for a subreaper they are complete."""
    children: dict[int, list[Stat]] = {}
    for each in all_processes():
        children.setdefault(each.parent, []).append(each)
    found: list[Stat] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(), ()):
            queue.append(child.pid)
            if child.state not in "ZX":
                found.append(child)
    return found


def send(targets: Iterable[Stat], number: int) -> None:
    """Signal processes, each only if its id still names the same process."""
    for target in targets:
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(target.pid)
            try:
                again = stat(target.pid)
                if again is not None and again.start == target.start:
                    signal.pidfd_send_signal(fd, number)
            finally:
                os.close(fd)


def catches(pid: int, number: int) -> bool:
    """Whether a process has its own handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False


def start_of_stack(pid: int) -> int:
    """Return where a process's stack begins, the same address for copies by fork alone.

    -1: not known.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[25]) or -1
    except (OSError, IndexError):
        return -1


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def runs_of(
    pids: Iterable[int], keepers: Mapping[RunId, int], cgroup_of: Mapping[RunId, str]
) -> dict[int, RunId | None]:
    """Return the run of each process, by cgroup, namespace and ancestors; None for no run.

    Process ids are those of the machine's namespace.
    """
    wanted = set(pids)
    if not wanted:
        return {}
    own = _namespace(os.getpid())
    by_namespace = {_namespace(pid): run for run, pid in keepers.items()}
    by_namespace.pop(own, None)
    by_cgroup = {pid: run for run, path in cgroup_of.items() for pid in cgroups.members(path)}
    by_keeper = {pid: run for run, pid in keepers.items()}
    found: dict[int, RunId | None] = {}
    for pid in wanted:
        found[pid] = by_cgroup.get(pid) or by_namespace.get(_namespace(pid))
        at: int | None = pid
        while found[pid] is None and at is not None and at > 1:  # up to its keeper
            found[pid] = by_keeper.get(at)
            parent = stat(at)
            at = parent.parent if parent is not None else None
    return found
