"""The board: live jobs, nodes and GPUs as columns, as the reserved ledger has them.

It follows every change of the ledger and is what a round's snapshot is taken of. All of it is in
the main thread. What a policy took from a job is seen as taken at once, though the job may still be
leaving; what a policy gave on such GPUs is a *claim*, and becomes a start when they are free.

Invariant: the columns are what a recount from the ledger and the times of its changes gives; every
pending job has a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Ints
from dlsched.core.context import Mode
from dlsched.core.occupancy import Placement
from dlsched.daemon.round import columns as c
from dlsched.daemon.round.asks import Asks
from dlsched.daemon.round.columns import JobColumns
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.machines import ClusterRules, Machines, natural
from dlsched.daemon.round.parts import PreemptMode, RoundSettings
from dlsched.daemon.round.policy_state import claims_of
from dlsched.daemon.round.snapshot import Held, LiveSnapshot, Quota
from dlsched.daemon.round.waiting import Fate, Verdict, judge_dependencies
from dlsched.db.loading import JobFacts, Loaded
from dlsched.db.records import (
    CheckpointCommitted,
    Drained,
    FieldsChanged,
    HoldChanged,
    JobBody,
    JobSpec,
    NodeDescribed,
    Progress,
)
from dlsched.protocol.ledger import (
    Adopt,
    Assign,
    Attach,
    CancelJob,
    Job,
    JobStatus,
    Ledger,
    MemberOver,
    NodeStatus,
    OrphanOver,
    Quarantine,
    RegisterNode,
    ReleaseRun,
    Run,
    SetNode,
    StopRun,
    Submit,
    SuspendRun,
    Write,
)
from dlsched.protocol.messages import ExitReason, JobId, NodeName, RunId, Share, StopReason

__all__ = ["Board", "Claim"]

TAKEN_BACK = frozenset(
    {StopReason.PREEMPT, StopReason.MIGRATE, StopReason.RESIZE, StopReason.REQUEUE}
)
LONGEST_BACK_OFF_S = 60.0
LEARN_FROM = 512  # ended jobs that stay for policies to learn from
WAITING, RUNNING, FUTURE, COMPLETED, CANCELLED = 2, 3, 0, 4, 6  # core's Status, as plain numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """GPUs that a round gave to a job and that it cannot start on yet."""

    run: int  # the run that is to start there
    placement: Placement


class Board:
    """The live columns.

    Attributes:
        settings: how rounds are decided.
        rules: partitions and virtual clusters.
        origin: seconds since the epoch (UTC) at which the policy's clock shows 0.
        jobs: the job columns.
        machines: nodes and GPUs.
        claims: what rounds gave and is not free yet, by job.
        policy_state: what the last accepted decision left behind.
        round_number: of the last accepted decision.
        changed: has anything happened since the last accepted decision that a fill could use?
    """

    def __init__(
        self,
        settings: RoundSettings | None = None,
        rules: ClusterRules | None = None,
        *,
        origin: float = 0.0,
        fate_of: Callable[[JobId], Fate | None] | None = None,
        learn_from: int = LEARN_FROM,
        frees_suspended: bool = False,
    ) -> None:
        """An empty board.

        Args:
            settings: how rounds are decided.
            rules: partitions and virtual clusters.
            origin: see above.
            fate_of: what the database knows of a job that is live no more, for dependencies.
            learn_from: how many ended jobs stay for policies to learn from.
            frees_suspended: may another run have the GPUs of a suspended one? The protocol says
                no so far: then policies do not see suspended runs, nor their GPUs, and whoever
                gives way is requeued.
        """
        self.settings = settings or RoundSettings()
        self.rules = rules or ClusterRules()
        self.origin = origin
        self.jobs = JobColumns()
        self.machines = Machines()
        self.asks = Asks(self.rules)
        self.claims: dict[int, Claim] = {}
        self.policy_state = b""
        self.round_number = 0
        self.changed = False
        self._fate_of = fate_of or (lambda job: None)
        self._learn_from = learn_from
        self._frees_suspended = frees_suspended
        self._specs: dict[int, JobSpec] = {}
        self._where: dict[int, Placement] = {}  # live runs, suspended ones too
        self._run_ids: dict[int, RunId] = {}
        self._codes: dict[str, dict[str, int]] = {"user": {}, "account": {}, "vc": {}}
        self._finished: list[int] = []
        self._ended = 0
        self._highest = 0
        self._held_by: dict[int, str] = {}
        self._dependents: set[int] = set()
        self._verdicts: dict[int, tuple[Verdict, str]] = {}
        self._waited_for: dict[int, set[int]] = {}  # by job; 0: any job (singleton)
        self._again: dict[int, float] = {}  # when a dependency's delay is over
        self._arrays: dict[int, list[int]] = {}  # live elements by the array's first element
        self._reasons: dict[int, str] = {}
        self._positions: dict[int, int] = {}

    # -- loading -----------------------------------------------------------------------------------

    def load(self, loaded: Loaded, now: float) -> None:
        """Begin anew from what the database knows."""
        ledger = loaded.ledger
        self.__init__(  # type: ignore[misc]  # a board that is loaded is a new one
            self.settings,
            self.rules,
            origin=self.origin,
            fate_of=self._fate_of,
            learn_from=self._learn_from,
            frees_suspended=self._frees_suspended,
        )
        for name in sorted(ledger.nodes, key=natural):
            self._refresh_node(ledger, name)
        for name, facts in loaded.nodes_described.items():
            self._describe(name, facts)
        for name, drained in loaded.drained.items():
            machine = self.machines.get(name)
            if machine is not None:
                machine.drained = drained.drained
        for job_id in sorted(ledger.jobs):
            job = ledger.jobs[job_id]
            if job.status.is_terminal:
                continue
            facts_of_job = loaded.jobs.get(job_id, JobFacts(job=job_id))
            self._submit(job, now)
            self._recall(job, facts_of_job, now)
            run = ledger.live_run(job_id)
            if run is not None:
                started = loaded.run_times.get(run.key.run_id, (None, None))[0]
                since = now if started is None else min(started - self.origin, now)
                self._begin(job_id, run, since, counts=False)
                self._follow_run(job_id, run, now)
            self._see_orphan(ledger, job_id)
        self.round_number = loaded.round_number
        self._highest = ledger.next_job - 1
        self.policy_state = loaded.policy_state or b""
        if loaded.policy is not None:
            self.settings = self.settings.with_policy(loaded.policy.parts, loaded.policy.options)
        self.claims = {
            job: Claim(run=run, placement=placement)
            for job, run, placement in claims_of(self.policy_state, self.machines)
            if self._may_claim(job, run, placement)
        }
        self.changed = True

    def _recall(self, job: Job, facts: JobFacts, now: float) -> None:
        """What the database remembers of a job's earlier life."""
        row = self.jobs.row_of[job.job]
        self._hold(job.job, facts.held)
        if facts.updated:
            self._update(job.job, facts.updated)
        first = facts.first_started_at
        saved = facts.executed_s if facts.checkpoint is not None else 0.0
        self.jobs.set(
            row,
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
        )

    # -- following the ledger ----------------------------------------------------------------------

    def apply(self, writes: Iterable[Write], ledger: Ledger, now: float) -> None:
        """Follow changes of the reserved ledger.

        Args:
            writes: the changes, in order; attached records too.
            ledger: the reserved ledger after them.
            now: seconds of the policy's clock.
        """
        touched: dict[JobId, None] = {}
        nodes: dict[NodeName, None] = {}
        for write in writes:
            match write:
                case Submit(job=job):
                    if job not in self.jobs.row_of:
                        self._submit(ledger.jobs[job], now)
                    touched[job] = None
                case Assign(key=key):
                    touched[key.job] = None
                case ReleaseRun(run_id=run_id) | StopRun(run_id=run_id):
                    self._touch(ledger, run_id, touched)
                case SuspendRun(run_id=run_id) | MemberOver(run_id=run_id):
                    self._touch(ledger, run_id, touched)
                case CancelJob(job=job):
                    touched[job] = None
                case RegisterNode(node=node, inventory=inventory):
                    nodes[node] = None
                    self.machines.register(node, inventory.gpus, inventory.gpu_type)
                case SetNode(node=node) | Quarantine(node=node):
                    nodes[node] = None
                case Adopt(held=held, node=node):
                    touched[held.key.job] = None
                    nodes[node] = None
                case OrphanOver(node=node):
                    nodes[node] = None
                    touched.update(dict.fromkeys(self._orphaned()))
                case Attach(row=row):
                    self._attach(row, ledger, now, touched)
                case _:
                    pass
        for node in nodes:
            self._refresh_node(ledger, node)
        for job in touched:
            self._refresh_job(ledger, job, now)
            if nodes:
                self._see_orphan(ledger, job)
        if touched or nodes:
            self.changed = True
        self._pack()

    def _touch(self, ledger: Ledger, run_id: RunId, touched: dict[JobId, None]) -> None:
        run = ledger.runs.get(run_id)
        if run is not None:
            touched[run.key.job] = None

    def _attach(self, row: object, ledger: Ledger, now: float, touched: dict[JobId, None]) -> None:
        match row:
            case HoldChanged(job=job, held=held):
                self._hold(job, held)
                touched[job] = None
            case FieldsChanged(job=job, fields=fields):
                self._update(job, fields)
                touched[job] = None
            case Progress(run_id=run_id, restart_s=restart) if restart is not None:
                self._restarted(ledger, run_id, restart)
            case CheckpointCommitted(job=job, run_id=run_id):
                self._checkpoint(job, run_id, now)
            case NodeDescribed(node=node, facts=facts):
                self._describe(node, facts)
                self.changed = True
            case Drained(node=node, drained=drained):
                machine = self.machines.get(node)
                if machine is not None:
                    machine.drained = drained
                    self.changed = True
            case _:
                pass

    def _submit(self, job: Job, now: float) -> None:
        spec = job.request.spec
        if not isinstance(spec, JobSpec):
            spec = JobSpec(
                body=JobBody(name=str(job.job), gang=job.request.gang),
                user=job.request.user,
                uid=-1,
                submitted_at=now + self.origin,
            )
        self._specs[job.job] = spec
        self._highest = max(self._highest, job.job)
        self.jobs.append(job.job, since=now)
        self._enter(job.job, spec)
        if spec.array is not None:
            self._arrays.setdefault(job.job - spec.index, []).append(job.job)
        self._depend(job.job, spec)

    def _enter(self, job: int, spec: JobSpec) -> None:
        """What the user asked for, as it stands."""
        body, row = spec.body, self.jobs.row_of[job]
        submitted = spec.submitted_at - self.origin
        gang = body.gpus if body.gang is None else sum(body.gang)
        nodes = 1 if body.gang is None else len(body.gang)

        def number(value: float | None) -> float:
            return math.nan if value is None else float(value)

        self.jobs.set(
            row,
            submit_time=submitted,
            gang=max(gang, 1),
            min_gpus=-1 if body.min_gpus is None else body.min_gpus,
            max_gpus=-1 if body.max_gpus is None else body.max_gpus,
            cpus=number(body.cpus),
            memory_gb=number(body.memory_bytes) / 1e9 * nodes,
            priority=number(body.priority),
            weight=number(body.weight),
            deadline=number(body.deadline_at) - spec.submitted_at,
            time_limit=number(body.time_limit_s),
            expected=number(body.expected_s),
            user=self._code("user", spec.user),
            vc=self._code("vc", body.vc),
            begin_at=-math.inf if body.begin_at is None else body.begin_at - self.origin,
            pool=self.asks.enter(job, body),
        )

    def _code(self, kind: str, name: str) -> int:
        codes = self._codes[kind]
        return codes.setdefault(name, len(codes)) if name else -1

    def _hold(self, job: JobId, held: str) -> None:
        row = self.jobs.row_of.get(job)
        if row is None:
            return
        self.jobs.set(row, held=bool(held))
        self._held_by.pop(job, None)
        if held:
            self._held_by[job] = held

    def _update(self, job: JobId, fields: Mapping[str, object]) -> None:
        """Fields of a job's body are others now; what runs goes on as it started."""
        spec = self._specs.get(job)
        if spec is None or self.jobs.get("phase", self.jobs.row_of[job]) == c.ENDED:
            return
        values = {name: getattr(spec.body, name) for name in spec.body.__slots__}
        values |= {name: value for name, value in fields.items() if name in values}
        spec = JobSpec(
            body=JobBody(**values),
            user=spec.user,
            uid=spec.uid,
            submitted_at=spec.submitted_at,
            array=spec.array,
            index=spec.index,
        )
        self._specs[job] = spec
        self._enter(job, spec)
        self._depend(job, spec)

    def _refresh_job(self, ledger: Ledger, job_id: JobId, now: float) -> None:
        """Bring one job's row to what the ledger says."""
        row = self.jobs.row_of.get(job_id)
        if row is None or self.jobs.get("phase", row) == c.ENDED:
            return
        job, run = ledger.jobs.get(job_id), ledger.live_run(job_id)
        if run is not None and self._run_ids.get(job_id) not in (None, run.key.run_id):
            self._leave(job_id, now)
        if run is None and job_id in self._run_ids:
            self._leave(job_id, now, ledger)
        elif run is not None:
            if job_id not in self._run_ids:
                self._begin(job_id, run, now, counts=True)
            self._follow_run(job_id, run, now)
        if job is None or job.status.is_terminal:
            self._end(job_id, job, now)
        else:
            self.jobs.set(row, runs=job.runs)

    def _begin(self, job: JobId, run: Run, now: float, *, counts: bool) -> None:
        """A run has its GPUs."""
        row = self.jobs.row_of[job]
        members = run.members.values()
        where = self.machines.placement(Share(node=m.node, gpus=m.gpus) for m in members)
        gpus = sum(len(member.gpus) for member in members)
        self._run_ids[job] = run.key.run_id
        self._where[job] = where
        if not run.suspended or not self._frees_suspended:
            self.machines.take(where)
        self.claims.pop(job, None)
        self.jobs.set(
            row,
            phase=c.SUSPENDED if run.suspended else c.HOLDING,
            leaving=c.STAYS,
            since=now,
            progress_from=now,
            gpus_now=0 if run.suspended else gpus,
            runs=run.key.run,
            largest_scale=max(self.jobs.get("largest_scale", row), gpus),
        )
        if counts:
            self.jobs.set(row, starts=self.jobs.get("starts", row) + 1)
        if math.isnan(self.jobs.get("first_start", row)):
            self.jobs.set(row, first_start=now)
            self._rejudge(job)

    def _follow_run(self, job: JobId, run: Run, now: float) -> None:
        """A run is suspended, resumed, or asked to stop."""
        row = self.jobs.row_of[job]
        phase = self.jobs.get("phase", row)
        if run.suspended and phase == c.HOLDING:
            self._settle(row, now)
            if self._frees_suspended:
                self.machines.release(self._where[job])
            self.jobs.set(row, phase=c.SUSPENDED, preemptions=self.jobs.get("preemptions", row) + 1)
        elif not run.suspended and phase == c.SUSPENDED:
            if self._frees_suspended:
                self.machines.take(self._where[job])
            gpus = self._where[job].gpus
            self.claims.pop(job, None)
            self.jobs.set(
                row,
                phase=c.HOLDING,
                since=now,
                progress_from=now,
                gpus_now=gpus,
                starts=self.jobs.get("starts", row) + 1,
            )
        if run.stop is not None:
            leaving = c.GIVES_WAY if run.stop in TAKEN_BACK else c.IS_ENDING
            if leaving == c.GIVES_WAY and self.jobs.get("leaving", row) == c.STAYS:
                kind = {StopReason.PREEMPT: "preemptions", StopReason.MIGRATE: "migrations"}
                column = kind.get(run.stop, "resizes" if run.stop is StopReason.RESIZE else "")
                if column:
                    self.jobs.set(row, **{column: self.jobs.get(column, row) + 1})
            self.jobs.set(row, leaving=leaving)

    def _settle(self, row: int, now: float) -> None:
        """Bring a row's clocks up to now; it holds nothing after."""
        since, gpus = self.jobs.get("since", row), self.jobs.get("gpus_now", row)
        held = max(now - since, 0.0)
        worked = max(now - self.jobs.get("progress_from", row), 0.0)
        self.jobs.set(
            row,
            held_s=self.jobs.get("held_s", row) + held,
            attained=self.jobs.get("attained", row) + held * gpus,
            executed=self.jobs.get("executed", row) + worked,
            overhead_s=self.jobs.get("overhead_s", row) + held - worked,
            since=now,
            gpus_now=0,
        )

    def _leave(self, job: JobId, now: float, ledger: Ledger | None = None) -> None:
        """A run is over: its GPUs are free, and what it did not save is lost."""
        row = self.jobs.row_of[job]
        if self.jobs.get("phase", row) == c.HOLDING:
            self._settle(row, now)
            self.machines.release(self._where[job])
        elif not self._frees_suspended:
            self.machines.release(self._where[job])
        lost = self.jobs.get("executed", row) - self.jobs.get("saved", row)
        gave_way = self.jobs.get("leaving", row) == c.GIVES_WAY
        del self._where[job]
        run_id = self._run_ids.pop(job)
        self.jobs.set(
            row,
            phase=c.PENDING,
            leaving=c.STAYS,
            since=now,
            executed=self.jobs.get("saved", row),
            lost_s=self.jobs.get("lost_s", row) + lost,
        )
        run = None if ledger is None else ledger.runs.get(run_id)
        failed = run is not None and not gave_way and _never_began(run)
        failures = self.jobs.get("failed_starts", row) + 1 if failed else 0
        pause = min(2.0 ** (failures - 1), LONGEST_BACK_OFF_S) if failures else 0.0
        self.jobs.set(
            row, failed_starts=failures, not_before=now + pause if failures else -math.inf
        )

    def _end(self, job_id: JobId, job: Job | None, now: float) -> None:
        row = self.jobs.row_of[job_id]
        succeeded = job is not None and job.status is JobStatus.COMPLETED
        self.jobs.set(
            row, phase=c.ENDED, finish=now, outcome=c.COMPLETED if succeeded else c.FAILED
        )
        if succeeded:
            self.jobs.set(  # all that it did counts
                row,
                executed=self.jobs.get("held_s", row) - self.jobs.get("overhead_s", row),
            )
            self._finished.append(job_id)
        self._ended += 1
        self._rejudge(job_id)
        self.claims.pop(job_id, None)
        self.asks.forget(job_id)
        self._dependents.discard(job_id)
        for table in (self._verdicts, self._again, self._reasons, self._positions, self._held_by):
            table.pop(job_id, None)  # type: ignore[attr-defined]  # dictionaries, all of them
        for dependency in self._specs[job_id].body.dependencies:
            waiting = self._waited_for.get(dependency.job, set())
            waiting.discard(job_id)
            if not waiting:
                self._waited_for.pop(dependency.job, None)

    def _restarted(self, ledger: Ledger, run_id: RunId, restart_s: float) -> None:
        run = ledger.runs.get(run_id)
        job = None if run is None else run.key.job
        if job is None or self._run_ids.get(job) != run_id:
            return
        row = self.jobs.row_of[job]
        since = self.jobs.get("since", row)
        if self.jobs.get("progress_from", row) == since:
            self.jobs.set(
                row,
                progress_from=since + restart_s,
                restart_s=self.jobs.get("restart_s", row) + restart_s,
            )

    def _checkpoint(self, job: JobId, run_id: RunId, now: float) -> None:
        row = self.jobs.row_of.get(job)
        if row is None or self._run_ids.get(job) != run_id:
            return
        worked = 0.0
        if self.jobs.get("phase", row) == c.HOLDING:
            worked = max(now - self.jobs.get("progress_from", row), 0.0)
        self.jobs.set(row, saved=self.jobs.get("executed", row) + worked)

    # -- nodes -------------------------------------------------------------------------------------

    def _refresh_node(self, ledger: Ledger, name: NodeName) -> None:
        node = ledger.nodes.get(name)
        if node is None:
            return
        machine = self.machines.register(name, node.gpus)
        machine.status = node.status
        orphans = [o.held.gpus for (place, _), o in ledger.orphans.items() if place == name]
        machine.shut["quarantined"] = machine.mask(node.quarantined)
        machine.shut["orphans"] = machine.mask(gpu for gpus in orphans for gpu in gpus)

    def _describe(self, name: NodeName, facts: str) -> None:
        self.machines.describe(name, self.asks.facts(facts))

    def describe_node(self, name: NodeName, facts: Mapping[str, Any]) -> None:
        """What the configuration says of a node (gpu_type, cpus, memory_gb, switch, rack, …)."""
        self.machines.describe(name, facts)
        self.changed = True

    def observe_node(
        self,
        name: NodeName,
        *,
        late: bool | None = None,
        unhealthy: Iterable[str] | None = None,
        foreign: Iterable[str] | None = None,
    ) -> None:
        """What is seen of a node and not stored: silence, bad GPUs, outsiders' processes."""
        machine = self.machines.get(name)
        if machine is None:
            return
        before = (machine.late, machine.closed)
        if late is not None:
            machine.late = late
        if unhealthy is not None:
            machine.shut["unhealthy"] = machine.mask(unhealthy)  # type: ignore[arg-type]  # UUIDs
        if foreign is not None:
            machine.shut["foreign"] = machine.mask(foreign)  # type: ignore[arg-type]
        self.changed = self.changed or before != (machine.late, machine.closed)

    def configure(self, settings: RoundSettings, rules: ClusterRules) -> None:
        """Take over another configuration; a policy with other parts begins anew."""
        if settings.parts != self.settings.parts or settings.options != self.settings.options:
            self.switch(settings)
        self.settings, self.rules = settings, rules
        self.asks.rules = rules
        self.asks.anew()
        self.changed = True

    def switch(self, settings: RoundSettings) -> None:
        """Another policy decides from now on; running jobs run on, its own state is empty."""
        self.settings = settings
        self.policy_state = b""
        self.changed = True

    # -- eligibility -------------------------------------------------------------------------------

    def _orphaned(self) -> list[JobId]:
        found: list[JobId] = self.jobs["job"][self.jobs["orphan"]].tolist()
        return found

    def _see_orphan(self, ledger: Ledger, job: JobId) -> None:
        row = self.jobs.row_of.get(job)
        if row is not None:
            alive = any(orphan.held.key.job == job for orphan in ledger.orphans.values())
            self.jobs.set(row, orphan=alive)

    def fate(self, job: JobId) -> Fate | None:
        """What is known of a job that others wait for."""
        row = self.jobs.row_of.get(job)
        elements = tuple(JobId(e) for e in self._arrays.get(job, ()))
        spec = self._specs.get(job)
        if spec is not None and spec.array is not None and spec.index == 0:
            elements = tuple(JobId(job + k) for k in range(len(spec.array.tasks)))
        if row is None:
            known = self._fate_of(job)
            return known
        started = self.jobs.get("first_start", row)
        ended = self.jobs.get("phase", row) == c.ENDED
        return Fate(
            started_at=None if math.isnan(started) else started,
            ended_at=self.jobs.get("finish", row) if ended else None,
            succeeded=ended and self.jobs.get("outcome", row) == c.COMPLETED,
            elements=elements,
        )

    def _earlier_namesakes(self, job: int) -> bool:
        spec, row = self._specs[job], self.jobs.row_of[job]
        earlier = self.jobs["job"][:row][self.jobs["phase"][:row] != c.ENDED]
        return any(
            self._specs[other].user == spec.user and self._specs[other].body.name == spec.body.name
            for other in earlier.tolist()
        )

    def _depend(self, job: int, spec: JobSpec) -> None:
        """Note whom a job waits for."""
        self._verdicts.pop(job, None)
        self._dependents.discard(job)
        for dependency in spec.body.dependencies:
            self._dependents.add(job)
            self._waited_for.setdefault(dependency.job, set()).add(job)

    def _rejudge(self, job: int) -> None:
        """A job has started or ended: those that wait for it, or for its array, look again."""
        spec = self._specs.get(job)
        first = job if spec is None or spec.array is None else job - spec.index
        for waited_for in {job, first, 0}:
            for dependent in self._waited_for.get(waited_for, ()):
                self._verdicts.pop(dependent, None)

    def _judge_dependents(self, now: float) -> None:
        for job in self._dependents:
            due = self._again.get(job, math.inf)
            if job in self._verdicts and now < due:
                continue
            verdict, why, again = judge_dependencies(
                self._specs[job],
                now,
                self.fate,
                lambda job=job: self._earlier_namesakes(job),  # type: ignore[misc]
            )
            self._verdicts[job] = (verdict, why)
            self._again[job] = again

    def never_satisfied(self, now: float) -> list[tuple[JobId, str]]:
        """Pending jobs whose dependencies can never hold, and whether that ends them."""
        self._judge_dependents(now)
        return [
            (JobId(job), why)
            for job, (verdict, why) in sorted(self._verdicts.items())
            if verdict is Verdict.NEVER
            and not self._specs[job].body.keep_on_broken_dependency
            and self.jobs.get("phase", self.jobs.row_of[job]) == c.PENDING
        ]

    def _eligible(self, now: float) -> tuple[Bools, dict[int, str]]:
        """Per row: may policies see it as waiting? And the reasons of those that they may not."""
        jobs = self.jobs
        leaves = (jobs["phase"] == c.HOLDING) & (jobs["leaving"] != c.STAYS)
        pending = (jobs["phase"] == c.PENDING) | (jobs["phase"] == c.SUSPENDED) | leaves
        if not self._frees_suspended:
            pending &= jobs["phase"] != c.SUSPENDED
        reasons: dict[int, str] = {}
        eligible = pending.copy()
        self._judge_dependents(now)
        blocked = {
            j: why for j, (verdict, why) in self._verdicts.items() if verdict is not Verdict.HOLDS
        }
        for job, why in blocked.items():
            row = jobs.row_of[job]
            if pending[row]:
                eligible[row] = False
                reasons[job] = why
        for column, test, text in (
            ("not_before", jobs["not_before"] > now, self._back_off_text),
            ("begin_at", jobs["begin_at"] > now, lambda job, row: "BeginTime"),
            ("orphan", jobs["orphan"], lambda job, row: "Orphan: an unknown run of it is alive"),
            ("held", jobs["held"], lambda job, row: f"Held: by {self._held_by.get(job, 'user')}"),
        ):
            del column
            for row in np.flatnonzero(test & pending).tolist():
                job = jobs.get("job", row)
                eligible[row] = False
                reasons[job] = text(job, row)
        self._limit_arrays(eligible, reasons)
        return eligible, reasons

    def _back_off_text(self, job: int, row: int) -> str:
        return f"BackOff: {self.jobs.get('failed_starts', row)} starts failed"

    def _limit_arrays(self, eligible: Bools, reasons: dict[int, str]) -> None:
        for first, elements in list(self._arrays.items()):
            live = [job for job in elements if job in self.jobs.row_of]
            live = [j for j in live if self.jobs.get("phase", self.jobs.row_of[j]) != c.ENDED]
            if not live:
                del self._arrays[first]
                continue
            self._arrays[first] = live
            spec = self._specs[live[0]]
            limit = spec.array.limit if spec.array is not None else 0
            if not limit:
                continue
            rows = [self.jobs.row_of[job] for job in live]
            may = [r for r in rows if eligible[r] and self.jobs.get("job", r) not in self.claims]
            left = max(limit - sum(1 for r in rows if not eligible[r] and self._is_on(r)), 0)
            left = max(left - sum(1 for job in live if job in self.claims), 0)
            for row in may[left:]:
                eligible[row] = False
                reasons[self.jobs.get("job", row)] = f"ArrayLimit: {limit} at once"

    def _is_on(self, row: int) -> bool:
        return bool(self.jobs.get("phase", row) in (c.HOLDING,))

    def next_moment(self, now: float) -> float:
        """When somebody becomes eligible although nothing happens; inf for never."""
        waits = [self._again.get(job, math.inf) for job in self._dependents]
        moments = [np.array([m for m in waits if m > now])]
        live = self.jobs["phase"] != c.ENDED
        for name in ("begin_at", "not_before"):
            column = self.jobs[name][live]
            moments.append(column[column > now])
        every = np.concatenate(moments)
        return float(every.min()) if every.size else math.inf

    # -- the snapshot ------------------------------------------------------------------------------

    def snapshot(self, mode: Mode, now: float) -> LiveSnapshot:
        """Everything that the next decision depends on."""
        jobs = self.jobs
        eligible, reasons = self._eligible(now)
        self._reasons.update(reasons)
        columns = {
            name: jobs[name].copy() for name in ("job", "runs", *c.SEEN_BY_POLICIES, "expected")
        }
        columns["claimed"] = np.zeros(jobs.count, np.bool_)
        phase = jobs["phase"]
        status = np.where(eligible, WAITING, FUTURE).astype(np.int8)
        runs_on = (phase == c.HOLDING) & (jobs["leaving"] != c.GIVES_WAY)
        status[runs_on] = RUNNING
        ended = phase == c.ENDED
        status[ended] = np.where(jobs["outcome"][ended] == c.COMPLETED, COMPLETED, CANCELLED)
        self._show_leaving(columns, now)
        held = [(jobs.row_of[j], self._where[j]) for j in self._holders(runs_on)]
        shown = self._bits(held)
        for job, claim in list(self.claims.items()):
            row = jobs.row_of[job]
            stands = self._may_claim(job, claim.run, claim.placement) and not runs_on[row]
            if not stands or self._overlap(shown, claim.placement):
                del self.claims[job]
                continue
            columns["claimed"][row] = True
            held.append((row, claim.placement))
            status[row] = RUNNING
            columns["gpus_now"][row] = claim.placement.gpus
            columns["since"][row] = columns["progress_from"][row] = now
        homes = [
            (jobs.row_of[job], where)
            for job, where in self._where.items()
            if phase[jobs.row_of[job]] == c.SUSPENDED and status[jobs.row_of[job]] == WAITING
        ]
        columns["status"] = status
        columns |= self.asks.extra_columns(jobs)
        return LiveSnapshot(
            number=self.round_number + 1,
            mode=mode,
            now=now,
            settings=self.settings,
            columns=columns,
            names={kind: tuple(codes) for kind, codes in self._codes.items()},
            shapes={jobs.row_of[job]: shape for job, shape in sorted(self.asks.shapes.items())},
            whole_nodes=tuple(sorted(jobs.row_of[job] for job in self.asks.whole_nodes)),
            held=_flat(held),
            homes=_flat(homes),
            finished=np.array([jobs.row_of[job] for job in self._finished], np.int64),
            cluster=self.machines.encoded(),
            service=np.array(
                [_service(m.is_open, m.status, m.taken) for m in self._every()], np.int8
            ),
            closed=self._closed(),
            pools=self.asks.pools(self.machines),
            quotas=tuple(
                Quota(name=vc.name, gpus=vc.gpus, guaranteed=vc.guaranteed, borrow=vc.borrow)
                for vc in self.rules.vcs
                if vc.gpus >= 0
            ),
            state=self.policy_state,
        )

    @staticmethod
    def _bits(held: Sequence[tuple[int, Placement]]) -> dict[int, int]:
        bits: dict[int, int] = {}
        for _, placement in held:
            for node, mask in zip(placement.nodes, placement.masks, strict=True):
                bits[node] = bits.get(node, 0) | mask
        return bits

    @staticmethod
    def _overlap(bits: Mapping[int, int], placement: Placement) -> bool:
        pairs = zip(placement.nodes, placement.masks, strict=True)
        return any(bits.get(node, 0) & mask for node, mask in pairs)

    def _every(self) -> list[Any]:
        return [self.machines[k] for k in range(len(self.machines))]

    def _holders(self, runs_on: Bools) -> list[int]:
        found: list[int] = self.jobs["job"][runs_on].tolist()
        return found

    def _show_leaving(self, columns: dict[str, Any], now: float) -> None:
        """Jobs that were asked to give way are seen as stopped, with all that they have done."""
        rows = np.flatnonzero(
            (self.jobs["phase"] == c.HOLDING) & (self.jobs["leaving"] == c.GIVES_WAY)
        )
        held = np.maximum(now - columns["since"][rows], 0.0)
        worked = np.maximum(now - columns["progress_from"][rows], 0.0)
        columns["held_s"][rows] += held
        columns["attained"][rows] += held * columns["gpus_now"][rows]
        columns["executed"][rows] += worked
        columns["since"][rows] = now
        columns["gpus_now"][rows] = 0

    def _closed(self) -> Ints:
        shut = {node: m.closed for node, m in enumerate(self._every()) if m.closed}
        if not self._frees_suspended:
            for job in self.jobs["job"][self.jobs["phase"] == c.SUSPENDED].tolist():
                where = self._where[job]
                for node, mask in zip(where.nodes, where.masks, strict=True):
                    shut[node] = shut.get(node, 0) | mask
        pairs = [
            (node, place)
            for node, mask in sorted(shut.items())
            for place in range(mask.bit_length())
            if mask >> place & 1
        ]
        return np.array(pairs, np.int64).reshape(-1, 2)

    # -- after a decision --------------------------------------------------------------------------

    def accept(self, decided: Decided, stale: Container[int] = ()) -> None:
        """Follow a decision that was verified; its stale rows are left out."""
        self.policy_state = decided.state
        self.round_number = decided.number
        for job in decided.suspended:
            self.claims.pop(job, None)
            row = self.jobs.row_of.get(job)
            if row is not None and self.jobs.get("leaving", row) == c.IS_ENDING:
                self.jobs.set(row, leaving=c.GIVES_WAY)  # its GPUs are another's when it has left
        for job, placement in decided.launched.items():
            row = self.jobs.row_of.get(job)
            if row is None or job in stale:
                continue
            run = self.jobs.get("runs", row) + 1
            if self._may_claim(job, run, placement):
                self.claims[job] = Claim(run=run, placement=placement)
        texts = decided.reason_texts()
        self._reasons.update(texts)
        self._positions = decided.positions()
        self.changed = False

    def _may_claim(self, job: int, run: int, placement: Placement) -> bool:
        """Does a claim still make sense: is its job to have a next run, on GPUs that are there?"""
        row = self.jobs.row_of.get(job)
        if (
            row is None
            or self.jobs.get("phase", row) == c.ENDED
            or run <= self.jobs.get("runs", row)
        ):
            return self._is_resume(job, placement)
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            machine = self.machines[node]
            if not machine.is_open or mask & machine.closed:
                return False
        return True

    def _is_resume(self, job: int, placement: Placement) -> bool:
        row = self.jobs.row_of.get(job)
        return (
            row is not None
            and self.jobs.get("phase", row) == c.SUSPENDED
            and self._where.get(job) == placement
        )

    def due(self) -> list[tuple[JobId, Placement]]:
        """Claims that can be carried out: whose GPUs are free and whose job is not on its way."""
        found: list[tuple[JobId, Placement]] = []
        for job, claim in list(self.claims.items()):
            row = self.jobs.row_of.get(job)
            if row is None or not self._may_claim(job, claim.run, claim.placement):
                del self.claims[job]
                self.changed = True
                continue
            phase = self.jobs.get("phase", row)
            ready = phase == c.PENDING or (
                phase == c.SUSPENDED and self._is_resume(job, claim.placement)
            )
            if ready and not self.jobs.get("held", row) and not self.jobs.get("orphan", row):
                if not self.machines.hindrance(claim.placement):
                    found.append((JobId(job), claim.placement))
        return found

    def giving_way(self) -> list[int]:
        """Jobs whose run was asked to give way and is not over yet."""
        jobs = self.jobs
        rows = (jobs["phase"] == c.HOLDING) & (jobs["leaving"] == c.GIVES_WAY)
        found: list[int] = jobs["job"][rows].tolist()
        return found

    def was_known(self, job: int) -> bool:
        """Was there ever a job of this number, as far as the numbers say?"""
        return 0 < job <= self._highest

    def pool_nodes(self, pool: int) -> int:
        """The nodes of a pool, as bits."""
        return int.from_bytes(self.asks.pools(self.machines)[pool][1], "little")

    def decline(self, job: JobId, why: str, now: float) -> None:
        """The leader refused to place a job: it waits a little, and the round decides anew."""
        self.claims.pop(job, None)
        row = self.jobs.row_of.get(job)
        if row is not None:
            failures = self.jobs.get("failed_starts", row) + 1
            pause = min(2.0 ** (failures - 1), LONGEST_BACK_OFF_S)
            self.jobs.set(row, failed_starts=failures, not_before=now + pause)
            self._reasons[job] = why
        self.changed = True

    # -- what others ask ---------------------------------------------------------------------------

    def reason(self, job: JobId) -> str:
        """Why a pending job waits; never empty."""
        claim = self.claims.get(job)
        if claim is not None:
            return f"Resources: {self.machines.hindrance(claim.placement) or 'about to start'}"
        return self._reasons.get(job) or "Resources: waits for the next round"

    def position(self, job: JobId) -> int | None:
        """A waiting job's place in the policy's order, from 1; None while it has none."""
        return self._positions.get(job)

    def spec(self, job: JobId) -> JobSpec | None:
        """What a live job asks for, as it stands."""
        return self._specs.get(job)

    def where(self, job: JobId) -> Placement | None:
        """Where a job's live run is, suspended or not."""
        return self._where.get(job)

    def preempt_mode(self, job: JobId) -> PreemptMode:
        """How a job gives way: its own word, else the cluster's; what must not requeue suspends."""
        if not self._frees_suspended:
            return "requeue"
        spec = self._specs[job]
        asked = spec.body.extra.get("preempt_mode", "")
        if asked == "suspend" or not spec.body.requeue:
            return "suspend"
        return "requeue" if asked == "requeue" else self.settings.preempt_mode

    # -- packing -----------------------------------------------------------------------------------

    def _pack(self) -> None:
        """Drop the rows of jobs that ended long ago."""
        if self._ended <= max(2 * self._learn_from, self.jobs.count // 2):
            return
        recent = set(self._finished[max(len(self._finished) - self._learn_from, 0) :])
        ended = self.jobs["phase"] == c.ENDED
        keep = ~ended | np.isin(self.jobs["job"], np.fromiter(recent, np.int64))
        for job in self.jobs.pack(keep):
            self._specs.pop(job, None)
        self._finished = [job for job in self._finished if job in recent]
        self._ended = len(recent)


def _never_began(run: Run) -> bool:
    """Did a start fail, before anything was executed?"""
    exits = [member.exit for member in run.members.values() if member.exit is not None]
    return not run.released or any(exit.reason is ExitReason.NOT_STARTED for exit in exits)


def _service(is_open: bool, status: NodeStatus, taken: int) -> int:
    if is_open:
        return 2
    return 1 if status is NodeStatus.UP or taken else 0


def _flat(placements: Sequence[tuple[int, Placement]]) -> Held:
    """Placements as one entry a GPU."""
    rows: list[int] = []
    nodes: list[int] = []
    gpus: list[int] = []
    for row, placement in placements:
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            rest = mask
            while rest:
                bit = rest & -rest
                rows.append(row)
                nodes.append(node)
                gpus.append(bit.bit_length() - 1)
                rest ^= bit
    return Held(
        row=np.array(rows, np.int64), node=np.array(nodes, np.int64), gpu=np.array(gpus, np.int64)
    )
