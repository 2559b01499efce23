"""A small live cluster: a ledger, the state that follows it, and agents that obey at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlsched.core.service_clock import Received
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.live.nodes import ClusterRules
from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.plan import Plan, carry_out, due, verify
from dlsched.daemon.round.round_state import RoundState
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.reading.loading import JobFacts, Loaded
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import JobBody, JobSpec
from dlsched.db.served import JobServed, RunServed
from dlsched.db.usage import UsedByOwner
from dlsched.jobs.typed_forms import uses_leftovers
from dlsched.protocol.ledger import (
    Assign,
    CancelJob,
    Changes,
    JobStatus,
    Ledger,
    LetGo,
    MemberOver,
    RegisterNode,
    ReleaseRun,
    Request,
    RunStatus,
    StopRun,
    Submit,
    SuspendRun,
    Write,
    apply_all,
)
from dlsched.protocol.messages import (
    BootId,
    ExitReason,
    ExitRecord,
    GpuId,
    Incarnation,
    Inventory,
    JobId,
    NodeName,
    RequestId,
    RunId,
    RunKey,
    RunNumber,
    Share,
    StopReason,
    SuspendLevel,
)


class LiveLab:
    """A state and its ledger; every write goes through both."""

    def __init__(
        self,
        nodes: Sequence[int] = (4, 4),
        *,
        parts: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        rules: ClusterRules | None = None,
        learn_from: int = 512,
        **settings: Any,
    ) -> None:
        made = RoundSettings(
            parts=dict(parts or {"scheduling": "fifo"}), options=tuple(options), **settings
        )
        self.state = RoundState(LiveState(rules, learn_from=learn_from), made)
        self.ledger = Ledger()
        self.log: list[tuple[float, Write]] = []
        self.runs = 0
        self.submitted: dict[int, float] = {}
        self.served: dict[JobId, JobServed] = {}
        self.received: dict[JobId, tuple[RunId, Received]] = {}
        self.used: dict[tuple[str, str, str], UsedByOwner] = {}
        for number, gpus in enumerate(nodes, 1):
            self.add_node(f"n{number}", gpus)

    @property
    def live(self) -> LiveState:
        return self.state.live

    def write(self, now: float, *writes: Write) -> None:
        self.ledger = apply_all(self.ledger, writes)
        self.log += [(now, write) for write in writes]
        self.live.apply(Changes(writes), self.ledger, now)
        self.keep(self.live.rows_to_store())

    def keep(self, rows: Sequence[JobServed | RunServed | UsedByOwner]) -> None:
        """Keep what is stored with a transaction."""
        for row in rows:
            if isinstance(row, JobServed):
                self.served[row.job] = row
            elif isinstance(row, RunServed):
                job = self.ledger.runs[row.run_id].key.job
                self.received[job] = row.run_id, row.received
            else:
                self.used[row.user_name, row.account, row.vc] = row

    def add_node(self, name: str, gpus: int, kind: str = "gpu", now: float = 0.0) -> None:
        inventory = Inventory(
            gpus=tuple(GpuId(f"GPU-{name}-{k}") for k in range(gpus)), gpu_type=kind
        )
        self.write(
            now,
            RegisterNode(
                node=NodeName(name),
                boot_id=BootId("boot"),
                incarnation=Incarnation(1),
                inventory=inventory,
            ),
        )

    def submit(self, now: float, gpus: int = 1, **body: Any) -> JobId:
        job = self.ledger.next_job
        user = str(body.pop("user", "ann"))
        array, index = body.pop("array", None), body.pop("index", 0)
        level = body.pop("suspend_level", SuspendLevel.FREEZE)
        body.setdefault("name", f"job{job}")
        spec = JobSpec(
            body=JobBody(gpus=gpus, **body),
            user=user,
            uid=1000,
            submitted_at=now,
            array=array,
            index=index,
        )
        request = Request(
            request_id=RequestId(f"r{job}"),
            user=user,
            gang=body.get("gang") or (gpus,),
            suspend_level=level,
            requeue=spec.body.requeue,
            gpu_share=0.0 if uses_leftovers(spec.body) else spec.body.gpu_share,
            spec=spec,
        )
        self.submitted[job] = now
        self.write(now, Submit(request=request, job=job))
        return job

    def assign(self, now: float, job: JobId, shares: tuple[Share, ...]) -> None:
        self.runs += 1
        number = RunNumber(self.ledger.jobs[job].runs + 1)
        key = RunKey(job, number, RunId(f"run{self.runs}"))
        self.write(now, Assign(key=key, shares=shares))
        run = self.ledger.live_run(job)
        assert run is not None
        if run.status is RunStatus.PREPARING:
            self.write(now, ReleaseRun(key.run_id))

    def stop(self, now: float, job: JobId, reason: StopReason) -> None:
        run = self.ledger.live_run(job)
        assert run is not None
        self.write(now, StopRun(run.key.run_id, reason))

    def end(self, now: float, job: JobId, *, code: int = 0, members: int | None = None) -> None:
        """A job's run ends with an exit code on its nodes."""
        run = self.ledger.live_run(job)
        assert run is not None
        names = [name for name, member in run.members.items() if not member.is_over][:members]
        for name in names:
            record = ExitRecord(
                key=run.key, node=name, reason=ExitReason.EXITED, code=code, stop=run.stop
            )
            self.write(now, MemberOver(run.key.run_id, name, exit=record))

    def cancel(self, now: float, job: JobId) -> None:
        if self.ledger.jobs[job].status is JobStatus.PENDING:
            self.write(now, CancelJob(job))
        elif self.ledger.live_run(job) is not None:
            self.stop(now, job, StopReason.CANCEL)

    def decide(self, now: float, mode: Any = "full") -> Decided:
        return decide(take_snapshot(self.state, mode, now))

    def round(self, now: float, mode: Any = "full", *, at_once: bool = True) -> Decided:
        """One round: decided, verified, carried out."""
        decided = self.decide(now, mode)
        problems = verify(decided, self.live)
        assert not problems, [str(problem) for problem in problems]
        self.carry(now, carry_out(decided, self.state), at_once=at_once)
        return decided

    def carry(self, now: float, plan: Plan, *, at_once: bool = True) -> None:
        """Do what a plan says; with `at_once`, the runs that are asked to leave have left."""
        for job, reason in plan.stops:
            self.stop(now, job, reason)
        for job in plan.suspends:
            self.suspend(now, job, suspended=True, gives_way=True)
        if at_once:
            for job, _ in plan.stops:
                self.end(now, job, code=143)
            for job in plan.suspends:
                self.let_go(now, job)
        self.start_due(now)

    def suspend(self, now: float, job: JobId, *, suspended: bool, gives_way: bool = False) -> None:
        run = self.ledger.live_run(job)
        assert run is not None
        self.write(now, SuspendRun(run.key.run_id, suspended, gives_way))

    def let_go(self, now: float, job: JobId) -> None:
        """Every node says that a suspended job is off its GPUs."""
        run = self.ledger.live_run(job)
        assert run is not None
        for name, member in run.members.items():
            if not member.is_over:
                self.write(now, LetGo(run.key.run_id, name))

    def start_due(self, now: float) -> list[JobId]:
        ready = due(self.live)
        for job in ready.resumes:
            self.suspend(now, job, suspended=False)
        for job, shares in ready.starts:
            self.assign(now, job, shares)
        return [job for job, _ in ready.starts]

    def restart(self, now: float) -> None:
        """The daemon is killed and begins anew from what was durable."""
        before = self.state
        facts = {
            job: JobFacts(job=job, served=served, received=self.received.get(job))
            for job, served in self.served.items()
        }
        loaded = Loaded(
            ledger=self.ledger,
            jobs=facts,
            run_times={},
            usage=tuple(self.used.values()),
            policy_state=before.policy_state,
            round_number=before.number,
        )
        columns, finished = before.live.jobs, before.live.finished
        ended = sorted(j for j, row in self.ledger.jobs.items() if row.status.is_terminal)
        learn_from = [
            StoredJob(
                job=self.ledger.jobs[job],
                facts=replace(
                    facts.get(job, JobFacts(job=job)),
                    ended_at=columns.get("finish", columns.row_of[job]),
                ),
                state="",
            )
            for job in (*finished, *(job for job in ended if job not in finished))
            if job in columns.row_of
        ]
        live = LiveState(self.live.rules).successor(loaded, now, learn_from=learn_from)
        self.state = RoundState.of_loaded(live, before.settings, loaded)

    def running(self) -> dict[int, tuple[Share, ...]]:
        """The jobs that hold GPUs, by the ledger."""
        return {
            run.key.job: tuple(Share(node=m.node, gpus=m.gpus) for m in run.members.values())
            for run in self.ledger.runs.values()
            if not run.is_over and not run.is_away and (run.gives_way or not run.suspended)
        }

    def gpus_of(self, job: int) -> int:
        return sum(len(share.gpus) for share in self.running().get(job, ()))


def held_twice(shares: Iterable[tuple[Share, ...]]) -> list[str]:
    """GPUs that are in more than one of the runs."""
    every = [gpu for run in shares for share in run for gpu in share.gpus]
    return sorted({gpu for gpu in every if every.count(gpu) > 1})
