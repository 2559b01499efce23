"""The checkpoints of jobs: committed, listed, and held for the jobs that begin at them.

A run commits what it has saved; its library then deletes all but the newest few. Files that
another job begins at are named in the answer, so that they stay. The database has one row for each
checkpoint; only what other jobs hold is in memory.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from dlsched.core.errors import BadInput
from dlsched.daemon.leader_driver import LeaderDriver, LedgerFollower
from dlsched.db.checkpoints import DELETED, DOOMED, HELD, CheckpointsMarked, RegisteredCheckpoint
from dlsched.db.reading.filters import Filter
from dlsched.db.records import CheckpointCommitted, JobSpec
from dlsched.protocol.ledger import Changes, Job, Run
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime, wall

if TYPE_CHECKING:
    from dlsched.daemon.writer import TermBegun

KEPT_BY_DEFAULT = 2  # by a library that does not say how many
LARGEST_LOSS = 1e300
REMEMBERED = 100_000
_NAME = re.compile(r"([1-9]\d{0,17})(?:_(\d{1,10}))?", re.ASCII)


class Checkpoints(LedgerFollower):
    """The registry of checkpoints of one cluster."""

    def __init__(self, driver: LeaderDriver) -> None:
        self._driver = driver
        self._source: dict[JobId, JobId] = {}  # of each job that holds files of another one
        self._doomed: dict[str, None] = {}  # paths; the latest, for submissions under way
        self._held: defaultdict[JobId, dict[JobId, str]] = defaultdict(dict)  # path by holder
        self._committing: WeakValueDictionary[JobId, asyncio.Lock] = WeakValueDictionary()
        driver.follow(self)

    # -- which files other jobs hold ---------------------------------------------------------------

    def term_began(self, term: TermBegun) -> None:
        """Begin anew from what the database has."""
        self._source.clear()
        self._held.clear()
        for job, (source, path) in term.loaded.borrowed.items():
            self._hold(job, source, path)

    def reserved(self, changes: Changes) -> None:
        """Hold files as soon as it is decided that a job begins at them."""
        for saved in changes.of(CheckpointCommitted):
            if saved.source is not None:
                self._hold(saved.job, saved.source, saved.path)
        for marked in changes.of(CheckpointsMarked):
            if marked.state == DOOMED:
                self._doomed.update(dict.fromkeys(marked.paths))
                while len(self._doomed) > REMEMBERED:
                    self._doomed.pop(next(iter(self._doomed)))

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Let files go when no row of their holder stands for them any more."""
        for row in changes.of(CheckpointsMarked):
            if row.state in HELD:
                continue
            source = self._source.get(row.job)
            if source is not None and self._held[source][row.job] in row.paths:
                del self._source[row.job], self._held[source][row.job]

    def is_held(self, source: JobId, path: str) -> bool:
        """Whether another job begins at a file of a job."""
        return path in self._held.get(source, {}).values()

    def is_doomed(self, path: str) -> bool:
        """Whether files are about to be deleted."""
        return path in self._doomed

    def _hold(self, job: JobId, source: JobId, path: str) -> None:
        self._source[job] = source
        self._held[source][job] = path

    def holders(self, source: JobId, path: str) -> list[JobId]:
        """The other jobs that hold a file of a job."""
        return sorted(job for job, held in self._held.get(source, {}).items() if held == path)

    # -- jobs that begin at the checkpoint of another one ------------------------------------------

    async def named(self, text: str) -> tuple[Job, JobSpec | None, CheckpointCommitted | None]:
        """The job that a submission resumes from, with its newest checkpoint.

        Raises:
            BadInput: there is no such job, or it is an array with several tasks.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise BadInput(f"resume from {text!r}: not the id of one job (12 or 12_3)")
        job, spec, saved = await self._found(JobId(int(match[1])), text)
        if spec is None or spec.array is None or spec.index:
            if match[2] is not None:
                raise BadInput(f"resume from {text}: job {match[1]} is not an array")
            return job, spec, saved
        if match[2] is None:
            raise BadInput(f"resume from {text}: it is an array; name a task: {text}_{spec.task}")
        tasks = spec.array.tasks
        if int(match[2]) not in tasks:
            raise BadInput(f"resume from {text}: there is no such task")
        return await self._found(JobId(job.job + tasks.index(int(match[2]))), text)

    async def _found(
        self, job: JobId, text: str
    ) -> tuple[Job, JobSpec | None, CheckpointCommitted | None]:
        row = self._driver.committed.jobs.get(job)
        if row is not None:
            return row, self._driver.table.spec(row), self._driver.table.of(job).checkpoint
        stored = await self._driver.read(partial(self._driver.store.jobs, [job]))
        if not stored:
            raise BadInput(f"resume from {text}: there is no such job")
        return stored[0].job, stored[0].spec, stored[0].facts.checkpoint

    def first_of(self, new: JobId, at: CheckpointCommitted) -> CheckpointCommitted:
        """The row with which a new job begins: the newest checkpoint of the job of another row.

        That job may have committed another one since `at` was looked up.

        Raises:
            BadInput: it is being deleted since then.
        """
        known = self._driver.table.facts.get(at.job)
        newest = known.checkpoint if known is not None and known.checkpoint is not None else at
        if self.is_doomed(newest.path):
            raise BadInput(f"resume from {at.job}: its checkpoint is being deleted")
        return replace(
            newest, job=new, source=newest.source or newest.job, executed_s=0.0, at=wall()
        )

    # -- commits -----------------------------------------------------------------------------------

    async def commit(
        self, job: Job, run: Run, asked: control_pb2.CheckpointCommit
    ) -> control_pb2.CheckpointReply:
        """Commit a checkpoint of the latest run; the answer names older ones that must stay.

        The commits of one job wait for each other, so that each knows the newest one before it.

        Raises:
            BadInput: it has no path, or an impossible number.
        """
        async with self._committing.setdefault(job.job, asyncio.Lock()):
            return await self._commit(job, run, asked)

    async def _commit(
        self, job: Job, run: Run, asked: control_pb2.CheckpointCommit
    ) -> control_pb2.CheckpointReply:
        if not self._driver.committed.is_newest(run):  # the last one may come after its run's end
            return control_pb2.CheckpointReply(accepted=False, why=f"run {run.key} is over")
        if not asked.path or len(asked.path) > 4096 or "\0" in asked.path:
            raise BadInput("checkpoint: not a path")
        if asked.step < 0 or asked.bytes < 0 or asked.keep < 0:
            raise BadInput("checkpoint: a number is negative")
        facts = self._driver.table.of(job.job)
        before = facts.checkpoint
        if before is not None and before.run_id == run.key.run_id and asked.step < before.step:
            why = f"step {asked.step} is before {before.step}, which is committed"
            return control_pb2.CheckpointReply(accepted=False, why=why)
        if before is None or (before.path, before.step) != (asked.path, asked.step):
            loss = asked.loss if asked.HasField("loss") else None
            saved = CheckpointCommitted(
                job=job.job,
                run_id=run.key.run_id,
                at=wall(),
                path=asked.path,
                step=asked.step,
                size_bytes=asked.bytes,
                sha256=asked.sha256,
                executed_s=facts.clock.seconds(boottime()),
                loss=loss if loss is not None and abs(loss) <= LARGEST_LOSS else None,
            )
            gone = self._beyond(await self._of(job.job), (asked.keep or KEPT_BY_DEFAULT) - 1)
            await self._driver.attach(saved, *gone)
        held = self._held.get(job.job, {}).values()
        return control_pb2.CheckpointReply(accepted=True, held=sorted(set(held)))

    async def _of(self, job: JobId) -> list[RegisteredCheckpoint]:
        query = partial(self._driver.store.checkpoints, Filter(jobs=(job,)), states=(*HELD, DOOMED))
        return await self._driver.read(query)

    def _beyond(
        self, rows: Sequence[RegisteredCheckpoint], most: int
    ) -> Iterator[CheckpointsMarked]:
        """Mark what a job does not keep beside its newest ones; files that others hold stay.

        The job's library deletes the files when it learns of the commit. What it has not deleted
        when it ends is deleted later, so these rows are not `deleted` before the next commit.
        """
        surplus = [row for row in rows if row.state in HELD][most:]
        mine = [row for row in surplus if row.source is None]
        doomed = [row for row in mine if not self.holders(row.job, row.path)]
        deleted = [row for row in rows if row.state == DOOMED]
        deleted += [row for row in surplus if row.source is not None]
        for state, some in ((DOOMED, doomed), (DELETED, deleted)):
            if some:
                ids, paths = tuple(row.id for row in some), tuple(row.path for row in some)
                yield CheckpointsMarked(job=some[0].job, ids=ids, paths=paths, state=state)
