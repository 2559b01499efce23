"""The jobs whose latest checkpoint could not be written: told, counted, forgotten once they save.

A rank says why it could not write its part. That the grace has cut a save off is seen in how the
run ended: it was killed, it was about to save, and it handed in no checkpoint. Of a job that never
saves nothing of the kind is said.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

from dlsched.daemon.leader_driver import LeaderDriver, LedgerFollower
from dlsched.daemon.reported.curves import Curves
from dlsched.daemon.writer import TermBegun
from dlsched.db.checkpoints import Unsaved
from dlsched.db.notices import Notice, asked_events
from dlsched.db.records import CheckpointCommitted, Event
from dlsched.db.rows import state_word
from dlsched.jobs.unsaved import unsaved_text
from dlsched.protocol.ledger import Changes, Job, MemberOver, Run
from dlsched.protocol.messages import ExitReason, ExitRecord, JobId, Told
from dlsched.system.clock import wall

KIND = "checkpoint-failed"  # of the event
NOTICE = "checkpoint"  # the event that users ask to be told of
TOLD_AT = 2  # so many failures in a row
EACH_UP_TO = 8  # so many in a row have an event each, then every time that their number doubles


class UnsavedJobs(LedgerFollower):
    """What jobs could not save.

    Attributes:
        jobs: those in memory whose latest checkpoint has failed.
        failures: of all jobs since this process began.
    """

    def __init__(self, driver: LeaderDriver, curves: Curves) -> None:
        """Follow a leader; the curves say what trainings do."""
        self.jobs: dict[JobId, Unsaved] = {}
        self.failures = 0
        self._warned: dict[tuple[JobId, str], tuple[bool, int]] = {}  # whether it holds, how often
        self._driver, self._curves = driver, curves
        driver.follow(self)

    def term_began(self, term: TermBegun) -> None:
        """Begin anew from what the database has."""
        self.jobs = {each.job: each for each in term.loaded.unsaved}

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Notice later checkpoints, saves that the grace has cut off, and jobs that left memory."""
        soon = asyncio.get_running_loop().call_soon
        for saved in changes.of(CheckpointCommitted):
            mine = self.jobs.get(saved.job)
            if mine is not None and (saved.run_id != mine.run_id or saved.step >= mine.step):
                del self.jobs[saved.job]
        for over in changes.of(MemberOver):
            if over.exit is not None and self._is_cut_off(over.exit):
                soon(self._note_cut_off, over.exit)
        for job in self.jobs.keys() - self._driver.committed.jobs.keys():
            del self.jobs[job]
        for key in [key for key in self._warned if key[0] not in self._driver.committed.jobs]:
            del self._warned[key]

    def is_news(self, job: JobId, kind: str, holds: bool) -> bool:
        """Whether a job is to be warned: once until it changes, and a bounded number of times.

        Args:
            job: that reports.
            kind: of the warning.
            holds: whether there is a reason for it now.
        """
        held, count = self._warned.get((job, kind), (False, 0))
        told = holds and not held and count < EACH_UP_TO
        if holds or held:
            self._warned[job, kind] = holds, count + told
        return told

    def note(self, job: Job, run: Run, step: int, why: str) -> None:
        """Note that a run could not write the checkpoint after a step; once for all its ranks."""
        before, newest = self.jobs.get(job.job), self._driver.table.of(job.job).checkpoint
        if newest is not None and newest.run_id == run.key.run_id and newest.step >= step:
            return
        if before is not None and before.run_id == run.key.run_id and step <= before.step:
            return
        self.failures += 1
        mine = Unsaved(
            job=job.job,
            run_id=run.key.run_id,
            at=wall(),
            step=step,
            why=why,
            in_a_row=1 if before is None else before.in_a_row + 1,
        )
        self.jobs[job.job] = mine
        self._driver.note(mine, *self._told(job, run, mine))

    def _told(self, job: Job, run: Run, mine: Unsaved) -> Iterator[Event | Notice]:
        """What the job's events and its user are told."""
        count, newest = mine.in_a_row, self._driver.table.of(job.job).checkpoint
        step, age_s = (None, 0.0) if newest is None else (newest.step, mine.at - newest.at)
        text = unsaved_text(mine.step, mine.why, count, step, age_s)
        if count <= EACH_UP_TO or count & (count - 1) == 0:
            yield Event(
                at=mine.at, kind=KIND, actor="job", job=mine.job, run_id=mine.run_id, text=text
            )
        wanted = asked_events(self._driver.table.field(job, "notify") or "")
        if count == TOLD_AT and NOTICE in wanted:
            yield Notice(
                job=mine.job, event=NOTICE, state=state_word(job), run=run.key.run, text=text,
                at=mine.at, user=job.request.user,
            )  # fmt: skip

    def _is_cut_off(self, end: ExitRecord) -> bool:
        """Whether a run was killed while it saved because of a stop."""
        killed = end.reason is ExitReason.SIGNALLED and end.signal == signal.SIGKILL
        curves = self._curves.jobs.get(end.key.job)
        # a job that leaves may have no state to save
        has_saved = self._driver.table.of(end.key.job).checkpoint is not None
        saves = end.told is Told.STOPPED and has_saved
        saves = saves or (curves is not None and curves.doing == "save")
        return killed and saves and end.stop is not None and end.checkpoint is None

    def _note_cut_off(self, end: ExitRecord) -> None:
        job, run = (
            self._driver.committed.jobs.get(end.key.job),
            self._driver.committed.runs.get(end.key.run_id),
        )
        if job is None or run is None:
            return
        why = f"it was cut off on {end.node} after the grace of {job.terms.grace_s:.4g} s"
        self.note(job, run, self._driver.table.of(job.job).step or 0, why)
