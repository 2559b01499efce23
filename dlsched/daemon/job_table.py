"""What users see of jobs beside the ledger: times, counts, holds, updates, progress.

The table follows *committed* changes, so nothing in it can be lost with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dlsched.core.service_clock import RunClock
from dlsched.db.checkpoints import CheckpointsMarked
from dlsched.db.reading.loading import JobFacts
from dlsched.db.records import (
    CheckpointCommitted,
    Event,
    FieldsChanged,
    HoldChanged,
    JobBody,
    JobSpec,
    Progress,
)
from dlsched.db.rows import ended_at, executed_s, gpu_s, growth_of
from dlsched.protocol.ledger import (
    OF_SUBMISSIONS,
    Changes,
    Job,
    Ledger,
    Run,
    has_handed_over,
    job_changed,
)
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.messages import JobId, RunId, StepRecord

_OF_BODY = {each.name for each in fields(JobBody)}
_FOLLOWED = (Progress, HoldChanged, FieldsChanged, CheckpointCommitted, CheckpointsMarked)


@dataclass(slots=True, kw_only=True)
class Facts(JobFacts):
    """One job's history in numbers, with what only this process knows of its present run."""

    clock: RunClock = field(default_factory=RunClock)  # of the present run, in boottime
    last_run_s: float = 0.0  # of the last run that is over
    handed_s: float = 0.0  # that runs which have handed over did after their last checkpoint
    step: int | None = None
    calls: tuple[RunId, tuple[StepRecord, ...]] | None = None  # of `srun`, in a run

    def executed_now(self, now: float) -> float:
        """Executed seconds of all runs up to now."""
        return self.executed_s + self.clock.seconds(now)

    def restarted(self, seconds: float) -> None:
        """Note the seconds from the present run's start to its first step."""
        total = (self.restart_s or 0.0) * self.restarts - self.run_restart_s
        self.restarts += not self.run_restart_s  # a run may report its start again
        self.run_restart_s = seconds
        self.restart_s = (total + seconds) / self.restarts


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
            case Progress(run_id=run_id, restart_s=seconds) if seconds is not None:
                run = ledger.runs.get(run_id)
                if run is None or ledger.live_run(run.key.job) is not run:
                    return
                job = run.key.job
                self.of(job).restarted(seconds)
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
                if ends and not (old is not None and old.is_over):
                    self._lose(facts, run, is_last=row.status.is_terminal and after.is_newest(run))
                    if old is not None and old.released:
                        ended = ended_at(run, at)
        if not row.status.is_terminal:
            facts.ended_at = None
        elif facts.ended_at is None:
            facts.ended_at = max(ended, facts.started_at or ended)

    def _lose(self, facts: Facts, run: Run, *, is_last: bool) -> None:
        """Count as lost what a run did after its checkpoint, unless the job ended with the run.

        What a run did that has handed over is lost only with the run that has its state.
        """
        lost = 0.0
        if not is_last:
            saved = facts.checkpoint
            kept = saved.executed_s if saved and saved.run_id == run.key.run_id else 0.0
            lost = max(facts.last_run_s - kept, 0.0) + (0.0 if kept else facts.handed_s)
            facts.handed_s = lost if has_handed_over(run) else 0.0
            lost -= facts.handed_s
        facts.lost_s += lost
        facts.starting_s += min(facts.run_restart_s, max(facts.last_run_s - lost, 0.0))
        facts.run_restart_s = 0.0

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
        if run.follows is not None:
            facts.gpu_s += more.gpu_s
            return
        if run.is_over and not (old is not None and old.is_over):
            facts.last_run_s = executed_s(run) or clock.seconds(now)
            facts.executed_s += facts.last_run_s
            facts.gpu_s += gpu_s(run, row)
            clock.end()
        facts.migrations += more.migrations
        facts.resizes += more.resizes
