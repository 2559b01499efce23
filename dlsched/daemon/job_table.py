"""What users see of jobs beside the ledger: times, counts, holds, updates, progress.

The table follows *committed* changes, so nothing in it can be lost with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dlsched.core.service_clock import NOTHING, RunClock
from dlsched.db.checkpoints import CheckpointsMarked
from dlsched.db.reading.loading import JobFacts
from dlsched.db.reading.queries import RunUsage
from dlsched.db.records import (
    CheckpointCommitted,
    ClockMoved,
    Event,
    FieldsChanged,
    HoldChanged,
    JobBody,
    JobSpec,
)
from dlsched.db.rows import ended_at, growth_of
from dlsched.db.served import JobServed, RunServed
from dlsched.protocol.ledger import (
    OF_SUBMISSIONS,
    Changes,
    Job,
    Ledger,
    Run,
    job_changed,
)
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.messages import JobId, RunId, StepRecord

_OF_BODY = {each.name for each in fields(JobBody)}
_FOLLOWED = (
    *(HoldChanged, FieldsChanged, CheckpointCommitted, CheckpointsMarked, ClockMoved),
    *(JobServed, RunServed),
)


@dataclass(slots=True, kw_only=True)
class Facts(JobFacts):
    """One job's history in numbers, with what only this process knows of its present run."""

    clock: RunClock = field(default_factory=RunClock)  # of the present run, in boottime
    step: int | None = None
    calls: tuple[RunId, tuple[StepRecord, ...]] | None = None  # of `srun`, in a run

    def executed_now(self, at: float) -> float:
        """Seconds on GPUs up to now, by the wall clock."""
        return self.executed_s + self.held_since(at)

    def held_since(self, at: float) -> float:
        """Seconds on GPUs up to now that its account does not have yet."""
        return 0.0 if self.served is None else self.served.held_since(at)

    def move_times(self, clock: ClockMoved, submitted_at: float) -> None:
        """Move the times of a job that has not ended with the clock, which was set.

        Args:
            clock: by how far, and what is of the clock as it is now.
            submitted_at: by the job's spec, without earlier moves.
        """
        if self.ended_at is None:
            self.moved_s = clock.moved(submitted_at + self.moved_s) - submitted_at
            if self.first_started_at is not None:
                self.first_started_at = clock.moved(self.first_started_at)
            if self.started_at is not None:
                self.started_at = clock.moved(self.started_at)
            if self.served is not None:
                self.served = self.served.moved(clock.by_s)


def _facts_of(known: JobFacts) -> Facts:
    """Facts in memory of what the database has."""
    facts = Facts(**{each.name: getattr(known, each.name) for each in fields(JobFacts)})
    facts.step = None if facts.progress is None else facts.progress.step
    return facts


