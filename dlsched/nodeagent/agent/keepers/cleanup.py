"""What keepers leave behind: files of runs that are over, processes of keepers that were lost.

A process of a job carries its run's id in its environment from its start. That mark, its session
and its parents name its run even where there is no namespace and no cgroup. A process that has shed
all three is not found here (the launcher then does not claim `fence`), but shows as a foreign
process on a GPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

from dlsched.nodeagent.host import cgroups, processes
from dlsched.nodeagent.host.listeners import listening_keepers
from dlsched.nodeagent.keeper.run_files import FoundRun, RunFolder, run_in, socket_folder
from dlsched.system import files
from dlsched.system.fault_points import fault_point

_DROPPED = "dropped."
_AGAIN_S, _CGROUP_TRIES = 0.05, 100


# -- files -----------------------------------------------------------------------------------------


def delete_runs(folders: Iterable[RunFolder]) -> None:
    """Delete the files of runs; `remaining_runs` finishes a deletion that a crash has cut short.

    What is half deleted is named so, durably, before the first file of its records is gone.
    """
    fault_point("agent-drop-before")
    doomed = []
    for folder in folders:
        shutil.rmtree(folder.sockets, ignore_errors=True)
        parent, name = os.path.split(folder.records)
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder.records, os.path.join(parent, _DROPPED + name))
            doomed.append(os.path.join(parent, _DROPPED + name))
    for parent in {os.path.dirname(path) for path in doomed}:
        files.sync_folder(parent)
    fault_point("agent-drop-half")
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)
    fault_point("agent-drop-after")


def remaining_runs(state_dir: str, run_dir: str) -> Iterator[FoundRun]:
    """Give every reserved run on disk; delete what was never reserved or is half deleted.

    Called only while no keeper is about to reserve its run.

    Raises:
        BadInput: with the file that cannot be read.
    """
    jobs = os.path.join(state_dir, "jobs")
    known = set()
    for name in sorted(os.listdir(jobs)):
        path = os.path.join(jobs, name)
        if name.startswith(_DROPPED) or not os.path.exists(os.path.join(path, "run.json")):
            shutil.rmtree(path, ignore_errors=True)
            continue
        found = run_in(path)
        if found is not None:
            known.add(socket_folder(name))
            yield found
    sockets = os.path.join(run_dir, "jobs")
    for name in os.listdir(sockets):
        if name not in known:
            shutil.rmtree(os.path.join(sockets, name), ignore_errors=True)


async def remove_cgroup(
    path: str, in_thread: Callable[[Callable[[str], bool], str], Awaitable[bool]]
) -> None:
    """Remove a run's cgroup; the next start of the agent removes one that remains."""
    for _ in range(_CGROUP_TRIES if path else 0):
        if await in_thread(cgroups.remove, path):
            break
        await asyncio.sleep(_AGAIN_S)  # its keeper is just ending


def wake_keepers(run_dir: str) -> list[tuple[int, str]]:
    """Have each live keeper write its files again; return their ids and folders of sockets."""
    jobs = os.path.join(os.path.abspath(run_dir), "jobs")
    found = [(each, path) for each, path in listening_keepers(jobs) if "/keeper" in path]
    processes.send((each for each, _ in found), signal.SIGHUP)
    return [(each.pid, os.path.dirname(path)) for each, path in found]


def without_records(keepers: Iterable[tuple[int, str]], state_dir: str) -> list[tuple[int, str]]:
    """Return the keepers, with their folders of sockets, whose runs are not on disk."""
    jobs = os.path.join(state_dir, "jobs")
    recorded = {
        socket_folder(name)
        for name in os.listdir(jobs)
        if os.path.exists(os.path.join(jobs, name, "run.json"))
    }
    return [(pid, path) for pid, path in keepers if os.path.basename(path) not in recorded]


# -- processes -------------------------------------------------------------------------------------


def _environment(pid: int) -> list[bytes]:
    """Return the environment with which a process was started; empty when it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def leftovers(run: FoundRun, node: str) -> list[processes.Stat]:
    """Return the live processes of a run that has lost its keeper, in order of id.

    Two nodes may share a machine: only processes of `node` are returned.
    """
    own = os.getpid()
    run_id = run.file.desired.key.run_id
    marks = {f"DLSCHED_RUN_ID={run_id}".encode(), f"DLSCHED_NODE={node}".encode()}
    alive = {
        each.pid: each
        for each in processes.all_processes()
        if each.state not in "ZX" and each.pid not in (1, own)
    }
    found = {pid for pid in alive if marks <= set(_environment(pid))}
    found |= {pid for pid in cgroups.members(run.file.facts.cgroup) if pid in alive}
    sessions = {alive[pid].session for pid in found}
    grown = True
    while grown:  # the children of what was found, and its sessions
        more = {
            pid
            for pid, each in alive.items()
            if pid not in found and (each.parent in found or each.session in sessions)
        }
        grown = bool(more)
        found |= more
    return [alive[pid] for pid in sorted(found)]


def kill_leftovers(run: FoundRun, node: str) -> list[processes.Stat]:
    """Kill a lost keeper's processes once; return those that were signalled, perhaps still there.

    Call it again until it returns none.
    """
    if run.file.facts.cgroup:
        with contextlib.suppress(OSError):
            cgroups.write(run.file.facts.cgroup, "cgroup.kill", "1")
    processes.send(leftovers(run, node), signal.SIGSTOP)  # none forks while the others die
    members = leftovers(run, node)
    processes.send(members, signal.SIGKILL)
    return members


def kill_strays(run_dir: str, known: Collection[str]) -> list[processes.Stat]:
    """Kill processes of this node's runs other than the known ones; return those signalled.

    A run without a record has no keeper either, so how it ended will never be known.
    """
    socket = f"DLSCHED_CTL_SOCK={os.path.join(os.path.abspath(run_dir), 'jobs')}/".encode()
    strays = []
    for each in processes.all_processes():
        words = _environment(each.pid) if each.state not in "ZX" else []
        if any(word.startswith(socket) for word in words):
            run_id = next((w[15:] for w in words if w.startswith(b"DLSCHED_RUN_ID=")), b"")
            if run_id.decode("ascii", "replace") not in known:
                strays.append(each)
    processes.send(strays, signal.SIGKILL)
    return strays
