"""The unified cgroup hierarchy (cgroup v2), and the two leaves of a run in it.

The leaf `keeper` holds the keeper, `job` all processes of its job: so these can be frozen and
killed without the keeper.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

LEAVES = ("keeper", "job")


def cgroup_mount() -> str:
    """Return where the unified hierarchy is mounted; empty when it is not."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            head, _, tail = line.partition(" - ")
            if tail.startswith("cgroup2 "):
                return head.split()[4]
    return ""


def own_cgroup() -> str:
    """Return the path of this process's cgroup in the unified hierarchy."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].strip()
    return "/"


def controllers(path: str) -> tuple[str, ...]:
    """Return the controllers that a cgroup may use."""
    try:
        with open(os.path.join(path, "cgroup.controllers"), encoding="utf-8") as file:
            return tuple(file.read().split())
    except OSError:
        return ()


def make_leaves(path: str) -> None:
    """Make the leaves of a run's cgroup.

    Raises:
        OSError: when they cannot be made.
    """
    for leaf in LEAVES:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(path, leaf))


def write(path: str, name: str, value: str) -> None:
    """Write a value to one of a cgroup's files.

    Raises:
        OSError: when the kernel refuses.
    """
    with open(os.path.join(path, name), "w", encoding="utf-8") as file:
        file.write(value)


def limit(path: str, cpus: int | None, memory_bytes: int | None) -> bool:
    """Limit the processors and the memory of a run's job from now on; None: without a limit.

    Memory beyond the limit is taken back or, where that cannot be, ends the job.

    Returns:
        Whether both limits hold; not where there is no cgroup or no controller.
    """
    if not path:
        return False
    # systemd has the limits at the unit, above the leaves
    leaf = path if path.endswith(".service") else os.path.join(path, "job")
    period = 100_000  # microseconds
    values = {
        "cpu.max": f"{cpus * period if cpus else 'max'} {period}",
        "memory.max": str(memory_bytes) if memory_bytes else "max",
    }
    holds = True
    for name, value in values.items():
        try:
            write(leaf, name, value)
        except OSError:
            holds = False
    return holds


def enable(path: str, names: tuple[str, ...]) -> None:
    """Let the cgroups below use controllers, as far as the kernel allows it."""
    for each in names:
        with contextlib.suppress(OSError):
            write(path, "cgroup.subtree_control", f"+{each}")


def divide_unit(unit: str) -> None:
    """Make the leaves in the cgroup of this process's unit, and move into the leaf `keeper`.

    Raises:
        OSError: when systemd has not delegated the cgroup to the unit.
    """
    path = os.path.normpath(cgroup_mount() + "/" + own_cgroup())
    if os.path.basename(path) != unit:
        return  # no unified hierarchy: the keeper has no cgroup
    make_leaves(path)
    write(os.path.join(path, "keeper"), "cgroup.procs", "0")
    enable(path, ("memory",))  # its counters say whether memory was short
    with contextlib.suppress(OSError):
        write(os.path.join(path, "job"), "memory.oom.group", "1")


def is_frozen(path: str) -> bool:
    """Whether the kernel says that a cgroup is frozen, itself or with one above."""
    try:
        with open(os.path.join(path, "cgroup.events"), encoding="utf-8") as file:
            return "frozen 1" in file.read().splitlines()
    except OSError:
        return False


def members(path: str) -> set[int]:
    """Return the ids of the processes in a run's cgroup; an empty path names no cgroup."""
    found: set[int] = set()
    for leaf in LEAVES if path else ():
        try:
            with open(os.path.join(path, leaf, "cgroup.procs"), encoding="utf-8") as file:
                found |= {int(line) for line in file}
        except (OSError, ValueError):
            continue
    return found


def remove(path: str) -> bool:
    """Remove a run's cgroup if it is empty; return whether it is gone. systemd removes a unit's."""
    if not path or path.endswith(".service"):
        return True
    for leaf in ("job", "keeper", ""):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(path, leaf))
    return not os.path.exists(path)


def sweep(root: str, known: Collection[str]) -> None:
    """Remove the empty cgroups in `root` except the `known` ones."""
    with contextlib.suppress(OSError):
        for name in os.listdir(root):
            path = os.path.join(root, name)
            if os.path.isdir(path) and path not in known:
                remove(path)
