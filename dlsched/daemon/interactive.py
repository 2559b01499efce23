"""Interactive jobs, and whether a client is there for each of them.

An interactive job to which no client was ever attached is of no use: it is cancelled when none has
come for `ALONE_S`. Once a client was attached, a lost client changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator

from dlsched.daemon.leader_driver import LeaderDriver, LedgerFollower
from dlsched.daemon.writer import TermBegun
from dlsched.protocol.ledger import Changes, JobStatus
from dlsched.protocol.messages import JobId
from dlsched.system.clock import boottime

ALONE_S = 30.0  # a client that lost its connection comes again within seconds


class InteractiveJobs(LedgerFollower):
    """The live interactive jobs of this term."""

    def __init__(self, driver: LeaderDriver) -> None:
        """Follow the ledger."""
        self._driver = driver
        self._alone_since: dict[JobId, float] = {}  # of jobs that need a client
        self._entered: set[JobId] = set()  # a client was attached to them
        self._clients: Counter[JobId] = Counter()
        self._waiting: dict[JobId, set[asyncio.Event]] = {}
        driver.follow(self)

    def term_began(self, term: TermBegun) -> None:
        """Begin anew: clients come again, and have time for that."""
        jobs = term.loaded.ledger.jobs
        self._alone_since.clear()
        # of a job that runs it is not known: its keeper gives it up if no client ever comes
        self._entered = {job for job, row in jobs.items() if row.status is not JobStatus.PENDING}
        self._note(jobs)

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Note new jobs and wake the clients of those that have changed."""
        self._note(changed)
        for job in changed & self._waiting.keys():
            for event in self._waiting[job]:
                event.set()

    def _note(self, jobs: Iterable[JobId]) -> None:
        rows, table = self._driver.committed.jobs, self._driver.table
        for job in jobs:
            row = rows.get(job)
            if row is None or row.status.is_terminal:
                self._alone_since.pop(job, None)
                self._entered.discard(job)
            elif (
                job not in self._entered
                and job not in self._clients
                and table.spec(row).body.terminal
            ):
                self._alone_since.setdefault(job, boottime())

    @contextlib.contextmanager
    def client(self, job: JobId) -> Iterator[None]:
        """Count a client while it waits for the start, or is attached."""
        self._alone_since.pop(job, None)
        self._clients[job] += 1
        try:
            yield
        finally:
            self._clients[job] -= 1
            if not self._clients[job]:
                del self._clients[job]
                self._note([job])

    def entered(self, job: JobId) -> None:
        """Note that a client is attached."""
        self._entered.add(job)

    async def change(self, job: JobId) -> None:
        """Wait until a job has changed."""
        event = asyncio.Event()
        events = self._waiting.setdefault(job, set())
        events.add(event)
        try:
            await event.wait()
        finally:
            events.discard(event)
            if not events:
                self._waiting.pop(job, None)

    def abandoned(self) -> list[JobId]:
        """The jobs that have had no client for too long."""
        now = boottime()
        return [job for job, since in self._alone_since.items() if now - since > ALONE_S]
