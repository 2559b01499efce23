"""The policy worker: a process of its own decides rounds.

A policy may be code of any origin. It may raise, loop for ever or take all memory; none of that
reaches the daemon, which then keeps its present plan. The process is started anew (never forked, as
the daemon has threads), kept for the next round, and killed when a request takes too long.

Invariant: an answer has the number of its request; a worker that gives another one, or none in
time, is killed and gives no more answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.daemon.round.codec import HEADER, SHOW_STACK, decode, encode
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.forecasts.alternatives import Outcome, Question
from dlsched.daemon.round.forecasts.foreseen import Foreseen
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.system.child_python import child_environment

log = logging.getLogger("dlsched.daemon")
START_S = 30.0  # until a fresh process answers: it imports numpy first
FORECAST_S = 120.0
PART = 0.7  # of its limit, after which a forecast ends by itself


class PolicyWorker:
    """One process that decides rounds, one request at a time.

    Attributes:
        time_limit_s: how long a request may take; then the process is killed.
        failures: requests in a row that failed.
        restarts: processes that had to be replaced.
    """

    def __init__(
        self,
        *,
        time_limit_s: float = 20.0,
        memory_bytes: int | None = None,
        nice: int = 0,
        modules: Sequence[str] = (),
    ) -> None:
        """Make a worker; its process starts with the first request, or with `start`.

        Args:
            time_limit_s: how long a request may take.
            memory_bytes: the most address space that the process may have; None for no bound.
            nice: of the process, as in nice(1).
            modules: imported first in the process; they can register further parts.
        """
        self.time_limit_s = time_limit_s
        self.failures = 0
        self.restarts = 0
        self._arguments = (memory_bytes or 0, nice, *modules)
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._lock = asyncio.Lock()
        self._asked = False
        self._numbers = itertools.count(1)  # of requests

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def busy(self) -> bool:
        """Whether it works on a request."""
        return self._asked

    async def start(self) -> None:
        """Have a process ready, so that the first round need not wait for it."""
        async with self._lock:
            try:
                await self._running()
            except BaseException:
                self._give_up()  # what it sends when it is ready would be taken for an answer
                raise

    async def decide(self, snapshot: LiveSnapshot) -> Decided:
        """Decide a round.

        Raises:
            PolicyFailed: names the policy; it raised, took too long, or its process died.
        """
        task = f"policy {snapshot.settings.policy}"
        answer, cpu_s = await self._ask("decide", snapshot.to_bytes(), task, self.time_limit_s)
        return replace(Decided.from_bytes(answer), cpu_s=cpu_s)

    async def check_policy(self, settings: RoundSettings) -> None:
        """Could these parts be switched on, whatever the jobs are?

        Raises:
            BadInput: an unknown part, option or value.
            PolicyFailed: the part took too long or its process died.
        """
        data = encode(asdict(settings))
        await self._ask("check", data, f"policy {settings.policy}", self.time_limit_s)

    async def options_left_out(self, settings: RoundSettings) -> tuple[str, ...]:
        """The options that these parts no longer take; see `parts.options_left_out`.

        Raises:
            PolicyFailed: the part took too long or its process died.
        """
        data = encode(asdict(settings))
        task = f"policy {settings.policy}"
        answer, _ = await self._ask("left-out", data, task, self.time_limit_s)
        return tuple(decode(answer))

    async def try_policy(self, settings: RoundSettings, snapshot: LiveSnapshot) -> None:
        """Can these parts be switched on, for the jobs there are now?

        Raises:
            BadInput: an unknown part, option or value, or a column that live jobs lack.
            PolicyFailed: the part took too long or its process died.
        """
        task = f"policy {settings.policy}"
        await self._ask("try", snapshot.under(settings).to_bytes(), task, self.time_limit_s)

    async def ask_site(self, question: bytes, task: str) -> bytes:
        """Ask a function of the site; see `site_function.ask_site`.

        Raises:
            PolicyFailed: it raised, took too long, or its process died; `task` begins the line.
        """
        answer, _ = await self._ask("site", question, task, self.time_limit_s)
        return answer

    async def forecast(
        self,
        snapshot: LiveSnapshot,
        *,
        horizon_s: float = 30 * 86400.0,
        limit_s: float = FORECAST_S,
    ) -> list[Foreseen]:
        """When pending jobs would start, and all end, if nothing more came.

        After `limit_s` the process is killed; it ends by itself before, with the starts that it has
        come to.

        Raises:
            PolicyFailed: as for a decision.
        """
        data = encode(
            {"snapshot": snapshot.to_bytes(), "horizon_s": horizon_s, "patience_s": PART * limit_s}
        )
        task = f"forecast under {snapshot.settings.policy}"
        answer, _ = await self._ask("forecast", data, task, limit_s)
        return [Foreseen(*row) for row in decode(answer)]

    async def suppose(self, question: Question, *, limit_s: float) -> list[Outcome]:
        """What would become of a job, or of all, in some alternatives.

        After `limit_s` the process is killed; it ends by itself before, with what it has come to.

        Raises:
            BadInput: parts that are not known, or that do not fit the jobs.
            PolicyFailed: as for a decision.
        """
        task = f"what-if under {question.snapshot.settings.policy}"
        data = replace(question, patience_s=PART * limit_s).to_bytes()
        answer, _ = await self._ask("suppose", data, task, limit_s)
        return [Outcome(**each) for each in decode(answer)]

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            self._kill()

    # -- the process -------------------------------------------------------------------------------

    async def _ask(self, verb: str, data: bytes, task: str, limit_s: float) -> tuple[bytes, float]:
        async with self._lock:
            try:
                reader, writer = await self._running()
                async with asyncio.timeout(limit_s):
                    number = next(self._numbers)
                    body = encode([number, verb, data])
                    writer.write(HEADER.pack(len(body)) + body)
                    await writer.drain()
                    self._asked = True
                    (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
                    told, kind, answer, trace, cpu_s = decode(await reader.readexactly(size))
                if told != number:
                    raise PolicyFailed(f"{task}: it answered request {told} instead of {number}")
            except TimeoutError:
                await self._say_where_it_is()
                self._give_up()
                raise PolicyFailed(
                    f"{task}: it took longer than {limit_s:g} s and was ended"
                ) from None
            except (EOFError, OSError) as error:
                await self._let_it_end()
                ended = self._give_up()
                raise PolicyFailed(f"{task}: its process ended ({ended or error})") from None
            except BaseException:
                self._give_up()  # cancelled in the middle: an answer may still be on its way
                raise
        if kind == "refused":
            raise BadInput(str(answer))
        if kind == "failed":
            self.failures += 1
            if not trace:
                raise PolicyFailed(str(answer))
            log.error("event=policy-raised task=%r why=%r traceback=%s", task, answer, trace)
            raise PolicyFailed(f"{answer} (traceback in the daemon's log)")
        self.failures = 0
        return bytes(answer), float(cpu_s)

    async def _say_where_it_is(self) -> None:
        """Have the process write to the log which line of which part it is in."""
        if self._process is not None and not _has_ended(self._process.pid):
            self._process.send_signal(SHOW_STACK)
            await asyncio.sleep(0.1)  # it writes at once, in whatever it is

    async def _let_it_end(self) -> None:
        """Its end of the pair is closed, so it is about to end: how, is of interest."""
        for _ in range(100):
            if self._process is None or _has_ended(self._process.pid):
                return
            await asyncio.sleep(0.01)

    def _give_up(self) -> str:
        self.failures += 1
        self.restarts += 1
        return self._kill()

    async def _running(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The process's two ends; starts one when there is none."""
        if self._process is not None and _has_ended(self._process.pid):
            self._kill()
        if self._reader is None or self._writer is None:
            mine, theirs = socket.socketpair()
            with theirs:
                os.set_inheritable(theirs.fileno(), True)
                self._process = subprocess.Popen(
                    [
                        sys.executable, "-P", "-m", "dlsched.daemon.round.worker_main",
                        str(theirs.fileno()), *map(str, self._arguments),
                    ],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    cwd="/",  # no policy imports what lies in the daemon's folder
                    env=child_environment(),
                    start_new_session=True,
                )  # fmt: skip
            mine.setblocking(False)
            self._reader, self._writer = await asyncio.open_connection(sock=mine, limit=2**20)
            async with asyncio.timeout(START_S):
                await self._reader.readexactly(1)  # it is ready
        return self._reader, self._writer

    def _kill(self) -> str:
        """End the process for good; returns how it ended."""
        ended = ""
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.transport.abort()
        if self._process is not None:
            if self._process.returncode is None:  # what it has started goes, too
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
            ended = f"signal {-code}" if code < 0 else f"exit {code}"
        self._process = self._reader = self._writer = None
        return ended


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped, so that its group's number stays its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
