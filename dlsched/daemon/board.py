"""The board: live jobs, nodes and GPUs as columns, as the reserved ledger has them.

It follows every change of the ledger and is what a round's snapshot is taken of. All of it is in
the main thread. What a policy took from a job is seen as taken at once, though the job may still be
leaving; what a policy gave on such GPUs is a *claim*, and becomes a start when they are free.

Invariant: the columns are what a recount from the ledger and the times of its changes gives; every
pending job has a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools
from dlsched.core.occupancy import Placement
from dlsched.daemon.round import columns as c
from dlsched.daemon.round.asks import Asks
from dlsched.daemon.round.columns import JobColumns
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.eligibility import Eligibility
from dlsched.daemon.round.lives import LONGEST_BACK_OFF_S, Lives
from dlsched.daemon.round.machines import ClusterRules, Machines, natural
from dlsched.daemon.round.parts import PreemptMode, RoundSettings
from dlsched.daemon.round.policy_state import claims_of
from dlsched.daemon.round.tenant_limits import Ward
from dlsched.daemon.round.waiting import Fate
from dlsched.daemon.speeds import SpeedBook
from dlsched.daemon.trainings import TrainingBook
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
from dlsched.db.tenants import Quota
from dlsched.protocol.gpu_shares import WHOLE, part_of
from dlsched.protocol.ledger import (
    Adopt,
    Assign,
    Attach,
    CancelJob,
    Job,
    JobStatus,
    Ledger,
    LetGo,
    MemberOver,
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
from dlsched.protocol.messages import JobId, NodeName, SuspendLevel

__all__ = ["Board", "Claim"]

# changes that take something and give nothing: no reason to look for somebody to start
_STIRS_NOBODY = (Assign, ReleaseRun, StopRun)
ANY_NUMBER = 1_000_000  # of GPUs: more than a cluster has
LEARN_FROM = 512  # ended jobs that stay for policies to learn from


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
        finished: jobs that have completed and are still in the columns, in order.
        eligibility: who may be seen, and why not.
        speeds: what is known of how fast kinds of trainings run.
        trainings: what elastic jobs have told.
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
        speeds: SpeedBook | None = None,
        trainings: TrainingBook | None = None,
    ) -> None:
        """An empty board.

        Args:
            settings: how rounds are decided.
            rules: partitions and virtual clusters.
            origin: see above.
            fate_of: what the database knows of a job that is live no more, for dependencies.
            learn_from: how many ended jobs stay for policies to learn from.
            speeds: see above.
            trainings: see above.
        """
        self.speeds = speeds or SpeedBook()
        self.trainings = trainings or TrainingBook()
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
        self._specs: dict[int, JobSpec] = {}
        self._lives = Lives(self.jobs, self.machines)
        self._cooperative: set[int] = set()  # jobs that give way by leaving with a checkpoint
        self._codes: dict[str, dict[str, int]] = {"user": {}, "account": {}, "vc": {}}
        self.finished: list[int] = []
        self._ended = 0
        self._highest = 0
        self.eligibility = Eligibility(self.jobs, self._specs, self._fate_of)
        self.eligibility.limit_times(self.rules.longest_s)
        self._now = -math.inf  # the latest that this board was told
        self._stamp = self._seen = 0
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
            speeds=self.speeds,
            trainings=self.trainings,
        )
        self._now = now
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
                self._lives.begin(job_id, run, since, counts=False)
                self._lives.follow(job_id, run, now)
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
            steps_done=np.nan if facts.progress is None else facts.progress.step,
            loss=_loss_of(facts.progress),
        )

    # -- following the ledger ----------------------------------------------------------------------

    def apply(self, writes: Iterable[Write], ledger: Ledger, now: float) -> None:
        """Follow changes of the reserved ledger.

        Args:
            writes: the changes, in order; attached records too.
            ledger: the reserved ledger after them.
            now: seconds of the policy's clock.
        """
        writes = list(writes)
        self._now = now
        touched: dict[JobId, None] = {}
        nodes: dict[NodeName, None] = {}
        for write in writes:
            if isinstance(write, Attach):
                self._attach(write.row, ledger, now, touched)
                continue
            if isinstance(write, Submit) and write.job not in self.jobs.row_of:
                self._submit(ledger.jobs[write.job], now)
            elif isinstance(write, RegisterNode):
                self.machines.register(write.node, write.inventory.gpus, write.inventory.gpu_type)
            job, node = _subject(write, ledger)
            if job is not None:
                touched[job] = None
            if node is not None:
                nodes[node] = None
            if isinstance(write, OrphanOver):
                touched.update(dict.fromkeys(self._orphaned()))
        for node in nodes:
            self._refresh_node(ledger, node)
        for job in touched:
            self._refresh_job(ledger, job, now)
            if nodes:
                self._see_orphan(ledger, job)
        if any(not isinstance(write, _STIRS_NOBODY) for write in writes):
            self._stir()
        self._pack()

    def stir(self) -> None:
        """What is not in the ledger has changed: a round is to look."""
        self._stir()

    def _stir(self) -> None:
        """Something happened that could let somebody start."""
        self.changed = True
        self._stamp += 1

    def _attach(self, row: object, ledger: Ledger, now: float, touched: dict[JobId, None]) -> None:
        match row:
            case HoldChanged(job=job, held=held):
                self._hold(job, held)
                touched[job] = None
            case FieldsChanged(job=job, fields=fields):
                self._update(job, fields)
                touched[job] = None
            case Progress(run_id=run_id, restart_s=restart) if restart is not None:
                self._lives.restarted(ledger, run_id, restart)
            case CheckpointCommitted(job=job, run_id=run_id):
                self._lives.checkpoint(job, run_id, now)
            case NodeDescribed(node=node, facts=facts):
                self._describe(node, facts)
            case Drained(node=node, drained=drained):
                machine = self.machines.get(node)
                if machine is not None:
                    machine.drained = drained
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
        if job.request.suspend_level is SuspendLevel.COOPERATIVE:
            self._cooperative.add(job.job)
        self._highest = max(self._highest, job.job)
        self.jobs.append(job.job, since=now)
        self._enter(job.job, spec)
        self.eligibility.enter(job.job, spec)

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
            max_gpus=_most_gpus(body),
            gpu_share=part_of(body.share),
            cpus=number(body.cpus),
            memory_gb=number(body.memory_bytes) / 1e9 * nodes,
            priority=number(body.priority),
            weight=number(body.weight),
            deadline=number(body.deadline_at) - spec.submitted_at,
            time_limit=number(body.time_limit_s),
            expected=number(body.expected_s),
            user=self._code("user", spec.user),
            account=self._code("account", body.account),
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
        self.eligibility.held_by.pop(job, None)
        if held:
            self.eligibility.held_by[job] = held

    def _update(self, job: JobId, fields: Mapping[str, object]) -> None:
        """Fields of a job's body are others now; what runs goes on as it started."""
        spec = self._specs.get(job)
        if spec is None or self.jobs.get("phase", self.jobs.row_of[job]) == c.ENDED:
            return
        values = {name: getattr(spec.body, name) for name in spec.body.__slots__}
        values |= {name: value for name, value in fields.items() if name in values}
        array, limit = spec.array, fields.get("array_limit")
        if array is not None and isinstance(limit, int):
            array = replace(array, limit=limit)
        spec = JobSpec(
            body=JobBody(**values),
            user=spec.user,
            uid=spec.uid,
            submitted_at=spec.submitted_at,
            array=array,
            index=spec.index,
        )
        self._specs[job] = spec
        self._enter(job, spec)
        self.eligibility.note(job, spec)

    def _refresh_job(self, ledger: Ledger, job_id: JobId, now: float) -> None:
        """Bring one job's row to what the ledger says."""
        row = self.jobs.row_of.get(job_id)
        if row is None or self.jobs.get("phase", row) == c.ENDED:
            return
        job, run = ledger.jobs.get(job_id), ledger.live_run(job_id)
        if run is not None and self._lives.run_ids.get(job_id) not in (None, run.key.run_id):
            self._lives.leave(job_id, now)
        if run is None and job_id in self._lives.run_ids:
            self._lives.leave(job_id, now, ledger)
        elif run is not None:
            self._follow(job_id, run, now)
        if job is None or job.status.is_terminal:
            self._end(job_id, job, now)
        else:
            self.jobs.set(row, runs=job.runs)

    def _follow(self, job: JobId, run: Run, now: float) -> None:
        """A job's run is there: it has begun, or something is asked of it."""
        row = self.jobs.row_of[job]
        if job not in self._lives.run_ids:
            is_first = math.isnan(self.jobs.get("first_start", row))
            self._lives.begin(job, run, now, counts=True)
            self.claims.pop(job, None)
            self._reasons.pop(job, None)
            if is_first:
                self.eligibility.stir(job)
        elif not run.suspended and self.jobs.get("phase", row) in (c.SUSPENDED, c.AWAY):
            self.claims.pop(job, None)
        self._lives.follow(job, run, now)

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
            self.finished.append(job_id)
        self._ended += 1
        self.claims.pop(job_id, None)
        self._cooperative.discard(job_id)
        self.asks.forget(job_id)
        self.trainings.forget(job_id)
        self.eligibility.forget(job_id, self._specs[job_id])
        self._reasons.pop(job_id, None)
        self._positions.pop(job_id, None)

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
        self._stir()

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
        if before != (machine.late, machine.closed):
            self._stir()

    def configure(self, settings: RoundSettings, rules: ClusterRules) -> None:
        """Take over another configuration; a policy with other parts begins anew."""
        if settings.parts != self.settings.parts or settings.options != self.settings.options:
            self.switch(settings)
        self.settings, self.rules = settings, rules
        self.asks.rules = rules
        self.asks.anew()
        self.eligibility.limit_times(rules.longest_s)
        self._stir()

    def limit_tenants(self, quotas: Mapping[Ward, Quota], parents: Mapping[str, str]) -> None:
        """Other quotas hold from now on; what runs goes on."""
        live = [(job, spec) for job, spec in self._specs.items() if job in self.jobs.row_of]
        rows = self.jobs.row_of
        live = [(j, s) for j, s in live if self.jobs.get("phase", rows[j]) != c.ENDED]
        self.eligibility.tenant_limits.change(quotas, parents, live)
        self._stir()

    def switch(self, settings: RoundSettings) -> None:
        """Another policy decides from now on; running jobs run on, its own state is empty."""
        self.settings = settings
        self.policy_state = b""
        self._stir()

    def _orphaned(self) -> list[JobId]:
        found: list[JobId] = self.jobs["job"][self.jobs["orphan"]].tolist()
        return found

    def _see_orphan(self, ledger: Ledger, job: JobId) -> None:
        row = self.jobs.row_of.get(job)
        if row is not None:
            alive = any(orphan.held.key.job == job for orphan in ledger.orphans.values())
            self.jobs.set(row, orphan=alive)

    # -- rounds ------------------------------------------------------------------------------------

    def note_seen(self) -> None:
        """A decision is to be made on what is here now."""
        self._seen = self._stamp

    def judge(self, now: float) -> Bools:
        """Which rows policies may see as waiting; the reasons of the others are noted."""
        self._now = now
        eligible, reasons = self.eligibility.judge(now, self.claims, self._positions.get)
        self._reasons.update(reasons)
        return eligible

    def standing_claims(self) -> list[tuple[int, Placement]]:
        """Claims that still make sense; the others are dropped."""
        for job, claim in list(self.claims.items()):
            if not self._may_claim(job, claim.run, claim.placement):
                del self.claims[job]
        return [(job, claim.placement) for job, claim in self.claims.items()]

    def note_steps(self, job: int, step: int, loss: float = np.nan) -> None:
        """A run tells how many steps its job has done, and perhaps its loss there."""
        row = self.jobs.row_of.get(job)
        if row is not None:
            self.jobs.set(row, steps_done=step)
            if np.isfinite(loss):
                self.jobs.set(row, loss=loss)

    def drop_claim(self, job: int) -> None:
        """What a job was promised is another's."""
        self.claims.pop(job, None)

    def names(self) -> dict[str, tuple[str, ...]]:
        """What the codes of users, accounts and virtual clusters stand for."""
        return {kind: tuple(codes) for kind, codes in self._codes.items()}

    def placed(self, job: int) -> Placement:
        """Where a job's live run is."""
        return self._lives.where[job]

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
        self.changed = self._stamp != self._seen  # not by what came after its snapshot

    def _may_claim(self, job: int, run: int, placement: Placement) -> bool:
        """Does a claim still make sense: is its job to have a next run, on GPUs that are there?"""
        row = self.jobs.row_of.get(job)
        if row is None or self.jobs.get("phase", row) == c.ENDED:
            return False
        if run <= self.jobs.get("runs", row) or self.home(job) not in (None, placement):
            return False
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            machine = self.machines[node]
            if not machine.is_open or mask & machine.closed:
                return False
        return True

    def home(self, job: int) -> Placement | None:
        """Where a job has given way by a suspension, or is about to; else None."""
        row = self.jobs.row_of.get(job)
        if row is None or not (
            self.jobs.get("phase", row) == c.AWAY or job in self._lives.suspending
        ):
            return None
        return self._lives.where.get(job)

    def homes(self) -> list[tuple[int, Placement]]:
        """All jobs that have one, and theirs."""
        away = self.jobs["job"][self.jobs["phase"] == c.AWAY].tolist()
        return [(job, self._lives.where[job]) for job in sorted({*away, *self._lives.suspending})]

    def due(self) -> list[tuple[JobId, Placement]]:
        """Claims that can be carried out: whose GPUs are free and whose job is not on its way."""
        found: list[tuple[JobId, Placement]] = []
        for job, claim in list(self.claims.items()):
            row = self.jobs.row_of.get(job)
            if row is None or not self._may_claim(job, claim.run, claim.placement):
                del self.claims[job]
                self._stir()
                continue
            phase = self.jobs.get("phase", row)
            stays = self.jobs.get("leaving", row) == c.STAYS
            ready = phase == c.PENDING or (phase == c.AWAY and stays)
            ready = ready and not self.jobs.get("held", row) and not self.jobs.get("orphan", row)
            if ready and not self.machines.hindrance(claim.placement, self.part_of(job)):
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
        self._stir()

    def never_satisfied(self, now: float) -> list[tuple[JobId, str]]:
        """Pending jobs that their dependencies end, and why."""
        return self.eligibility.never_satisfied(now)

    def next_moment(self, now: float) -> float:
        """When somebody becomes eligible although nothing happens; inf for never."""
        return self.eligibility.next_moment(now)

    @contextmanager
    def supposing(self, specs: Sequence[JobSpec], now: float) -> Iterator[list[int]]:
        """Jobs as if they had just come, for a snapshot; they are gone after. Yields their ids."""
        ids = [self._highest + 1 + k for k in range(len(specs))]
        try:
            for job, spec in zip(ids, specs, strict=True):
                self._specs[job] = spec
                self.jobs.append(job, since=now)
                self._enter(job, spec)
                self.eligibility.enter(job, spec)
            yield ids
        finally:
            for job, spec in zip(ids, specs, strict=True):
                if job in self.jobs.row_of:
                    self.eligibility.forget(job, spec)
                    self.asks.forget(job)
                self._specs.pop(job, None)
                self._reasons.pop(job, None)
            self.jobs.pack(self.jobs["job"] <= self._highest)

    # -- what others ask ---------------------------------------------------------------------------

    @property
    def stamp(self) -> int:
        """Grows with whatever could let somebody start."""
        return self._stamp

    def waiting(self) -> list[int]:
        """Jobs that have a place in the policy's order, and no run."""
        return list(self._positions)

    def reason(self, job: JobId) -> str:
        """Why a pending job waits; never empty."""
        if job in self.jobs.row_of:
            hindrance = self.eligibility.hindrance(job, self._now)  # known before the next round
            if hindrance:
                return hindrance
        claim = self.claims.get(job)
        if claim is not None:
            hindrance = self.machines.hindrance(claim.placement, self.part_of(job))
            return f"Resources: {hindrance or 'about to start'}"
        return self._reasons.get(job) or "Resources: waits for the next round"

    def position(self, job: JobId) -> int | None:
        """A waiting job's place in the policy's order, from 1; None while it has none."""
        return self._positions.get(job)

    def spec(self, job: JobId) -> JobSpec | None:
        """What a live job asks for, as it stands."""
        return self._specs.get(job)

    def where(self, job: JobId) -> Placement | None:
        """Where a job's live run is, suspended or not."""
        return self._lives.where.get(job)

    def part_of(self, job: int) -> float:
        """What a job needs of each of its GPUs, in (0, 1]."""
        return float(self.jobs.get("gpu_share", self.jobs.row_of[job]))

    def beside(self, job: JobId) -> list[JobId]:
        """The other jobs that run on the very GPUs of a job that runs."""
        where = self._lives.where.get(job)
        if where is None or self.part_of(job) >= WHOLE:
            return []
        there = map(JobId, self._lives.there[where])
        return sorted(other for other in there if other != job and self._is_on_gpus(other))

    def _is_on_gpus(self, job: JobId) -> bool:
        return bool(self.jobs.get("phase", self.jobs.row_of[job]) == c.HOLDING)

    def preempt_mode(self, job: JobId) -> PreemptMode:
        """How a job gives way.

        Ranks on several nodes wait for each other with a time limit that goes on while they are
        suspended, so they begin anew, unless beginning anew is what the job must not.
        """
        where = self._lives.where.get(job)
        if self.settings.preempt_mode == "requeue" or job in self._cooperative or where is None:
            return "requeue"
        spans = len(where.nodes) > 1 and self._specs[job].body.requeue
        return "requeue" if spans else "suspend"

    # -- packing -----------------------------------------------------------------------------------

    def _pack(self) -> None:
        """Drop the rows of jobs that ended long ago."""
        if self._ended <= max(2 * self._learn_from, self.jobs.count // 2):
            return
        recent = set(self.finished[max(len(self.finished) - self._learn_from, 0) :])
        ended = self.jobs["phase"] == c.ENDED
        keep = ~ended | np.isin(self.jobs["job"], np.fromiter(recent, np.int64))
        for job in self.jobs.pack(keep):
            self._specs.pop(job, None)
        self.finished = [job for job in self.finished if job in recent]
        self._ended = len(recent)


def _most_gpus(body: JobBody) -> int:
    """At most so many GPUs; −1: as many as the job names."""
    if body.max_gpus is not None:
        return body.max_gpus
    return ANY_NUMBER if body.adaptive or body.fixed_batch else -1


def _subject(write: Write, ledger: Ledger) -> tuple[JobId | None, NodeName | None]:
    """The job and the node that a change is about."""
    match write:
        case Submit(job=job) | CancelJob(job=job):
            return job, None
        case Assign(key=key):
            return key.job, None
        case ReleaseRun() | StopRun() | SuspendRun() | LetGo() | MemberOver():
            run = ledger.runs.get(write.run_id)
            return (None if run is None else run.key.job), None
        case Adopt(held=held, node=node):
            return held.key.job, node
        case RegisterNode() | SetNode() | Quarantine() | OrphanOver():
            return None, write.node
        case _:
            return None, None


def _loss_of(progress: Progress | None) -> float:
    """The loss that a run told; NaN where it told none, or nonsense."""
    loss = None if progress is None else progress.loss
    return loss if loss is not None and np.isfinite(loss) else np.nan
