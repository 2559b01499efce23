"""The processes of a quickstart: started in sessions of their own, ended with all their children.

This process adopts the orphans of its children (PR_SET_CHILD_SUBREAPER), so that processes which a
killed agent leaves are found as its descendants. A process is identified by its id and its start
time, so that a later process with the same id is never signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
Identity = tuple[int, int]  # process id, start in clock ticks since boot


def adopt_orphans() -> None:
    """Become the parent of descendants that lose their parent."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(words: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    """Start a service and return its process id; its output goes to a file."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        words[0],
        list(words),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def identity(pid: int) -> Identity | None:
    """Return the identity of a live process; None if there is none, or only a zombie."""
    found = _stat(pid)
    return None if found is None or found[0] == "Z" else (pid, found[2])


def below(pid: int) -> list[Identity]:
    """Return all live descendants of a process, parents first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _stat(int(name))) is not None:
            children.setdefault(found[1], []).append(int(name))
    ordered, todo = [], [pid]
    while todo:
        for child in children.get(todo.pop(0), []):
            todo.append(child)
            if (known := identity(child)) is not None:
                ordered.append(known)
    return ordered


def end(targets: Iterable[Identity], grace_s: float) -> None:
    """Send TERM, and after `grace_s` seconds KILL to the processes that are left."""
    left = list(targets)
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        for pid, began in left:
            if identity(pid) == (pid, began):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            reap()
            left = [each for each in left if identity(each[0]) == each]
            if not left:
                return
            time.sleep(0.02)


def reap() -> None:
    """Collect the exit statuses of ended children."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _stat(pid: int) -> tuple[str, int, int] | None:
    """Return state, parent and start time of a process; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), int(fields[19])
