"""Jobs, nodes and GPUs as columns, as the reserved ledger has them.

They follow every change of the ledger; a new term begins with new ones, made of what the database
has.

Invariant: the columns are what a recount from the ledger and the times of its changes gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
from dlsched.db.served import JobServed, RunServed
from dlsched.db.usage import UsedByOwner
from dlsched.protocol.leader import unkillable
from dlsched.protocol.ledger import (
    LONGEST_PAUSE_S,
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
LEARN_FROM = 1024  # jobs that have completed last, which policies learn from


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
        clock_set_s: by how much the wall clock was set forward since the policy's clock began.
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
            learn_from: how many of the jobs that have completed last policies learn from.
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
        self.clock_set_s = 0.0
        self._usage_settled = False  # what all owners have used was brought up to now
        self.learn_from = learn_from
        self._ended_rows = 0
        self._highest_shown = 0  # the latest job that policies may know
        self._unsettled: set[JobId] = set()  # ended after the last accepted decision
        self._shown: frozenset[JobId] = frozenset()  # of them, in the last snapshot
        self._now = -math.inf  # of the latest change or judgement
        self._stamp = self._seen = 0
        self._reasons: dict[int, str] = {}
        self._positions: dict[int, int] = {}
        self._terms: Mapping[str, Floats] = {}  # by position, from 0

    # -- loading -----------------------------------------------------------------------------------

    def successor(
        self,
        loaded: Loaded,
        now: float,
        ended: Mapping[JobId, StoredJob] | None = None,
        learn_from: Iterable[StoredJob] = (),
    ) -> Self:
        """A new state of what the database has, with the rules and beliefs of this one.

        Args:
            loaded: what lives.
            now: seconds of the policy's clock.
            ended: ended jobs that live ones depend on.
            learn_from: ended jobs that policies are to know, in the order of their ends.
        """
        new = type(self)(
            self.rules,
            origin=self.origin,
            learn_from=self.learn_from,
            speeds=self.speeds,
            trainings=self.trainings,
        )
        for stored in (ended or {}).values():
            new.note_ended(stored)
        new._load(loaded, now, list(learn_from))
        return new

    def _load(self, loaded: Loaded, now: float, ended: Sequence[StoredJob]) -> None:
        ledger, self._now = loaded.ledger, now
        for used in loaded.usage:
            owner = used.user_name, used.account, used.vc
            at = min(used.at - self.origin, now)  # later: the clock was set back meanwhile
            self.jobs.usage.restore(owner, used.gpu_s, at, used.gpus)
        for name in sorted(ledger.nodes, key=natural):
            self.nodes.refresh(ledger, name)
        for name, facts in loaded.nodes_described.items():
            self.nodes.describe(name, self.constraints.facts(facts))
        for name, drained in loaded.drained.items():
            self.nodes.set_drained(name, drained.drained)
        jobs = [ledger.jobs[job_id] for job_id in sorted(ledger.jobs)]
        jobs = [job for job in jobs if not job.status.is_terminal]
        every = [*jobs, *(stored.job for stored in ended)]
        self._submit(sorted(every, key=lambda job: job.job), now)
        self._highest_shown = self.requests.highest
        for stored in ended:
            self._restore(stored.job, stored.facts, stored.facts.served, now)
            ended_at = stored.facts.ended_at or now + self.origin
            self._end(stored.job.job, stored.job, min(ended_at - self.origin, now))
        for job in jobs:
            job_id = job.job
            self._see_spares(ledger, job_id)
            known = loaded.jobs.get(job_id, JobFacts(job=job_id))
            self._restore(job, known, known.served, now)
            run = ledger.live_run(job_id)
            if run is not None:
                self.ranges.keep(job_id, len(run.members))
            if run is not None and known.served and known.served.run_id == run.key.run_id:
                self.accounting.take(job_id, run)
            elif run is not None:  # it began before accounts were kept
                started = loaded.run_times.get(run.key.run_id, (None, None))[0]
                since = now if started is None else min(started - self.origin, now)
                self.accounting.begin(job_id, run, since, counts=False)
                self._take_over(ledger, known, since)
                self.accounting.follow(job_id, run, now)
            self.next_runs.see(ledger, job_id, now)
            self._see_what_is_alive(ledger, job_id)
        self.requests.highest = ledger.next_job - 1
        self.changed = True

    def _restore(self, job: Job, facts: JobFacts, served: JobServed | None, now: float) -> None:
        """Set what a job has received so far, what it has reported, and its updates."""
        self._hold(job.job, facts.held)
        if facts.updated:
            self._update(job.job, facts.updated)
        row, progress = self.jobs.row_of[job.job], facts.progress
        loss = None if progress is None else progress.loss
        self.jobs.set(
            row,
            runs=job.runs,
            steps_done=np.nan if progress is None else progress.step,
            loss=loss if loss is not None and np.isfinite(loss) else np.nan,
        )
        if served is not None:
            known = served.moved(-self.origin - self.clock_set_s)
            if (ahead := known.account.since - now) > 0:  # the clock was set back meanwhile
                known = known.moved(-ahead)
                self.accounting.unstored.add(job.job)
            self.jobs.set(row, **known.account._asdict())
            if facts.received is not None:
                self.accounting.received[job.job] = facts.received
            self.jobs.set(
                row,
                measured_starts=known.measured_starts,
                failed_starts=known.failed_starts,
                not_before=min(known.not_before, now + LONGEST_PAUSE_S),
            )

    def _take_over(self, ledger: Ledger, facts: JobFacts, since: float) -> None:
        """Count how long the start of a job's live run took and what it saved, as it told."""
        told, saved = facts.progress, facts.checkpoint
        if told is not None and told.restart_s is not None:
            self.accounting.restarted(ledger, told.run_id, told.restart_s)
        if saved is not None:
            self.accounting.checkpoint(facts.job, saved.run_id, since + saved.executed_s)

    def revive(self, jobs: Mapping[JobId, tuple[Job, JobFacts]], now: float) -> None:
        """Enter ended jobs again that are pending now.

        Args:
            jobs: as the ledger has them, each with what the database has of its earlier runs.
            now: seconds of the policy's clock.
        """
        there = jobs.keys() & self.jobs.row_of.keys()
        served = {each.job: each for each in self._served(there)}
        received = self.accounting.received
        received = {job: received[job] for job in there if job in received}
        if there:
            self.jobs.pack(~np.isin(self.jobs["job"], list(there)))
            self.finished = [other for other in self.finished if other not in there]
            self._ended_rows -= len(there)
            self._unsettled -= there
        moved_s = {job: facts.moved_s for job, (_, facts) in jobs.items()}
        specs = self.requests.submit([jobs[job][0] for job in sorted(jobs)], now, moved_s)
        self.jobs.sort()
        for number, (job, facts) in jobs.items():
            self.ended.pop(number, None)
            self.eligibility.enter_again(number, specs[number])
            self._restore(job, facts, served.get(number, facts.served), now)
            row = self.jobs.row_of[number]
            if number in received:
                self.accounting.received[number] = received[number]
            if number in self.accounting.received:
                self.accounting.fall_back(number)
                self.jobs.set(row, since=now)
                self.accounting.unstored.add(number)

    def note_ended(self, stored: StoredJob) -> None:
        """Note the outcome of an ended job that live ones depend on."""
        self.ended[stored.job.job] = outcome_of(stored)

    # -- what is stored of it ----------------------------------------------------------------------

    def rows_to_store(self) -> list[JobServed | RunServed | UsedByOwner]:
        """What was counted since it was asked last: of jobs, their runs, and their owners.

        It belongs into the transaction of the changes that it follows.
        """
        jobs = sorted(job for job in self.accounting.unstored if job in self.jobs.row_of)
        usage, by_s = self.jobs.usage, self.origin + self.clock_set_s
        runs, self.accounting.unstored_runs = self.accounting.unstored_runs, {}
        owners = {self.jobs.get("owner", self.jobs.row_of[job]) for job in jobs}
        if self._usage_settled:
            owners = set(range(len(usage.owners)))
        self.accounting.unstored.clear()
        self._usage_settled = False
        return [
            *self._served(jobs),
            *(RunServed(run_id=run_id, received=each) for run_id, each in runs.items()),
            *(
                UsedByOwner(
                    user_name=usage.owners[number][0],
                    account=usage.owners[number][1],
                    vc=usage.owners[number][2],
                    gpu_s=usage.value.item(number),
                    at=usage.at.item(number) + by_s,
                    gpus=usage.gpus.item(number),
                )
                for number in sorted(owners)
            ),
        ]

    def _served(self, jobs: Iterable[int]) -> list[JobServed]:
        """What some jobs in the columns have received."""
        of = list(jobs)
        rows = [self.jobs.row_of[job] for job in of]
        return [
            JobServed(
                job=JobId(job),
                run_id=self.accounting.run_ids.get(job, ""),
                holds=self.jobs.get("phase", row) == c.HOLDING,
                account=account,
                measured_starts=self.jobs.get("measured_starts", row),
                failed_starts=self.jobs.get("failed_starts", row),
                not_before=self.jobs.get("not_before", row),
            ).moved(self.origin + self.clock_set_s)
            for job, row, account in zip(of, rows, self.jobs.accounts(rows), strict=True)
        ]

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
            if nodes or change.MemberOver in changes.kinds:
                self._see_what_is_alive(ledger, job)
        if changes.kinds - _ONLY_TAKE:
            self.request_round()
        self._pack()

    def clock_was_set(self, by_s: float) -> None:
        """Follow the wall clock, which was set; the policy's clock was not."""
        self.clock_set_s += by_s
        self.requests.origin = self.origin + self.clock_set_s

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
            self.accounting.leave(job_id, now, self._ended_at(job_id, ledger, now), keeps=handed)
        if run is None and job_id in self.accounting.run_ids:
            ends = job is None or job.status.is_terminal
            ended = self._ended_at(job_id, ledger, now)
            self.accounting.leave(job_id, now, ended, ledger, keeps=ends)
        elif run is not None:
            self._follow(job_id, run, now)
        self.next_runs.see(ledger, job_id, now)
        if job is None or job.status.is_terminal:
            self._end(job_id, job, now)
        else:
            self.jobs.set(self.jobs.row_of[job_id], runs=job.runs)
            self._see_spares(ledger, job_id)

    def _ended_at(self, job: JobId, ledger: Ledger, now: float) -> float:
        """When a job's run has ended that is over, in seconds of the policy's clock."""
        run = ledger.runs.get(self.accounting.run_ids[job])
        return self.accounting.ended_at(job, run, now, self.origin + self.clock_set_s)

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
        if succeeded:
            self.finished.append(job_id)
        self._ended_rows += 1
        if job_id <= self._highest_shown:
            self._unsettled.add(job_id)
        self.claims.drop(job_id)
        self.requests.end(job_id)
        self.trainings.forget(job_id)
        self.eligibility.forget(job_id, self.requests.specs[job_id])
        self._reasons.pop(job_id, None)
        self._positions.pop(job_id, None)

    def _see_what_is_alive(self, ledger: Ledger, job: JobId) -> None:
        """Note whether an earlier run of a job is alive, so that it cannot start."""
        row = self.jobs.row_of.get(job)
        if row is not None:
            alive = any(orphan.held.key.job == job for orphan in ledger.orphans.values())
            stuck = ledger.stuck_run(job)
            self.eligibility.note_stuck(job, "" if stuck is None else unkillable(stuck))
            self.jobs.set(row, orphan=alive or stuck is not None)

    @property
    def latest_finished(self) -> list[int]:
        """The jobs that policies learn from, in the order in which they have completed."""
        return self.finished[max(len(self.finished) - self.learn_from, 0) :]

    def _pack(self) -> None:
        """Drop the rows of jobs that ended long ago, and that the policy has settled."""
        settled = self._ended_rows - len(self._unsettled)
        if settled <= max(self.learn_from, self.jobs.count // 2):
            return
        recent = set(self.latest_finished)
        recent |= self.accounting.unstored | self._unsettled
        ended = self.jobs["phase"] == c.ENDED
        keep = ~ended | np.isin(self.jobs["job"], np.fromiter(recent, np.int64))
        for job in self.jobs.pack(keep):
            self.requests.specs.pop(job, None)
            self.accounting.received.pop(job, None)
        self.finished = [job for job in self.finished if job in recent]
        self._ended_rows = int(np.count_nonzero(self.jobs["phase"] == c.ENDED))
