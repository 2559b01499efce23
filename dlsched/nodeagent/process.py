"""Processes as they are in /proc: who is who, who descends from whom.

A process is never meant by its bare id: (boot id, id, start time) names it for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dlsched.nodeagent import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process of one boot, told from any other that had or will have its id."""

    boot_id: str
    pid: int
    start: int  # field 22 of /proc/PID/stat, clock ticks since the boot

    def is_alive(self) -> bool:
        """Whether it runs; one that has ended and was not reaped does not."""
        if self.boot_id != clock.boot_id():
            return False
        found = stat(self.pid)
        return found is not None and found.start == self.start and found.state not in "ZX"

    def open(self) -> int | None:
        """A descriptor of the process; None when it is gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.is_alive():  # checked while the descriptor holds the id
            return fd
        os.close(fd)
        return None

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """Signal it; whether it was there."""
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
    """What is known of a process; None when there is none."""
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


def identity(pid: int) -> Identity | None:
    """The identity of a live process."""
    found = stat(pid)
    if found is None:
        return None
    return Identity(boot_id=clock.boot_id(), pid=pid, start=found.start)


def all_processes() -> Iterator[Stat]:
    """Every process that this one's /proc shows."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(name)
            if found is not None:
                yield found


def descendants(root: int) -> list[Stat]:
    """The live descendants of a process; complete for a subreaper."""
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
    """Signal processes, each only if it is still the one that was seen."""
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
    """Whether a process has a handler of its own for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False