class JobTable:
    """The facts of every job in memory."""

    def __init__(self) -> None:
        self.facts: dict[JobId, Facts] = {}
        self._elements: dict[JobId, dict[JobId, None]] = {}  # of arrays by their first id
        self._array: dict[JobId, JobId] = {}  # of each element

    def load(self, ledger: Ledger, known: Mapping[JobId, JobFacts], now: float, at: float) -> None:
        """Begin anew from what the database has.

        Args:
            ledger: the committed ledger.
            known: the store's facts by job.
            now: seconds of `boottime`.
            at: the wall clock.
        """
        self.facts, self._elements, self._array = {}, {}, {}
        for job, row in ledger.jobs.items():
            self._note_element(row)
            mine = self.facts[job] = _facts_of(known.get(job, JobFacts(job=job)))
            if mine.served is not None and (ahead := mine.served.account.since - at) > 0:
                mine.served = mine.served.moved(-ahead)  # the clock was set back meanwhile
            run = ledger.live_run(job)
            if run is not None and run.released and not run.suspended:
                since = mine.started_at if mine.started_at is not None else at
                mine.clock.running_since = now - max(0.0, at - since)

    def recall(self, known: JobFacts) -> None:
        """Have the facts of an ended job again that had left memory."""
        if known.job not in self.facts:
            self.facts[known.job] = _facts_of(known)

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Remove jobs that have left the ledger's memory."""
        for job in jobs:
            self.facts.pop(job, None)
            first = self._array.pop(job, None)
            if first is not None:
                del self._elements[first][job]
                if not self._elements[first]:
                    del self._elements[first]

    def live_usage(self, ledger: Ledger, row: Job, at: float) -> RunUsage | None:
        """The GPU time of a job's live run up to now; None: it has none."""
        run, facts = ledger.live_run(row.job), self.facts.get(row.job)
        if run is None or facts is None or facts.started_at is None or not run.released:
            return None
        latest, received = facts.received or (None, NOTHING)
        before = received.attained if latest == run.key.run_id else 0.0
        return RunUsage(
            run_id=run.key.run_id,
            user=row.request.user,
            account=self.field(row, "account") or "",
            vc=self.field(row, "vc") or "",
            began_at=facts.started_at,
            ended_at=at,
            gpu_s=before + facts.held_since(at) * ledger.gpus_of(run),
        )

    def elements(self, first: JobId) -> list[JobId]:
        """The elements in memory of the array whose first id this is, in order; else none."""
        return sorted(self._elements.get(first, ()))

    def _note_element(self, row: Job) -> None:
        spec = row.request.spec
        if isinstance(spec, JobSpec) and spec.array is not None and row.job not in self._array:
            first = self._array[row.job] = JobId(row.job - spec.index)
            self._elements.setdefault(first, {})[row.job] = None

    def of(self, job: JobId) -> Facts:
        """The facts of a job; empty ones for a new job."""
        found = self.facts.get(job)
        if found is None:
            found = self.facts[job] = Facts(job=job)
        return found

    @staticmethod
    def spec(row: Job) -> JobSpec:
        """A job's spec, as it was submitted."""
        spec = row.request.spec
        if isinstance(spec, JobSpec):
            return spec
        body = JobBody(name="", gang=row.request.gang)
        return JobSpec(body=body, user=row.request.user, uid=-1, submitted_at=0.0)

    def field(self, row: Job, name: str) -> Any:
        """A field of a job's body, updates included."""
        found = self.facts.get(row.job)
        if found is not None and name in found.updated:
            return found.updated[name]
        spec = row.request.spec
        return (spec if isinstance(spec, JobSpec) else self.spec(row)).field(name)

    def body(self, row: Job) -> JobBody:
        """What a job asks for, updates included."""
        found, body = self.facts.get(row.job), self.spec(row).body
        updated = {} if found is None else found.updated
        return replace(body, **{name: v for name, v in updated.items() if name in _OF_BODY})

    def array_limit(self, row: Job) -> int:
        """How many elements of a job's array may run at once; 0 for all."""
        shape, found = self.spec(row).array, self.facts.get(row.job)
        known = None if found is None else found.updated.get("array_limit")
        return int(known) if known is not None else shape.limit if shape is not None else 0

    def observe(
        self, before: Ledger, after: Ledger, changes: Changes, now: float, at: float
    ) -> set[JobId]:
        """Follow one committed transaction; returns the jobs that it changed.

        Args:
            before: the committed ledger before it.
            after: the committed ledger after it.
            changes: of the transaction.
            now: seconds of `boottime`.
            at: the wall clock.
        """
        changed = {write.job for write in changes.of(change.Submit)}
        for write in changes.of(*(changes.kinds - OF_SUBMISSIONS)):
            if (job := job_changed(write, after)) is not None:
                changed.add(job)
        for row in changes.of(*_FOLLOWED):
            self._attached(row, after, changed)
        for event in changes.of(Event):
            if event.kind == "cancel" and event.job is not None:
                facts = self.of(event.job)
                facts.cancelled_by = facts.cancelled_by or event.actor
                changed.add(event.job)
        for job in changed:
            row = after.jobs.get(job)
            if row is not None:
                self._note_element(row)
                self._follow(before, after, row, now, at)
        return changed

    def _attached(self, row: object, ledger: Ledger, changed: set[JobId]) -> None:
        match row:
            case ClockMoved():
                for job, each in ledger.jobs.items():
                    self.of(job).move_times(row, self.spec(each).submitted_at)
                return
            case JobServed(job=job):
                self.of(job).served = row
            case RunServed(run_id=run_id, received=received):
                run = ledger.runs.get(run_id)
                if run is None:
                    return
                job = run.key.job
                self.of(job).received = run_id, received
            case HoldChanged(job=job, held=held):
                self.of(job).held = held
            case FieldsChanged(job=job, fields=updated):
                facts = self.of(job)
                facts.updated = {**facts.updated, **updated}
            case CheckpointCommitted(job=job):
                self.of(job).checkpoint = row
            case CheckpointsMarked(job=job, paths=paths):
                newest = self.of(job).checkpoint
                if newest is None or newest.path not in paths:
                    return
                self.of(job).checkpoint = None
            case _:
                return
        changed.add(job)

    def _follow(self, before: Ledger, after: Ledger, row: Job, now: float, at: float) -> None:
        facts = self.of(row.job)
        facts.preemptions = row.preemptions
        ended = at
        for run in after.runs_of_job(row.job) if row.runs else ():
            old = before.runs.get(run.key.run_id)
            if old is not run:
                self._follow_run(facts, row, old, run, now, at)
                ends = run.is_over and run.follows is None
                if ends and old is not None and old.released and not old.is_over:
                    ended = ended_at(run, at)
        if not row.status.is_terminal:
            facts.ended_at = None
        elif facts.ended_at is None:
            facts.ended_at = max(ended, facts.started_at or ended)

    def _follow_run(
        self, facts: Facts, row: Job, old: Run | None, run: Run, now: float, at: float
    ) -> None:
        more, clock = growth_of(old, run, row), facts.clock
        if more.starts:
            facts.started_at = at
            clock.start(now)
            facts.starts += more.starts
            if facts.first_started_at is None:
                facts.first_started_at = at
        was = old is not None and old.suspended
        if run.suspended and not was:
            clock.suspend(now)
        elif was and not run.suspended and not run.is_over:
            clock.resume(now)
        if run.is_over and run.follows is None and not (old is not None and old.is_over):
            clock.end()
        facts.migrations += more.migrations
        facts.resizes += more.resizes
