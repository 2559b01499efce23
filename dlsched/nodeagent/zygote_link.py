"""The agent's side of its zygote: starts it, asks it for keepers.

Started before anything else: the zygote inherits no thread, no channel and no lock of the agent but
the spawning lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import dlsched
from dlsched.core.errors import DlschedError
from dlsched.nodeagent.faultpoint import faultpoint
from dlsched.nodeagent.plainjson import dumps
from dlsched.nodeagent.spec import KeeperSpec

_WAIT_FOR_PREDECESSOR_S = 20.0


class CannotSpawn(DlschedError):
    """There can be no keeper now."""


@dataclass(frozen=True, slots=True)
class Born:
    """A new keeper."""

    pid: int
    handle: int  # descriptor of the process
    connection: socket.socket


def lock(path: str, *, wait_s: float = 0.0) -> int:
    """Hold a file's lock alone.

    Raises:
        CannotSpawn: when another process has it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(fd)
                raise CannotSpawn(f"another agent runs here: {path} is locked") from None
            time.sleep(0.005)
        else:
            return fd


class ZygoteLink:
    """One zygote, for the life of the agent."""

    def __init__(self, run_dir: str) -> None:
        """Wait until a predecessor's unborn keepers are on disk or dead, then start.

        Raises:
            CannotSpawn: when they are neither in good time, or the zygote does not come up.
        """
        spawning = lock(os.path.join(run_dir, "spawning.lock"), wait_s=_WAIT_FOR_PREDECESSOR_S)
        fcntl.flock(spawning, fcntl.LOCK_SH)  # the zygote's from here on: one open file, shared
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-S", "-OO", "-m", "dlsched.nodeagent.zygote"),
                *(str(theirs.fileno()), str(spawning)),
            ],
            pass_fds=(theirs.fileno(), spawning),
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=environment(),
        )
        theirs.close()
        self.spawning = spawning  # for units, which it is handed to; held shared, it hinders nobody
        ours.settimeout(30)
        hello = ours.recv(4096)
        if not hello:
            raise CannotSpawn("the zygote did not start")
        self.namespaces = bool(json.loads(hello)["namespaces"])
        ours.setblocking(False)
        self._socket = ours
        self._turn = asyncio.Lock()
        self._count = 0

    async def spawn(self, spec: KeeperSpec) -> Born:
        """Make a keeper.

        Raises:
            CannotSpawn: when there is none.
        """
        faultpoint("agent-spawn-before")
        memory = os.memfd_create("dlsched-spec", os.MFD_CLOEXEC)
        ours, theirs = socket.socketpair()
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(dumps(spec))
            os.lseek(memory, 0, os.SEEK_SET)
            async with self._turn:
                self._count += 1
                request = json.dumps({"id": self._count, "namespace": spec.namespace}).encode()
                try:
                    socket.send_fds(self._socket, [request], [memory, theirs.fileno()])
                    answer, handles = await answer_of(self._socket, "the zygote")
                except OSError as error:
                    raise CannotSpawn(f"the zygote is gone: {error.strerror}") from None
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(memory)
            theirs.close()
        faultpoint("agent-spawn-after")
        if "pid" not in answer or not handles:
            ours.close()
            raise CannotSpawn(f"no process for a keeper: {answer.get('failed', 'no answer')}")
        return Born(int(answer["pid"]), handles[0], ours)

    def close(self) -> None:
        """Let the zygote end; keepers stay."""
        self._socket.close()
        os.close(self.spawning)
        self._process.wait(timeout=10)


async def answer_of(line: socket.socket, who: str) -> tuple[dict[str, int], list[int]]:
    """What a maker of keepers answers, with the process it has made.

    Raises:
        CannotSpawn: when it does not.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    loop.add_reader(line.fileno(), _once, arrived)
    try:
        await asyncio.wait_for(arrived, 30)
    except TimeoutError:
        raise CannotSpawn(f"{who} does not answer") from None
    finally:
        loop.remove_reader(line.fileno())
    data, handles, _, _ = socket.recv_fds(line, 4096, 1)
    if not data:
        raise CannotSpawn(f"{who} is gone")
    return json.loads(data), handles


def _once(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def environment() -> dict[str, str]:
    """A keeper's: of the agent's own only what an interpreter and a test need; never a job's."""
    kept = ("PATH", "LD_LIBRARY_PATH")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    found |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "1"}  # no locale is loaded
    # without `site`, whose imports cost every keeper memory: one folder is enough
    found["PYTHONPATH"] = str(Path(dlsched.__file__).parents[1])
    found["MALLOC_ARENA_MAX"] = "1"
    if "DLSCHED_FAULTPOINT" in os.environ:
        found["DLSCHED_FAULTPOINT"] = os.environ["DLSCHED_FAULTPOINT"]
    return found
