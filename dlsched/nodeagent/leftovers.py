"""What a lost keeper may have left: found by cgroup, namespace, ancestry and mark; killed.

A process carries its run's id in its environment from birth. That, its session and its parents tell
it even where no namespace and no cgroup does; a process that has shed all three is not found here
(the launcher says so: no `fence`), but shows as a foreign one on a GPU.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection

from dlsched.nodeagent import process
from dlsched.nodeagent.runfiles import FoundRun


def _marked(pid: int, marks: set[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marks <= set(file.read().split(b"\0"))
    except OSError:
        return False


def find(run: FoundRun, node: str) -> list[process.Stat]:
    """The live processes of a run whose keeper is gone; of this node, if two share a machine."""
    own = os.getpid()
    run_id = run.file.desired.key.run_id
    marks = {f"DLSCHED_RUN_ID={run_id}".encode(), f"DLSCHED_NODE={node}".encode()}
    everything = {
        each.pid: each
        for each in process.all_processes()
        if each.state not in "ZX" and each.pid not in (1, own)
    }
    found = {pid for pid in everything if _marked(pid, marks)}
    found |= {pid for pid in cgroup_members(run.file.facts.cgroup) if pid in everything}
    sessions = {everything[pid].session for pid in found}
    grown = True
    while grown:  # children of what was found, and its sessions
        more = {
            pid
            for pid, each in everything.items()
            if pid not in found and (each.parent in found or each.session in sessions)
        }
        grown = bool(more)
        found |= more
    return [everything[pid] for pid in sorted(found)]


def cgroup_members(path: str) -> set[int]:
    """The processes in a run's cgroup."""
    found: set[int] = set()
    for leaf in ("job", "keeper"):
        try:
            with open(os.path.join(path, leaf, "cgroup.procs"), encoding="ascii") as file:
                found |= {int(line) for line in file}
        except (OSError, ValueError):
            continue
    return found if path else set()


def kill(run: FoundRun, node: str) -> list[process.Stat]:
    """Kill what there is; what is still there, to be killed again."""
    if run.file.facts.cgroup:
        with contextlib.suppress(OSError):
            path = os.path.join(run.file.facts.cgroup, "cgroup.kill")
            with open(path, "w", encoding="ascii") as file:
                file.write("1")
    members = find(run, node)
    process.send(members, signal.SIGSTOP)  # none forks while the others die
    members = find(run, node)
    process.send(members, signal.SIGKILL)
    return members


def remove_cgroup(path: str) -> bool:
    """The run's cgroup, once it is empty; a unit's is systemd's. Whether none is left."""
    if not path or path.endswith(".service"):
        return True
    for leaf in ("job", "keeper", ""):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(path, leaf))
    return not os.path.exists(path)


def sweep_cgroups(root: str, known: Collection[str]) -> None:
    """Remove what is empty of runs that are no more."""
    with contextlib.suppress(OSError):
        for name in os.listdir(root):
            path = os.path.join(root, name)
            if os.path.isdir(path) and path not in known:
                remove_cgroup(path)
