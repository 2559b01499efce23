"""What jobs execute, for launches: read from the database when a round has started the jobs.

The contents of the jobs of one round are read with one query, off the main thread. Memory keeps
what was submitted or read lately, at most `KEPT_BYTES`: a job that starts at once, and the nodes
of a gang, need no query of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from dlsched.core.errors import DlschedError
from dlsched.daemon.leader_driver import LeaderDriver, LedgerFollower
from dlsched.daemon.rpc_errors import NotPossible
from dlsched.daemon.writer import TermBegun
from dlsched.db.contents import ContentGiven, ContentSizes, JobContent
from dlsched.db.records import EnvironmentGiven
from dlsched.protocol.ledger import Assign, CancelJob, Changes, MemberOver
from dlsched.protocol.messages import JobId

KEPT_BYTES = 4 << 20
_OF_ONE, _OF_VARIABLE = 500, 150  # bytes that Python takes beside the texts


class JobContents(LedgerFollower):
    """The contents of jobs that are about to start.

    Attributes:
        kept_bytes: what memory keeps of them.
        queries: made so far.
    """

    def __init__(self, driver: LeaderDriver) -> None:
        self.kept_bytes = 0
        self.queries = 0
        self._driver = driver
        self._kept: dict[JobId, tuple[JobContent, int]] = {}  # by first element; the oldest first
        self._coming: dict[JobId, asyncio.Future[JobContent]] = {}
        self._asked: dict[JobId, JobId] = {}  # of those not read yet: one job of each
        self._reader: asyncio.Task[None] | None = None
        driver.follow(self)

    def term_began(self, term: TermBegun) -> None:
        """Begin anew: another daemon may have led meanwhile."""
        self._kept.clear()
        self.kept_bytes = 0

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Keep what was submitted, and read what a round's jobs execute."""
        sizes, total, ledger = ContentSizes(), 0, self._driver.committed
        for given in changes.of(ContentGiven):
            if total > KEPT_BYTES // 2:
                break  # of many jobs, the first are kept
            total += self._keep(given.job, given.content, sizes)
        for other in changes.of(EnvironmentGiven):
            self._drop(self._key(other.job))
        runs = [ledger.runs.get(over.run_id) for over in changes.of(MemberOver)]
        ending = [write.job for write in changes.of(CancelJob)]
        ending += [run.key.job for run in runs if run is not None]
        for job in ending:
            row = ledger.jobs.get(job)
            if row is not None and row.status.is_terminal:
                self._drop(job)  # of an array: with its first element
        self._ask(self._within(write.key.job for write in changes.of(Assign)))

    async def of(self, job: JobId) -> JobContent:
        """What a live job executes.

        Raises:
            Unavailable: the database cannot be read now.
            NotPossible: the database has nothing of the job any more.
        """
        key = self._key(job)
        if key in self._kept:
            kept = self._kept[key] = self._kept.pop(key)  # it goes last
            return kept[0]
        self._ask([job])
        return await asyncio.shield(self._coming[key])

    def _key(self, job: JobId) -> JobId:
        """The first element of a job's array, whose content all have; else the job."""
        row = self._driver.committed.jobs.get(job)
        return job if row is None else JobId(job - self._driver.table.spec(row).index)

    def _within(self, jobs: Iterable[JobId]) -> list[JobId]:
        """Those of some jobs whose contents can be kept together."""
        found, total, driver = [], 0, self._driver
        for job in jobs:
            row = driver.committed.jobs.get(job)
            if row is None:
                continue
            spec = driver.table.spec(row)
            total += spec.content_bytes * (len(spec.array.tasks) if spec.array is not None else 1)
            if total > KEPT_BYTES:
                break
            found.append(job)
        return found

    # -- reading ---------------------------------------------------------------------------------

    def _ask(self, jobs: Iterable[JobId]) -> None:
        """Have contents read that are neither kept nor on their way."""
        for job in jobs:
            key = self._key(job)
            if key not in self._kept and key not in self._coming:
                self._asked[key] = job
                self._coming[key] = asyncio.get_running_loop().create_future()
        if self._asked and (self._reader is None or self._reader.done()):
            self._reader = asyncio.create_task(self._read(), name="contents")

    async def _read(self) -> None:
        """Read until nothing more is asked for; what is asked meanwhile is the next query."""
        while self._asked:
            asked, self._asked = self._asked, {}
            found: dict[JobId, JobContent] = {}
            error: DlschedError = NotPossible("what it was to run is not known any more")
            self.queries, sizes = self.queries + 1, ContentSizes()
            try:
                store = self._driver.store
                found = await self._driver.read(partial(store.contents, list(asked.values())))
            except DlschedError as failure:
                error = failure
            for key, job in asked.items():
                coming = self._coming.pop(key)
                if job in found:
                    self._keep(key, found[job], sizes)
                    coming.set_result(found[job])
                else:
                    coming.set_exception(error)
                    coming.exception()  # nothing may wait for it

    # -- keeping ---------------------------------------------------------------------------------

    def _keep(self, key: JobId, content: JobContent, sizes: ContentSizes) -> int:
        """Keep a content; returns how many bytes of memory it takes."""
        self._drop(key)
        size = sizes.of_content(content) + _OF_ONE + _OF_VARIABLE * len(content.environment)
        self._kept[key] = content, size
        self.kept_bytes += size
        while self.kept_bytes > KEPT_BYTES:
            self._drop(next(iter(self._kept)))
        return size

    def _drop(self, key: JobId) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.kept_bytes -= found[1]
