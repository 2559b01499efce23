"""The agent's side of its zygote: starts it, has it fork keepers, and replaces it.

The first zygote is started before anything else: it inherits no thread, no channel and no lock of
the agent but the spawning lock.

Each request has a number, and its answer the same one. A zygote that has ended, does not answer in
time, or answers another request is killed, and another one is started. Before that, the keeper that
it may have forked meanwhile is settled: it is found on disk, and the run goes on with it, or it is
dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dlsched
from dlsched.core.errors import DlschedError
from dlsched.nodeagent.agent.keepers import spawning
from dlsched.nodeagent.agent.keepers.spawning import CannotStartKeeper
from dlsched.nodeagent.json_values import dumps
from dlsched.nodeagent.keeper.run_files import RunFolder
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec
from dlsched.system.fault_points import fault_point
from dlsched.system.log_lines import own_stderr

log = logging.getLogger(__name__)
ZYGOTE = (sys.executable, "-S", "-OO", "-m", "dlsched.nodeagent.keeper.zygote")
_STARTS_S = 30.0
_ANSWER_S = 10.0
_KILLED_S = 5.0  # until a killed zygote has ended
_AGAIN_S = 2.0  # between two tries to have a zygote
_TRIES = 2  # of one start: a zygote that has died is no reason to refuse a job
_LONGEST = 4096  # bytes of an answer


class NoAnswer(CannotStartKeeper):
    """A process that forks keepers is gone or stands still; it may have forked one."""


@dataclass(frozen=True, slots=True)
class StartedKeeper:
    """A new keeper's process, and the agent's end of the connection to it.

    Without a connection the keeper is to be found at its socket.
    """

    pid: int
    process_fd: int
    connection: socket.socket | None = None


class ZygoteLink:
    """The zygote of one agent: one at a time."""

    def __init__(self, run_dir: str) -> None:
        """Have no zygote until `begin`."""
        self.has_namespaces = False  # its keepers can have namespaces, as those of the first can
        self._run_dir = os.path.abspath(run_dir)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._numbers = itertools.count(1)
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> None:
        """Wait until the keepers that a predecessor was starting are on disk or dead, then start.

        Raises:
            CannotStartKeeper: a process of the predecessor cannot be killed, or the zygote does not
                start.
        """
        await spawning.settle(self._run_dir)
        os.close(spawning.lock_file(spawning.lock_path(self._run_dir), wait_s=1.0))
        self.has_namespaces = await self._start()

    async def _start(self) -> bool:
        """Start a zygote; return whether its keepers can have namespaces.

        Raises:
            CannotStartKeeper: it does not start, or cannot do what the first zygote could.
        """
        rehearsal = os.path.join(self._run_dir, "rehearsal")
        shutil.rmtree(rehearsal, ignore_errors=True)  # of a predecessor that was killed
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as at_end, contextlib.ExitStack() as if_failed:
            if_failed.callback(ours.close)
            with theirs:  # closed here, so that the end of the zygote is the end of the connection
                ours.setblocking(False)
                os.mkdir(rehearsal, 0o700)
                at_end.callback(shutil.rmtree, rehearsal, ignore_errors=True)
                errors = os.memfd_create("zygote-errors", os.MFD_CLOEXEC)
                at_end.callback(os.close, errors)
                self._process = process = self._spawn(theirs, rehearsal, errors)
            if_failed.callback(process.kill)
            try:
                await asyncio.wait_for(_readable(ours.fileno()), _STARTS_S)
                hello = json.loads(ours.recv(_LONGEST) or b"null")
                why = "" if hello else await _last_words(process, errors)
            except TimeoutError:
                hello, why = None, f"no answer within {_STARTS_S:g} s"
            if hello is None:
                raise CannotStartKeeper(f"the zygote did not start: {why}")
            namespaces = bool(hello["namespaces"])
            if self.has_namespaces and not namespaces:  # memory may be short for a moment
                raise CannotStartKeeper("the zygote cannot have process-id namespaces any more")
            if_failed.pop_all()
        self._socket = ours
        return namespaces

    def _spawn(
        self, connection: socket.socket, rehearsal: str, errors: int
    ) -> subprocess.Popen[bytes]:
        """Start the process of a zygote, with its end of the connection and the spawning lock."""
        with contextlib.ExitStack() as opened:
            lock = spawning.shared_lock(self._run_dir)
            opened.callback(os.close, lock)
            log = os.dup(own_stderr())
            opened.callback(os.close, log)
            return subprocess.Popen(
                [*ZYGOTE, str(connection.fileno()), str(lock), rehearsal, str(log)],
                pass_fds=(connection.fileno(), lock, log),
                stdin=subprocess.DEVNULL,
                stderr=errors,  # it writes to the log as soon as it serves
                cwd="/",
                env=keeper_environment(),
            )

    # -- keepers -------------------------------------------------------------------------------

    async def start_keeper(self, spec: KeeperSpec) -> StartedKeeper:
        """Have a keeper forked.

        Raises:
            CannotStartKeeper: when there is none.
        """
        fault_point("agent-spawn-before")
        async with self._one_at_a_time:
            started = await self._forked(spec)
        fault_point("agent-spawn-after")
        return started

    async def _forked(self, spec: KeeperSpec) -> StartedKeeper:
        tries = 0
        while True:
            line = await self._line()
            try:
                return await request_keeper(line, next(self._numbers), spec, "the zygote")
            except NoAnswer as error:
                log.warning("zygote-lost run=%s why=%s", spec.desired.key, error)
                self._hang_up()
                await self._end()
                found = await asyncio.to_thread(recorded_keeper, spec)
                if found is not None:
                    return found
                tries += 1
                if tries == _TRIES:
                    raise
            except asyncio.CancelledError:
                self._hang_up()  # an answer may still come
                raise

    async def _line(self) -> socket.socket:
        """Return the connection to the zygote; start one if there is none."""
        if self._process is not None and self._process.poll() is not None:
            self._hang_up()
        if self._socket is None:
            await self._end()
            await self._start()
            log.info("zygote-started")
        assert self._socket is not None
        return self._socket

    def _hang_up(self) -> None:
        line, self._socket = self._socket, None
        if line is not None:
            line.close()

    async def _end(self) -> None:
        """Kill the zygote, and wait until each keeper that it has begun is on disk or dead.

        Raises:
            CannotStartKeeper: it, or such a keeper, outlives SIGKILL.
        """
        process = self._process
        if process is not None:
            process.kill()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(_ended(process), _KILLED_S)
            if process.poll() is None:
                raise CannotStartKeeper(f"the zygote, process {process.pid}, outlives SIGKILL")
            await spawning.settle(self._run_dir)
        self._process = None

    async def keep(self, problem: Callable[[str], None]) -> None:
        """Replace the zygote whenever it has ended, for ever.

        `problem` is told why there is none, and gets an empty text when there is one again.
        """
        while True:
            if self._socket is not None and self._process is not None:
                await _ended(self._process)
            async with self._one_at_a_time:
                try:
                    await self._line()
                except (DlschedError, OSError) as error:
                    problem(f"no job can be started: {error}")
                else:
                    problem("")
            if self._socket is None:
                await asyncio.sleep(_AGAIN_S)

    def close(self) -> None:
        """Let the zygote end; its keepers stay."""
        self._hang_up()
        if self._process is not None:
            try:
                self._process.wait(_KILLED_S)
            except subprocess.TimeoutExpired:  # the next agent settles what it has begun
                self._process.kill()


async def request_keeper(
    line: socket.socket,
    number: int,
    spec: KeeperSpec,
    maker: str,
    more_fds: Sequence[int] = (),
) -> StartedKeeper:
    """Send a spec to a process that forks keepers; return the keeper that it has forked.

    The spec has a user's environment in it, so it goes in a file that exists in memory only.

    Args:
        line: the connection to that process; after `NoAnswer` it is of no more use.
        number: of the request, never used before on this line.
        spec: of the keeper.
        maker: that process, in words for an error.
        more_fds: descriptors for it beside the spec and the keeper's connection.

    Raises:
        NoAnswer: there may be a keeper.
        CannotStartKeeper: there is no keeper.
    """
    memory = os.memfd_create("dlsched-spec", os.MFD_CLOEXEC)
    ours, theirs = socket.socketpair()
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(dumps(spec))
        os.lseek(memory, 0, os.SEEK_SET)
        request = json.dumps({"number": number, "namespace": spec.namespace}).encode()
        socket.send_fds(line, [request], [memory, theirs.fileno(), *more_fds])
        answer, fds = await _answer(line, number, maker)
        if "pid" not in answer or not fds:
            if "failed" not in answer:  # the descriptor could not be received
                raise NoAnswer(f"{maker} gives no descriptor of the keeper")
            raise CannotStartKeeper(f"no process for a keeper: {answer['failed']}")
    except OSError as error:
        ours.close()
        raise NoAnswer(f"{maker} is gone: {error.strerror}") from None
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(memory)
        theirs.close()
    return StartedKeeper(int(answer["pid"]), fds[0], ours)


async def _answer(line: socket.socket, number: int, maker: str) -> tuple[dict[str, Any], list[int]]:
    """Return the answer of a process that forks keepers, and the descriptors sent with it.

    Raises:
        NoAnswer: it is gone, stands still, or answers another request.
    """
    try:
        await asyncio.wait_for(_readable(line.fileno()), _ANSWER_S)
    except TimeoutError:
        raise NoAnswer(f"{maker} does not answer") from None
    data, fds, _, _ = socket.recv_fds(line, _LONGEST, 1)
    answer = json.loads(data) if data else {}
    if answer.get("number") != number:
        for fd in fds:
            os.close(fd)
        raise NoAnswer(f"{maker} {'answers another request' if data else 'is gone'}")
    return answer, fds


async def _readable(fd: int) -> None:
    """Wait until a descriptor is readable."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: None if arrived.done() else arrived.set_result(None))
    try:
        await arrived
    finally:
        loop.remove_reader(fd)


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until a child has ended."""
    if process.poll() is None:  # so its id is its own
        fd = os.pidfd_open(process.pid)
        try:
            await _readable(fd)
        finally:
            os.close(fd)
        process.wait()


def recorded_keeper(spec: KeeperSpec) -> StartedKeeper | None:
    """Return the keeper whose answer was lost, if it has recorded its run.

    Raises:
        CannotStartKeeper: it has, and has ended since.
    """
    found = RunFolder(spec.state_dir, spec.run_dir, spec.desired.key).read()
    if found is None:
        return None
    process = found.file.keeper.open()
    if process is None:
        raise CannotStartKeeper("the keeper has ended as soon as it was started")
    return StartedKeeper(found.file.keeper.pid, process)


async def _last_words(process: subprocess.Popen[bytes], errors: int) -> str:
    """Wait for the end of a process; return the last line that it wrote, or how it ended."""
    try:
        await asyncio.wait_for(_ended(process), _ANSWER_S)
    except TimeoutError:
        return "it has closed its connection and does not end"
    code = process.wait()
    written = os.pread(errors, os.fstat(errors).st_size, 0).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(written) if line.strip()), "")
    return last or (f"ended by signal {-code}" if code < 0 else f"exit code {code}")


def keeper_environment() -> dict[str, str]:
    """Return a keeper's own environment: what an interpreter and a test need, nothing of a job."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DLSCHED_FAULTPOINT")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    found |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "1"}  # no locale is loaded
    # `-S`: the imports of `site` would cost every keeper memory, and one folder is enough.
    found["PYTHONPATH"] = str(Path(dlsched.__file__).parents[1])
    found["MALLOC_ARENA_MAX"] = "1"
    return found
