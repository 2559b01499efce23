"""What users are shown of a job beyond the ledger: times, counts, holds, updates, progress.

It follows the *committed* changes, so nothing in it can be lost with the process. `version` of a
job grows with every change, which is what listings are cached by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dlsched.db.records import (
    CheckpointCommitted,
    Event,
    FieldsChanged,
    HoldChanged,
    JobBody,
    JobSpec,
    Progress,
)
from dlsched.protocol.ledger import (
    Adopt,
    Assign,
    Attach,
    CancelJob,
    ChangeTerms,
    Job,
    JobStatus,
    Ledger,
    LetGo,
    MemberOver,
    OrphanOver,
    ReleaseRun,
    Run,
    StopRun,
    Submit,
    SuspendRun,
    Write,
)
from dlsched.protocol.messages import JobId, RunId, StopReason

__all__ = ["Facts", "JobTable", "job_of"]


@dataclass(slots=True, kw_only=True)
class Facts:
    """One job's history in numbers; wall-clock times are for display."""

    job: JobId
    held: str = ""
    updated: dict[str, Any] = field(default_factory=dict)
    first_started_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    executed_s: float = 0.0
    gpu_s: float = 0.0
    starts: int = 0
    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    lost_s: float = 0.0
    restarts: int = 0  # starts that were measured
    restart_s: float | None = None  # of one of them, the mean
    starting_s: float = 0.0  # of those of runs that are over what is not in `lost_s`
    run_restart_s: float = 0.0  # that of the present run
    cancelled_by: str = ""
    running_since: float | None = None  # boottime: executing, not suspended
    run_executed_s: float = 0.0  # of the present run, before `running_since`
    last_run_s: float = 0.0  # of the last run that is over
    checkpoint: CheckpointCommitted | None = None
    step: int | None = None
    version: int = 0

    def executed_now(self, now: float) -> float:
        """Executed seconds of all runs up to now."""
        current = now - self.running_since if self.running_since is not None else 0.0
        return self.executed_s + self.run_executed_s + current

    def restarted(self, seconds: float) -> None:
        """The present run has done its first step."""
        total = (self.restart_s or 0.0) * self.restarts - self.run_restart_s
        self.restarts += not self.run_restart_s  # what a run says again is the same start
        self.run_restart_s = seconds
        self.restart_s = (total + seconds) / self.restarts

    def run_now(self, now: float) -> float:
        """Executed seconds of the present run up to now."""
        current = now - self.running_since if self.running_since is not None else 0.0
        return self.run_executed_s + current


def job_of(write: Write, ledger: Ledger) -> JobId | None:  # noqa: PLR0911  # one case a change
    """The job that a change is about."""
    match write:
        case Submit(job=job) | CancelJob(job=job) | ChangeTerms(job=job):
            return job
        case Assign(key=key):
            return key.job
        case Adopt(held=held):
            return held.key.job
        case OrphanOver(exit=record) if record is not None:
            return record.key.job
        case ReleaseRun(run_id=run_id) | StopRun(run_id=run_id) | SuspendRun(run_id=run_id):
            return _job_of_run(ledger, run_id)
        case MemberOver(run_id=run_id) | LetGo(run_id=run_id):
            return _job_of_run(ledger, run_id)
    return None


def _job_of_run(ledger: Ledger, run_id: RunId) -> JobId | None:
    run = ledger.runs.get(run_id)
    return run.key.job if run is not None else None


