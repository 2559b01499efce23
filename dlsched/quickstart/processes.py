"""The processes of a quickstart: started in sessions of their own, ended with all they have left.

This process adopts the orphans of its children (PR_SET_CHILD_SUBREAPER), so whatever a killed agent
leaves behind is still found below it. A process is known by its id and its start, so that another
one that has got the same id is never touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["Identity", "adopt_orphans", "below", "end", "identity", "reap", "start"]

PR_SET_CHILD_SUBREAPER = 36
Identity = tuple[int, int]  # process id, start in clock ticks since boot


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(words: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    """Start a service; what it says goes to a file. `reap` waits for it."""
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
    """A live process; None when there is none, or only its remains."""
    found = _stat(pid)
    return None if found is None or found[0] == "Z" else (pid, found[2])


def below(pid: int) -> list[Identity]:
    """All live descendants of a process, parents first."""
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
    """TERM, and KILL to those that are still there after a while."""
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
    """Let ended children go."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and start of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), int(fields[19])
