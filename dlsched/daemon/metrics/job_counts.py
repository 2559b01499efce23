"""Counts of what becomes of jobs, and how long they wait, since this process began to lead.

A job counts when a transaction about it is committed. What happened before this process led is not
counted, so the counters of a restarted daemon begin at 0, as Prometheus expects.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from dlsched.daemon.leader_driver import LeaderDriver, LedgerFollower
from dlsched.daemon.writer import TermBegun
from dlsched.db.rows import state_word
from dlsched.protocol.ledger import Assign, Changes, Job, JobStatus, MemberOver, Submit
from dlsched.protocol.messages import JobId

NO_VC = "-"  # the label of jobs without a virtual cluster, as listings have it
ENDED = (
    *("completed", "failed", "timeout", "cancelled"),
    *("node_fail", "gpu_fail", "preempted", "deadline", "out_of_memory"),
)
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
WAITS = (1, 10, *(_MINUTE * n for n in (1, 5, 20)), *(_HOUR * n for n in (1, 3, 8)),
         *(_DAY * n for n in (1, 3, 7)))  # fmt: skip


class JobCounts(LedgerFollower):
    """Follows the jobs of a cluster and counts."""

    def __init__(self, driver: LeaderDriver, registry: CollectorRegistry) -> None:
        """Follow a leader's committed transactions, and count into a registry."""
        self._driver = driver
        self._preempted: dict[JobId, int] = {}  # how often each live job was, so far
        self._waiting: set[JobId] = set()  # live jobs that have never started
        self._submitted = Counter("dlsched_jobs_submitted", "Jobs submitted", registry=registry)
        self._starts = Counter(
            "dlsched_job_starts", "Runs that got their GPUs, the first of a job or a later one",
            registry=registry,
        )  # fmt: skip
        self._preemptions = Counter(
            "dlsched_job_preemptions", "Runs that gave way to other jobs", registry=registry
        )
        self._ended = Counter(
            "dlsched_jobs_ended", "Jobs that have ended, by state", ["state"], registry=registry
        )
        for state in ENDED:
            self._ended.labels(state)
        self._waits = Histogram(
            "dlsched_job_wait_seconds",
            "From a job's submission, or its --begin, to its first start",
            ["vc"], buckets=WAITS, registry=registry,
        )  # fmt: skip
        driver.follow(self)

    def term_began(self, term: TermBegun) -> None:
        """Take the jobs that the database has as known."""
        live = [row for row in term.loaded.ledger.jobs.values() if not row.status.is_terminal]
        self._preempted = {row.job: row.preemptions for row in live}
        facts_of = self._driver.table.of
        self._waiting = {row.job for row in live if facts_of(row.job).first_started_at is None}

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Count what a transaction has changed."""
        fresh = {write.job for write in changes.of(Submit)}
        self._submitted.inc(len(fresh))
        self._waiting |= fresh
        self._preempted |= dict.fromkeys(fresh, 0)
        self._starts.inc(sum(map(_starts, changes.of(Assign, MemberOver))))
        jobs = self._driver.committed.jobs
        for job in changed:
            row = jobs.get(job)
            if row is not None and (job not in fresh or row.status is not JobStatus.PENDING):
                self._follow(row)

    def _follow(self, row: Job) -> None:
        job, ended = row.job, row.status.is_terminal
        if job not in self._preempted:
            if not ended:  # it had ended, and is queued again
                self._preempted[job] = row.preemptions
            return
        if row.preemptions > self._preempted[job]:
            self._preemptions.inc(row.preemptions - self._preempted[job])
        self._preempted[job] = row.preemptions
        if job in self._waiting:
            self._note_wait(row)
        if ended:
            self._ended.labels(state_word(row).lower()).inc()
            self._waiting.discard(job)
            del self._preempted[job]

    def _note_wait(self, row: Job) -> None:
        table = self._driver.table
        facts = table.of(row.job)
        if facts.first_started_at is None:
            return
        self._waiting.discard(row.job)
        since = max(
            table.spec(row).submitted_at + facts.moved_s, table.field(row, "begin_at") or 0.0
        )
        vc = table.field(row, "vc") or NO_VC
        self._waits.labels(vc).observe(max(0.0, facts.first_started_at - since))


def _starts(write: Assign | MemberOver) -> bool:
    """Whether a job's next run has its GPUs from then on."""
    return isinstance(write, Assign) or write.again is not None