class JobTable:
    """The facts of every job in memory."""

    def __init__(self) -> None:
        self.facts: dict[JobId, Facts] = {}
        self.version = 0

    def load(self, ledger: Ledger, known: Mapping[JobId, Any], now: float, at: float) -> None:
        """Take over what the database has; `known` is the store's facts by job."""
        self.facts = {}
        for job in ledger.jobs:
            mine = Facts(job=job)
            theirs = known.get(job)
            for each in fields(Facts):
                value = getattr(theirs, each.name, None)
                if value is not None and each.name not in ("version", "running_since"):
                    setattr(mine, each.name, value)
            mine.updated = dict(mine.updated)
            run = ledger.live_run(job)
            if run is not None and run.released and not run.suspended:
                since = mine.started_at if mine.started_at is not None else at
                mine.running_since = now - max(0.0, at - since)
            self.facts[job] = mine
        self.version += 1

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Ended jobs that have left the ledger's memory."""
        for job in jobs:
            self.facts.pop(job, None)
        self.version += 1

    def of(self, job: JobId) -> Facts:
        """The facts of a job; new ones for a job that was not there."""
        found = self.facts.get(job)
        if found is None:
            found = self.facts[job] = Facts(job=job)
        return found

    def spec(self, row: Job) -> JobSpec:
        """What a job is, as it was submitted."""
        spec = row.request.spec
        if isinstance(spec, JobSpec):
            return spec
        body = JobBody(name="", gang=row.request.gang)
        return JobSpec(body=body, user=row.request.user, uid=-1, submitted_at=0.0)

    def field(self, row: Job, name: str) -> Any:
        """A field of a job's body as it stands, updates included."""
        found = self.facts.get(row.job)
        if found is not None and name in found.updated:
            return found.updated[name]
        return getattr(self.spec(row).body, name)

    def array_limit(self, row: Job) -> int:
        """How many elements of a job's array may run at once; 0: all."""
        shape, found = self.spec(row).array, self.facts.get(row.job)
        known = None if found is None else found.updated.get("array_limit")
        return int(known) if known is not None else shape.limit if shape is not None else 0

    def observe(
        self, before: Ledger, after: Ledger, writes: Iterable[Write], now: float, at: float
    ) -> set[JobId]:
        """Follow one committed transaction; the jobs that it changed."""
        changed: set[JobId] = set()
        for write in writes:
            if isinstance(write, Attach):
                self._attached(write.row, after, changed)
            elif (job := job_of(write, after)) is not None:
                changed.add(job)
        for job in changed:
            row = after.jobs.get(job)
            if row is not None:
                self._follow(before, after, row, now, at)
        if changed:
            self.version += 1
        return changed

    def _attached(self, row: object, ledger: Ledger, changed: set[JobId]) -> None:
        match row:
            case Progress(run_id=run_id, restart_s=seconds) if seconds is not None:
                found = _job_of_run(ledger, run_id)
                live = None if found is None else ledger.live_run(found)
                if found is None or live is None or live.key.run_id != run_id:
                    return
                job = found
                self.of(job).restarted(seconds)
            case HoldChanged(job=job, held=held):
                self.of(job).held = held
            case FieldsChanged(job=job, fields=updated):
                self.of(job).updated.update(updated)
            case CheckpointCommitted(job=job):
                self.of(job).checkpoint = row
            case Event(kind="cancel", job=job, actor=actor) if job is not None:
                if not self.of(job).cancelled_by:
                    self.of(job).cancelled_by = actor
            case _:
                return
        changed.add(job)

    def _follow(self, before: Ledger, after: Ledger, row: Job, now: float, at: float) -> None:
        facts = self.of(row.job)
        facts.version += 1
        facts.preemptions = row.preemptions
        for run in after.runs_of_job(row.job):
            old = before.runs.get(run.key.run_id)
            if old is not run:
                self._follow_run(facts, old, run, now, at)
                if run.is_over and not (old is not None and old.is_over):
                    self._lose(facts, run, row)
        if row.status.is_terminal and facts.ended_at is None:
            facts.ended_at = at

    def _lose(self, facts: Facts, run: Run, row: Job) -> None:
        """What a run did since its checkpoint is done again, unless the job ended with it."""
        lost = 0.0
        if not (row.status.is_terminal and run.key.run == row.runs):
            saved = facts.checkpoint
            kept = saved.executed_s if saved and saved.run_id == run.key.run_id else 0.0
            lost = max(facts.last_run_s - kept, 0.0)
        facts.lost_s += lost
        facts.starting_s += min(facts.run_restart_s, max(facts.last_run_s - lost, 0.0))
        facts.run_restart_s = 0.0

    def _follow_run(self, facts: Facts, old: Run | None, run: Run, now: float, at: float) -> None:
        if run.released and not (old is not None and old.released):
            facts.started_at, facts.running_since, facts.run_executed_s = at, now, 0.0
            facts.starts += 1
            if facts.first_started_at is None:
                facts.first_started_at = at
        was = old is not None and old.suspended
        if run.suspended and not was and facts.running_since is not None:
            facts.run_executed_s += now - facts.running_since
            facts.running_since = None
        elif was and not run.suspended and not run.is_over:
            facts.running_since = now
        if run.is_over and not (old is not None and old.is_over):
            ran = [m.exit.ran_s for m in run.members.values() if m.exit is not None]
            told = max(ran, default=0.0)
            facts.last_run_s = told if told > 0 else facts.run_now(now)
            facts.executed_s += facts.last_run_s
            gpus = sum(len(m.gpus) for m in run.members.values())
            if run.released and facts.started_at is not None:
                facts.gpu_s += gpus * max(0.0, at - facts.started_at)
            facts.running_since, facts.run_executed_s = None, 0.0
            facts.migrations += run.stop is StopReason.MIGRATE
            facts.resizes += run.stop is StopReason.RESIZE


def is_waiting(row: Job) -> bool:
    """Whether a job waits for its next run."""
    return row.status is JobStatus.PENDING
