"""Which keepers are being started: the lock that they hold until their run is on disk.

The zygote, and each keeper that has not recorded its run yet, hold `RUN/spawning.lock` shared. A
zygote has a lock of its own, opened anew for it; the agent keeps none. So a zygote and the keepers
that it had begun can be waited for, named and ended, by their agent or by the next one.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Callable

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.host import processes

ZYGOTE_NAME = "dls-zygote"
_OURS = "dls-"  # how the names of zygotes, units and keepers begin
_PATIENCE_S = 15.0  # for a keeper that writes its record to a slow disk
_KILLED_S = 5.0  # until a killed process has ended
_LOOK_S = 0.01


class CannotStartKeeper(DlschedError):
    """No keeper can be started now."""


def lock_path(run_dir: str) -> str:
    """Return the path of the lock."""
    return os.path.join(os.path.abspath(run_dir), "spawning.lock")


def lock_file(path: str, *, wait_s: float = 0.0) -> int:
    """Lock a file for this process alone; return its open descriptor, which holds the lock.

    Raises:
        CannotStartKeeper: when another process still has the lock after `wait_s` seconds.
    """
    fd = _open(path)
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(fd)
                raise CannotStartKeeper(f"another agent runs here: {path} is locked") from None
            time.sleep(0.005)
        else:
            return fd


def shared_lock(run_dir: str) -> int:
    """Lock shared; return an open descriptor, to be passed on to a zygote or a unit.

    Raises:
        CannotStartKeeper: an agent is just starting here.
    """
    path = lock_path(run_dir)
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise CannotStartKeeper(f"another agent starts here: {path} is locked") from None
    return fd


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


async def settle(run_dir: str) -> None:
    """Wait until every keeper that was being started is on disk or dead.

    Called when no agent uses the zygote that began them any more: it is killed, if it is there. A
    keeper that is not on disk after a while is killed too: its job has not begun.

    Raises:
        CannotStartKeeper: names a process that outlives SIGKILL.
    """
    path = lock_path(run_dir)

    def zygotes() -> list[processes.Stat]:
        return [each for each in holders(path) if _name(each) == ZYGOTE_NAME]

    await _end(zygotes, 0.0, path)
    begun = {(each.pid, each.start) for each in holders(path)}  # units begin others meanwhile

    def left() -> list[processes.Stat]:
        return [each for each in holders(path) if (each.pid, each.start) in begun]

    await _end(left, _PATIENCE_S, path)


async def _end(left: Callable[[], list[processes.Stat]], patience_s: float, path: str) -> None:
    since = time.monotonic()
    killed: set[tuple[int, int]] = set()  # one may record its run and let go before it is dead
    while held := [*left(), *(each for each in map(_alive, killed) if each is not None)]:
        late = time.monotonic() - since - patience_s
        if late > _KILLED_S:
            names = ", ".join(f"{each.pid} ({_name(each)}, state {each.state})" for each in held)
            raise CannotStartKeeper(f"{path} is locked by process {names}, which outlives SIGKILL")
        if late >= 0:
            processes.send(held, signal.SIGKILL)
            killed |= {(each.pid, each.start) for each in held}
        await asyncio.sleep(_LOOK_S)


def holders(path: str) -> list[processes.Stat]:
    """Return the zygotes, units and keepers other than this process that hold the lock."""
    wanted = os.path.realpath(path)
    return [
        each
        for each in processes.all_processes()
        if each.pid != os.getpid()
        and _name(each).startswith(_OURS)
        and wanted in processes.open_files(each.pid)
    ]


def _alive(known: tuple[int, int]) -> processes.Stat | None:
    """Return a process that was known by its id and start, if it is still there."""
    found = processes.stat(known[0])
    return found if found and found.start == known[1] and found.state not in "ZX" else None


def _name(process: processes.Stat) -> str:
    try:
        with open(f"/proc/{process.pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""
