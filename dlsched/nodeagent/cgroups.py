"""The unified cgroup hierarchy: where this process is in it, and a run's two leaves.

`keeper` holds the keeper and `job` all of its job, so that the job can be frozen and killed alone.
"""

from __future__ import annotations

import contextlib
import os

LEAVES = ("keeper", "job")


def cgroup_mount() -> str:
    """Where the unified hierarchy is mounted; empty: nowhere."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            head, _, tail = line.partition(" - ")
            if tail.startswith("cgroup2 "):
                return head.split()[4]
    return ""


def own_cgroup() -> str:
    """The path of this process's cgroup in the unified hierarchy."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].strip()
    return "/"


def controllers(path: str) -> tuple[str, ...]:
    """Which a cgroup may use."""
    try:
        with open(os.path.join(path, "cgroup.controllers"), encoding="ascii") as file:
            return tuple(file.read().split())
    except OSError:
        return ()


def make_leaves(path: str) -> None:
    """Make a run's leaves.

    Raises:
        OSError: when they cannot be made.
    """
    for leaf in LEAVES:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(path, leaf))


def write(path: str, name: str, value: str) -> None:
    """Set one thing.

    Raises:
        OSError: when the kernel refuses.
    """
    with open(os.path.join(path, name), "w", encoding="ascii") as file:
        file.write(value)


def enable(path: str, names: tuple[str, ...]) -> None:
    """Let the cgroups below use controllers, those that can be."""
    for each in names:
        with contextlib.suppress(OSError):
            write(path, "cgroup.subtree_control", f"+{each}")


def settle_in_unit(unit: str) -> None:
    """Lay out the cgroup of the unit that this process is in, and move into its keeper's leaf.

    Raises:
        OSError: when it was not handed over to the unit.
    """
    path = os.path.normpath(cgroup_mount() + "/" + own_cgroup())
    if os.path.basename(path) != unit:
        return  # no unified hierarchy: the keeper does without
    make_leaves(path)
    write(os.path.join(path, "keeper"), "cgroup.procs", "0")
    enable(path, ("memory",))  # its counters say whether the job was killed for want of memory
    with contextlib.suppress(OSError):
        write(os.path.join(path, "job"), "memory.oom.group", "1")
