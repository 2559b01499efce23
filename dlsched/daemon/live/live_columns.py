"""Jobs, nodes and GPUs as columns, as the reserved ledger has them.

They follow every change of the ledger; a new term begins with new ones, made of what the database
has.

Invariant: the columns are what a recount from the ledger and the times of its changes gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.claims import Claims
from dlsched.daemon.live.dependencies import JobOutcome, outcome_of
from dlsched.daemon.live.eligibility import Eligibility
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.job_requests import JobRequests
from dlsched.daemon.live.next_runs import NextRuns
from dlsched.daemon.live.node_ranges import NodeRanges
from dlsched.daemon.live.nodes import ClusterRules, LiveNodes, natural
from dlsched.daemon.live.placement_constraints import PlacementConstraints
from dlsched.daemon.live.run_accounting import RunAccounting
from dlsched.daemon.reported.speeds import SpeedTable
from dlsched.daemon.reported.training_profiles import TrainingProfiles
from dlsched.db.reading.loading import JobFacts, Loaded
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import (
    CheckpointCommitted,
    Drained,
    FieldsChanged,
    HoldChanged,
    NodeDescribed,
    Progress,
)
from dlsched.protocol.ledger import (
    OF_SUBMISSIONS,
    Changes,
    Job,
    JobStatus,
    Ledger,
    Run,
    has_handed_over,
    has_lost_hardware,
)
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.messages import JobId, NodeName

# changes that take something and give nothing: after them no further job can start
_ONLY_TAKE = {change.Assign, change.ReleaseRun, change.StopRun}
_OF_NODES = (
    change.Adopt,
    change.RegisterNode,
    change.SetNode,
    change.Quarantine,
    change.OrphanOver,
)
_FOLLOWED = frozenset(  # attached records that change what is here
    {HoldChanged, FieldsChanged, Progress, CheckpointCommitted, NodeDescribed, Drained}
)
LEARN_FROM = 512  # ended jobs that stay for policies to learn from


class LiveColumns:
    """The jobs, nodes and GPUs of this term.

    Attributes:
        rules: partitions and virtual clusters.
        jobs: the job columns.
        requests: what jobs ask for.
        constraints: where jobs may run.
        nodes: the nodes and their GPUs.
        accounting: where runs are and what they have done.
        eligibility: which jobs policies may see, and why not the others.
        ended: outcomes of jobs that are not live any more and that live jobs depend on.
        claims: GPUs that rounds gave and that are not free yet, by job.
        next_runs: runs that are being made ready beside the present ones of their jobs.
        finished: jobs that have completed and are still in the columns, in order.
        speeds: measured speeds of trainings.
        trainings: what elastic jobs have reported.
        origin: seconds since the epoch (UTC) at which the policy's clock shows 0.
        changed: whether something has happened since the last decision that could start a job.
    """

    def __init__(
        self,
        rules: ClusterRules | None = None,
        *,
        origin: float = 0.0,
        learn_from: int = LEARN_FROM,
        speeds: SpeedTable | None = None,
        trainings: TrainingProfiles | None = None,
    ) -> None:
        """Make a state without jobs and nodes.

        Args:
            rules: partitions and virtual clusters.
            origin: seconds since the epoch (UTC) at which the policy's clock shows 0.
            learn_from: how many ended jobs stay for policies to learn from.
            speeds: measured speeds of trainings.
            trainings: what elastic jobs have reported.
        """
        self.rules = rules or ClusterRules()
        self.origin = origin
        self.speeds = speeds or SpeedTable()
        self.trainings = trainings or TrainingProfiles()
        self.jobs = JobColumns()
        self.jobs.usage.half_life_s = self.rules.site.half_life_s
        self.nodes = LiveNodes()
        self.constraints = PlacementConstraints(self.rules)
        self.requests = JobRequests(self.jobs, self.constraints, origin=origin)
        self.ranges = NodeRanges(self.jobs, self.nodes, self.requests, self.constraints)
        self.accounting = RunAccounting(self.jobs, self.nodes)
        self.claims = Claims(self.jobs, self.nodes, self.accounting)
        self.next_runs = NextRuns(self.jobs, self.requests, self.nodes, self.accounting)
        self.ended: dict[JobId, JobOutcome] = {}
        self.eligibility = Eligibility(self.jobs, self.requests.specs, self.ended)
        self.eligibility.limit_partitions(self.rules.longest_s, self.rules.access)
        self.finished: list[int] = []
        self.changed = False
        self._learn_from = learn_from
        self._ended_rows = 0
        self._now = -math.inf  # of the latest change or judgement
        self._stamp = self._seen = 0
        self._reasons: dict[int, str] = {}
        self._positions: dict[int, int] = {}
        self._terms: Mapping[str, Floats] = {}  # by position, from 0

    # -- loading -----------------------------------------------------------------------------------

    def successor(
        self, loaded: Loaded, now: float, ended: Mapping[JobId, StoredJob] | None = None
    ) -> Self:
        """A new state of what the database has, with the rules and beliefs of this one.

        `now` is of the policy's clock; `ended` are ended jobs that live ones depend on.
        """
        new = type(self)(
            self.rules,
            origin=self.origin,
            learn_from=self._learn_from,
            speeds=self.speeds,
            trainings=self.trainings,
        )
        for stored in (ended or {}).values():
            new.note_ended(stored)
        new._load(loaded, now)
        return new

    def _load(self, loaded: Loaded, now: float) -> None:
        ledger, self._now = loaded.ledger, now
        for used in loaded.usage:
            owner = used.user_name, used.account, used.vc
            self.jobs.usage.restore(owner, used.gpu_s, used.at - self.origin)
        for name in sorted(ledger.nodes, key=natural):
            self.nodes.refresh(ledger, name)
        for name, facts in loaded.nodes_described.items():
            self.nodes.describe(name, self.constraints.facts(facts))
        for name, drained in loaded.drained.items():
            self.nodes.set_drained(name, drained.drained)
        jobs = [ledger.jobs[job_id] for job_id in sorted(ledger.jobs)]
        jobs = [job for job in jobs if not job.status.is_terminal]
        self._submit(jobs, now)
        for job in jobs:
            job_id = job.job
            self._see_spares(ledger, job_id)
            self._restore(job, loaded.jobs.get(job_id, JobFacts(job=job_id)))
            run = ledger.live_run(job_id)
            if run is not None:
                started = loaded.run_times.get(run.key.run_id, (None, None))[0]
                since = now if started is None else min(started - self.origin, now)
                self.ranges.keep(job_id, len(run.members))
                self.accounting.begin(job_id, run, since, counts=False)
                self.accounting.follow(job_id, run, now)
            self.next_runs.see(ledger, job_id, now)
            self._see_orphan(ledger, job_id)
        self.requests.highest = ledger.next_job - 1
        self.changed = True

    def _restore(self, job: Job, facts: JobFacts) -> None:
        """Set what the database has of a job's earlier runs, and its updates."""
        self._hold(job.job, facts.held)
        if facts.updated:
            self._update(job.job, facts.updated)
        first, progress = facts.first_started_at, facts.progress
        saved = facts.executed_s if facts.checkpoint is not None else 0.0
        loss = None if progress is None else progress.loss
        self.jobs.set(
            self.jobs.row_of[job.job],
            held_s=facts.executed_s,
            executed=saved,
            saved=saved,
            lost_s=facts.executed_s - saved,
            attained=facts.gpu_s,
            starts=facts.starts,
            preemptions=facts.preemptions,
            migrations=facts.migrations,
            resizes=facts.resizes,
            first_start=np.nan if first is None else first - self.origin,
            runs=job.runs,
            steps_done=np.nan if progress is None else progress.step,
            loss=loss if loss is not None and np.isfinite(loss) else np.nan,
        )

    def revive(self, jobs: Mapping[JobId, tuple[Job, JobFacts]], now: float) -> None:
        """Enter ended jobs again that are pending now.

        Args:
            jobs: as the ledger has them, each with what the database has of its earlier runs.
            now: seconds of the policy's clock.
        """
        there = jobs.keys() & self.jobs.row_of.keys()
        if there:
            self.jobs.pack(~np.isin(self.jobs["job"], list(there)))
            self.finished = [other for other in self.finished if other not in there]
            self._ended_rows -= len(there)
        specs = self.requests.submit([jobs[job][0] for job in sorted(jobs)], now)
        self.jobs.sort()
        for number, (job, facts) in jobs.items():
            self.ended.pop(number, None)
            self.eligibility.enter_again(number, specs[number])
            self._restore(job, facts)

    def note_ended(self, stored: StoredJob) -> None:
        """Note the outcome of an ended job that live ones depend on."""
        self.ended[stored.job.job] = outcome_of(stored)

    # -- following the ledger ----------------------------------------------------------------------

    def apply(self, changes: Changes, ledger: Ledger, now: float) -> None:
        """Follow changes of the reserved ledger, which is given as it is after them.

        `now` is of the policy's clock; the changes include attached records.
        """
        self._now = now
        touched: dict[JobId, None] = {}
        nodes: dict[NodeName, None] = {}
        new = [write.job for write in changes.of(change.Submit)]
        self._submit([ledger.jobs[job] for job in new if job not in self.jobs.row_of], now)
        for write in changes.of(*_FOLLOWED, *(changes.kinds - OF_SUBMISSIONS)):
            if type(write) in _FOLLOWED:
                if (job := self._attach(write, ledger, now)) is not None:
                    touched[job] = None
                continue
            if isinstance(write, change.RegisterNode):
                self.nodes.register(write.node, write.inventory.gpus, write.inventory.gpu_type)
            if (job := change.job_changed(write, ledger)) is not None:
                touched[job] = None
            if isinstance(write, _OF_NODES):
                nodes[write.node] = None
            if isinstance(write, change.OrphanOver):
                touched.update(dict.fromkeys(self.jobs["job"][self.jobs["orphan"]].tolist()))
        for node in nodes:
            self.nodes.refresh(ledger, node)
        for job in touched:
            self._refresh_job(ledger, job, now)
            if nodes:
                self._see_orphan(ledger, job)
        if changes.kinds - _ONLY_TAKE:
            self.request_round()
        self._pack()

    def request_round(self) -> None:
        """Note that something has changed that could start a job: a round must look at it."""
        self.changed = True
        self._stamp += 1

    def _attach(self, row: object, ledger: Ledger, now: float) -> JobId | None:
        """Follow an attached record; returns the job whose fields it changes, if any."""
        match row:
            case HoldChanged(job=job, held=held):
                self._hold(job, held)
            case FieldsChanged(job=job, fields=fields):
                self._update(job, fields)
                return job
            case Progress(run_id=run_id, restart_s=restart) if restart is not None:
                self.accounting.restarted(ledger, run_id, restart)
            case CheckpointCommitted(job=job, run_id=run_id):
                self.accounting.checkpoint(job, run_id, now)
            case NodeDescribed(node=node, facts=facts):
                self.nodes.describe(node, self.constraints.facts(facts))
            case Drained(node=node, drained=drained):
                self.nodes.set_drained(node, drained)
        return None

    def _submit(self, jobs: list[Job], now: float) -> None:
        for job, spec in self.requests.submit(jobs, now).items() if jobs else ():
            self.eligibility.enter(job, spec)

    def _hold(self, job: JobId, held: str) -> None:
        row = self.jobs.row_of.get(job)
        if row is None:
            return
        self.jobs["held"][row] = bool(held)
        self.eligibility.held_by.pop(job, None)
        if held:
            self.eligibility.held_by[job] = held

    def _update(self, job: JobId, fields: Mapping[str, object]) -> None:
        if self._is_live(job):
            self.eligibility.note(job, self.requests.update(job, fields))

    def _is_live(self, job: int) -> bool:
        row = self.jobs.row_of.get(job)
        return row is not None and self.jobs.get("phase", row) != c.ENDED

    def _refresh_job(self, ledger: Ledger, job_id: JobId, now: float) -> None:
        """Bring one job's row to what the ledger has."""
        if not self._is_live(job_id):
            return
        job, run = ledger.jobs.get(job_id), ledger.live_run(job_id)
        if run is not None and self.accounting.run_ids.get(job_id) not in (None, run.key.run_id):
            before = ledger.runs.get(self.accounting.run_ids[job_id])
            handed = before is not None and has_handed_over(before)
            self.accounting.leave(job_id, now, takes_over=handed)
        if run is None and job_id in self.accounting.run_ids:
            self.accounting.leave(job_id, now, ledger)
        elif run is not None:
            self._follow(job_id, run, now)
        self.next_runs.see(ledger, job_id, now)
        if job is None or job.status.is_terminal:
            self._end(job_id, job, now)
        else:
            self.jobs.set(self.jobs.row_of[job_id], runs=job.runs)
            self._see_spares(ledger, job_id)

    def _see_spares(self, ledger: Ledger, job: JobId) -> None:
        """Let a job use spare nodes if its last run has lost hardware, or is on a spare node."""
        runs = ledger.runs_of_job(job) if self.rules.spares else []
        if runs:
            on_spare = not runs[-1].is_over and not self.rules.spares.isdisjoint(runs[-1].members)
            self.requests.allow_spares(job, on_spare or has_lost_hardware(runs[-1]))

    def _follow(self, job: JobId, run: Run, now: float) -> None:
        """Follow a job's live run."""
        row = self.jobs.row_of[job]
        if job not in self.accounting.run_ids:
            is_first = math.isnan(self.jobs.get("first_start", row))
            self.ranges.keep(job, len(run.members))
            self.accounting.begin(job, run, now, counts=True)
            self.claims.drop(job)
            self._reasons.pop(job, None)
            if is_first:
                self.eligibility.judge_dependents_of(job)
        elif not run.suspended and self.jobs.get("phase", row) in (c.SUSPENDED, c.AWAY):
            self.claims.drop(job)
        self.accounting.follow(job, run, now)

    def _end(self, job_id: JobId, job: Job | None, now: float) -> None:
        row = self.jobs.row_of[job_id]
        succeeded = job is not None and job.status is JobStatus.COMPLETED
        self.jobs.set(
            row, phase=c.ENDED, finish=now, outcome=c.COMPLETED if succeeded else c.FAILED
        )
        if succeeded:  # all that it did counts
            executed = self.jobs.get("held_s", row) - self.jobs.get("overhead_s", row)
            self.jobs.set(row, executed=executed)
            self.finished.append(job_id)
        self._ended_rows += 1
        self.claims.drop(job_id)
        self.requests.end(job_id)
        self.trainings.forget(job_id)
        self.eligibility.forget(job_id, self.requests.specs[job_id])
        self._reasons.pop(job_id, None)
        self._positions.pop(job_id, None)

    def _see_orphan(self, ledger: Ledger, job: JobId) -> None:
        row = self.jobs.row_of.get(job)
        if row is not None:
            alive = any(orphan.held.key.job == job for orphan in ledger.orphans.values())
            self.jobs.set(row, orphan=alive)

    def _pack(self) -> None:
        """Drop the rows of jobs that ended long ago."""
        if self._ended_rows <= max(2 * self._learn_from, self.jobs.count // 2):
            return
        recent = set(self.finished[max(len(self.finished) - self._learn_from, 0) :])
        ended = self.jobs["phase"] == c.ENDED
        keep = ~ended | np.isin(self.jobs["job"], np.fromiter(recent, np.int64))
        for job in self.jobs.pack(keep):
            self.requests.specs.pop(job, None)
        self.finished = [job for job in self.finished if job in recent]
        self._ended_rows = len(recent)
