"""The leader of a service: takes its requests, and lets replicas start as the rule of Swayam says.

It ends when its job is cancelled or out of time, and then cancels the replicas. When the job is
preempted or killed, the replicas wait for its next run, and end by themselves where none comes.
Asked to stop, it takes no request more and finishes those that it has, as far as its grace allows.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import secrets
import sys
import time
from dataclasses import dataclass, field

from dlsched.client.submission.services import Terms
from dlsched.core.errors import DlschedError, plural
from dlsched.job.job import Job
from dlsched.policies.services.replicas import Replicas, Warmth
from dlsched.service.http_server import MOST_HEAD, Declined, HttpServer
from dlsched.service.rendezvous import Rendezvous
from dlsched.service.replica_jobs import ReplicaJobs
from dlsched.service.request_queue import RequestQueue, Slot
from dlsched.service.scaler import Scaler

TICK_S = 0.5
FINISH_TICK_S = 0.05
LOOK_S = 2.0  # between two looks at the replicas' jobs
LONGEST_WAIT_S = 60.0  # that a request waits, at least; else many times the promised time
MOST_FAILURES = 5  # replicas in a row that end before they answer
GREETING_S = 10.0
SHARE_OF_GRACE = 0.7  # in which requests are finished when the leader has to stop
QUIET_S = 1.0  # then, without any request, until connections that sent none are closed
GOES_ON = ("preempt", "migrate", "resize", "suspend")  # stops after which the job runs again


@dataclass(slots=True, kw_only=True)
class Leader:
    """One run of the leader.

    Attributes:
        terms: of the service.
        jobs: of its replicas.
        host: the address on which replicas are met.
    """

    terms: Terms
    jobs: ReplicaJobs
    host: str
    _scaler: Scaler = field(init=False)
    _replicas: Replicas = field(init=False)
    _requests: RequestQueue = field(init=False)
    _slots: dict[int, set[Slot]] = field(default_factory=dict)
    _secret: str = ""
    _met: set[int] = field(default_factory=set)  # replicas whose present job has greeted
    _failures: int = 0  # jobs of replicas in a row that never did
    _looked_at: float = -math.inf
    _declined: list[str] = field(default_factory=list)  # why, since it was last told

    def __post_init__(self) -> None:
        """Begin with all replicas cold."""
        terms = self.terms
        self._scaler = Scaler(terms)
        self._replicas = Replicas(least=terms.least, most=terms.most, idle_s=terms.idle)
        self._requests = RequestQueue(
            most=terms.queue,
            longest_s=max(LONGEST_WAIT_S, 10 * terms.within),
            usable=self._usable,
            used=lambda number: self._replicas.used(number, time.monotonic()),
            served=self._scaler.served,
        )

    async def run(self, job: Job) -> bool:
        """Lead until the job has to stop; says whether the service ends with it.

        Raises:
            DlschedError: replicas never come to answer.
        """
        terms, server = self.terms, HttpServer(self._answer)
        before = Rendezvous.read(self.jobs.folder)
        self._secret = secrets.token_hex(16) if before is None else before.secret
        inner = await asyncio.start_server(self._meet, self.host, 0, limit=MOST_HEAD)
        outer = await asyncio.start_server(server.serve, terms.host, terms.port, limit=MOST_HEAD)
        async with inner, outer:
            port = inner.sockets[0].getsockname()[1]
            Rendezvous(host=self.host, port=port, secret=self._secret).write(self.jobs.folder)
            told = outer.sockets[0].getsockname()[1]
            await asyncio.to_thread(self.jobs.adopt)
            for number in self.jobs.of:
                self._replicas[number].warmth = Warmth.WARMING
            print(f"service: requests at http://{terms.host}:{told}/", flush=True)
            scaler = self._scaler
            job.checkpoint.register("scaler", save=scaler.save, load=scaler.load)
            job.restore()
            while job.step(**self._figures()):
                await self._go_on()
                await asyncio.sleep(TICK_S)
            outer.close()
            await self._finish(server, job)
        return job.lease.reason not in GOES_ON

    async def _finish(self, server: HttpServer, job: Job) -> None:
        """Wait for the answers to requests that are here."""
        left_s = job.deadline()
        grace_s = float(job.runtime.grace_s) if left_s is None else left_s
        now = time.monotonic()
        until, quiet_until = now + SHARE_OF_GRACE * grace_s, now + QUIET_S
        while server.open and (now := time.monotonic()) < until:
            if not server.held and now >= quiet_until:
                return
            self._requests.match()
            await asyncio.sleep(FINISH_TICK_S)

    def _usable(self) -> frozenset[int]:
        """The replicas that may get requests: those that are needed, or any where none of them is.

        The others take over at once when a replica leaves.
        """
        return frozenset(self._replicas.usable(self._scaler.needed)) or frozenset(self._slots)

    def _figures(self) -> dict[str, float]:
        return {
            **self._scaler.figures(time.monotonic()),
            "replicas": float(len(self._slots)),
            "queued": float(self._requests.waiting),
        }

    async def _go_on(self) -> None:
        """Close windows, start replicas that are needed, look after those that are there."""
        now = time.monotonic()
        self._scaler.go_on(now)
        self._requests.match()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            if self._declined:
                _say(f"{plural(len(self._declined), 'request')} declined: {self._declined[-1]}")
                self._declined.clear()
            await self._look()
        for number in self._replicas.ask([self._scaler.needed], now):
            try:
                await asyncio.to_thread(self.jobs.start, number)
                _say(f"replica {number}: job {self.jobs.of[number]}")
            except DlschedError as error:
                _say(f"replica {number} is not submitted: {error}")
                self._replicas.gone(number)
                self._looked_at = now + LOOK_S  # and no other is, for a while
                return

    async def _look(self) -> None:
        try:
            ended = await asyncio.to_thread(self.jobs.look)
        except DlschedError as error:
            _say(f"the daemon does not answer: {error}")
            return
        for number in ended:
            self._failures += number not in self._met
            self._met.discard(number)
            self._replicas.gone(number)
            _say(f"replica {number} has ended")
        if self._failures >= MOST_FAILURES:
            raise DlschedError(
                f"{plural(self._failures, 'replica')} in a row ended before they took a request; "
                f"their output says why: dlsched logs of the jobs {self.jobs.name(1)} …"
            )

    # -- requests and replicas ---------------------------------------------------------------------

    async def _answer(self, request: bytes) -> bytes:
        began = time.monotonic()
        self._scaler.arrived()
        seconds = math.inf
        try:
            found = await self._requests.ask(request)
            seconds = time.monotonic() - began
            return found
        except Declined as refused:
            self._declined.append(refused.why)
            raise
        finally:
            self._scaler.answered(seconds, time.monotonic())

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One slot of a replica, until it is gone."""
        try:
            async with asyncio.timeout(GREETING_S):
                number = self._number(await reader.readline())
                writer.write(b"welcome\n")
                await writer.drain()
        except (TimeoutError, ValueError, TypeError, RecursionError, ConnectionError):
            writer.transport.abort()
            return
        slot = Slot(number, reader, writer)
        mine = self._slots.setdefault(number, set())
        mine.add(slot)
        self._met.add(number)
        if self._replicas[number].warmth is not Warmth.WARM:
            self._replicas.warmed(number, time.monotonic())
            self._failures = 0
            _say(f"replica {number} takes requests")
        try:
            await self._requests.serve(slot)
        except asyncio.CancelledError:  # the leader ends
            return
        finally:
            writer.transport.abort()
            mine.discard(slot)
            if not mine:
                self._slots.pop(number, None)
                # what becomes of its job, the next look tells
                self._replicas[number].warmth = Warmth.WARMING
                self._looked_at = -math.inf

    def _number(self, line: bytes) -> int:
        """The number of a replica that greets.

        Raises:
            ValueError: it is none of this service.
        """
        told = json.loads(line)
        secret = str(told.get("secret", "")) if isinstance(told, dict) else ""
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            raise ValueError("another secret")
        number = int(told.get("number", 0))
        if not 1 <= number <= self.terms.most:
            raise ValueError("no such replica")
        self.jobs.of.setdefault(number, int(told.get("job", 0)))
        return number


def _say(text: str) -> None:
    print(f"service: {text}", file=sys.stderr, flush=True)
