"""Which run a process belongs to, whatever it has done to hide it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from dlsched.nodeagent import leftovers, process
from dlsched.protocol.messages import RunId


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def owners(
    pids: Iterable[int], keepers: Mapping[RunId, int], cgroups: Mapping[RunId, str]
) -> dict[int, RunId | None]:
    """The run of each process; None: nobody's here.

    Args:
        pids: as the machine has them.
        keepers: process ids of the keepers.
        cgroups: of runs that have one.
    """
    wanted = set(pids)
    if not wanted:
        return {}
    own = _namespace(os.getpid())
    by_namespace = {_namespace(pid): run for run, pid in keepers.items()}
    by_namespace.pop(own, None)
    by_cgroup = {
        pid: run for run, path in cgroups.items() for pid in leftovers.cgroup_members(path)
    }
    by_keeper = {pid: run for run, pid in keepers.items()}
    found: dict[int, RunId | None] = {}
    for pid in wanted:
        found[pid] = by_cgroup.get(pid) or by_namespace.get(_namespace(pid))
        at: int | None = pid
        while found[pid] is None and at is not None and at > 1:  # up to its keeper
            found[pid] = by_keeper.get(at)
            parent = process.stat(at)
            at = parent.parent if parent is not None else None
    return found
