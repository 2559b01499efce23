"""The agent's side of its zygote: starts it and has it fork keepers.

The zygote is started before anything else: it inherits no thread, no channel and no lock of the
agent but the spawning lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dlsched
from dlsched.core.errors import DlschedError
from dlsched.nodeagent.json_values import dumps
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec
from dlsched.system.fault_points import fault_point

ZYGOTE = (sys.executable, "-S", "-OO", "-m", "dlsched.nodeagent.keeper.zygote")
_WAIT_FOR_PREDECESSOR_S = 20.0
_ANSWER_S = 30.0


class CannotStartKeeper(DlschedError):
    """No keeper can be started now."""


@dataclass(frozen=True, slots=True)
class StartedKeeper:
    """A new keeper's process, and the agent's end of the connection to it."""

    pid: int
    process_fd: int
    connection: socket.socket


def lock_file(path: str, *, wait_s: float = 0.0) -> int:
    """Lock a file for this process alone; return its open descriptor, which holds the lock.

    Raises:
        CannotStartKeeper: when another process still has the lock after `wait_s` seconds.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


class ZygoteLink:
    """One zygote, as long as the agent runs."""

    def __init__(self, run_dir: str) -> None:
        """Wait until the keepers that a predecessor was starting are on disk or dead, then start.

        Raises:
            CannotStartKeeper: when that takes too long, or the zygote does not start.
        """
        spawning = lock_file(os.path.join(run_dir, "spawning.lock"), wait_s=_WAIT_FOR_PREDECESSOR_S)
        fcntl.flock(spawning, fcntl.LOCK_SH)  # shared with the zygote: it is one open file
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rehearsal = os.path.join(os.path.abspath(run_dir), "rehearsal")
        shutil.rmtree(rehearsal, ignore_errors=True)  # of a predecessor that was killed
        os.mkdir(rehearsal, 0o700)
        self._process = subprocess.Popen(
            [*ZYGOTE, str(theirs.fileno()), str(spawning), rehearsal],
            pass_fds=(theirs.fileno(), spawning),
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=keeper_environment(),
        )
        theirs.close()
        self.spawning_lock = spawning
        ours.settimeout(_ANSWER_S)
        hello = ours.recv(4096)
        shutil.rmtree(rehearsal, ignore_errors=True)
        if not hello:
            raise CannotStartKeeper("the zygote did not start")
        self.has_namespaces = bool(json.loads(hello)["namespaces"])
        ours.setblocking(False)
        self._socket = ours
        self._one_at_a_time = asyncio.Lock()

    async def start_keeper(self, spec: KeeperSpec) -> StartedKeeper:
        """Have a keeper forked.

        Raises:
            CannotStartKeeper: when it cannot be.
        """
        fault_point("agent-spawn-before")
        async with self._one_at_a_time:
            started = await request_keeper(self._socket, spec, "the zygote")
        fault_point("agent-spawn-after")
        return started

    def close(self) -> None:
        """Let the zygote end; its keepers stay."""
        self._socket.close()
        os.close(self.spawning_lock)
        self._process.wait(timeout=10)


async def request_keeper(
    line: socket.socket, spec: KeeperSpec, maker: str, more_fds: Sequence[int] = ()
) -> StartedKeeper:
    """Send a spec to a process that forks keepers; return the keeper that it has forked.

    The spec has a user's environment in it, so it goes in a file that exists in memory only.

    Args:
        line: the connection to that process.
        spec: of the keeper.
        maker: that process, in words for an error.
        more_fds: descriptors for it beside the spec and the keeper's connection.

    Raises:
        CannotStartKeeper: when there is no keeper.
    """
    memory = os.memfd_create("dlsched-spec", os.MFD_CLOEXEC)
    ours, theirs = socket.socketpair()
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(dumps(spec))
        os.lseek(memory, 0, os.SEEK_SET)
        request = json.dumps({"namespace": spec.namespace}).encode()
        socket.send_fds(line, [request], [memory, theirs.fileno(), *more_fds])
        answer, fds = await _answer(line, maker)
        if "pid" not in answer or not fds:
            why = answer.get("failed", "no answer")
            raise CannotStartKeeper(f"no process for a keeper: {why}")
    except OSError as error:
        ours.close()
        raise CannotStartKeeper(f"{maker} is gone: {error.strerror}") from None
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(memory)
        theirs.close()
    return StartedKeeper(int(answer["pid"]), fds[0], ours)


async def _answer(line: socket.socket, maker: str) -> tuple[dict[str, int], list[int]]:
    """Return the answer of a process that forks keepers, and the descriptors sent with it."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    loop.add_reader(line.fileno(), _resolve, arrived)
    try:
        await asyncio.wait_for(arrived, _ANSWER_S)
    except TimeoutError:
        raise CannotStartKeeper(f"{maker} does not answer") from None
    finally:
        loop.remove_reader(line.fileno())
    data, fds, _, _ = socket.recv_fds(line, 4096, 1)
    if not data:
        raise CannotStartKeeper(f"{maker} is gone")
    return json.loads(data), fds


def _resolve(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def keeper_environment() -> dict[str, str]:
    """Return a keeper's own environment: what an interpreter and a test need, nothing of a job."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DLSCHED_FAULTPOINT")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    found |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "1"}  # no locale is loaded
    # `-S`: the imports of `site` would cost every keeper memory, and one folder is enough.
    found["PYTHONPATH"] = str(Path(dlsched.__file__).parents[1])
    found["MALLOC_ARENA_MAX"] = "1"
    return found
