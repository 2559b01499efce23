"""What the database knows, as a frozen value, and the only changes that exist.

The leader decides on one ledger and speaks from another: `reserved` has every change that is on
its way to the database, `committed` only those that came back. `apply` is the whole meaning of a
change; the live store carries the same changes out as SQL, with the epoch in the WHERE of every
write.

Invariant: a job has at most one run that is not over, unless `MemberOver` says why a lost one
counts as over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from dlsched.core.errors import InvariantBroken
from dlsched.protocol.messages import (
    BootId,
    DesiredRun,
    Epoch,
    ExitReason,
    ExitRecord,
    Fence,
    GpuId,
    HeldRun,
    Incarnation,
    Inventory,
    JobId,
    LaunchMode,
    Limits,
    NodeName,
    RequestId,
    Revision,
    RunId,
    RunKey,
    RunNumber,
    Share,
    StopReason,
    SuspendLevel,
    Term,
    Want,
)
from dlsched.protocol.table import Table, table_of

K = TypeVar("K")
V = TypeVar("V")


def having(table: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """The same table with one entry set; cheap for a `Table`, a copy for a small dict."""
    return table.having(key, value) if isinstance(table, Table) else {**table, key: value}


class JobStatus(Enum):
    """Where a job stands; the last four are terminal."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can happen to the job any more."""
        return self in TERMINAL


TERMINAL = frozenset(
    {JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.TIMEOUT, JobStatus.CANCELLED}
)


class Cause(Enum):
    """What moves a job from one status to another."""

    ASSIGNED = "assigned"
    RELEASED = "released"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    STOP_ASKED = "stop asked"
    REQUEUED = "requeued"
    COMPLETED = "completed"
    FAILED = "failed"
    LOST = "ended"  # its run was lost or taken back, and it must not begin anew
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    ADOPTED = "adopted"


_LIVE = (JobStatus.STARTING, JobStatus.RUNNING, JobStatus.SUSPENDED, JobStatus.STOPPING)
TRANSITIONS: Mapping[tuple[JobStatus, Cause], JobStatus] = MappingProxyType(
    {
        (JobStatus.PENDING, Cause.ASSIGNED): JobStatus.STARTING,
        (JobStatus.PENDING, Cause.CANCELLED): JobStatus.CANCELLED,
        (JobStatus.PENDING, Cause.ADOPTED): JobStatus.RUNNING,
        # a late exit of a run that was given up while its successor was not released
        (JobStatus.PENDING, Cause.COMPLETED): JobStatus.COMPLETED,
        (JobStatus.PENDING, Cause.FAILED): JobStatus.FAILED,
        (JobStatus.PENDING, Cause.TIMED_OUT): JobStatus.TIMEOUT,
        (JobStatus.STARTING, Cause.RELEASED): JobStatus.RUNNING,
        (JobStatus.RUNNING, Cause.SUSPENDED): JobStatus.SUSPENDED,
        (JobStatus.SUSPENDED, Cause.RESUMED): JobStatus.RUNNING,
    }
    | {(status, Cause.STOP_ASKED): JobStatus.STOPPING for status in _LIVE}
    | {(status, Cause.REQUEUED): JobStatus.PENDING for status in _LIVE}
    | {(status, Cause.COMPLETED): JobStatus.COMPLETED for status in _LIVE}
    | {(status, Cause.FAILED): JobStatus.FAILED for status in _LIVE}
    | {(status, Cause.LOST): JobStatus.FAILED for status in _LIVE}
    | {(status, Cause.TIMED_OUT): JobStatus.TIMEOUT for status in _LIVE}
    | {(status, Cause.CANCELLED): JobStatus.CANCELLED for status in _LIVE}
)


class NodeStatus(Enum):
    """What the leader does with a node's syncs."""

    UP = "up"
    LOST = "lost"  # silent for a proven window: its fenced runs are over
    DOWN = "down"  # an operator says that nothing runs there


class RunStatus(Enum):
    """Where one run stands."""

    PREPARING = "preparing"
    RELEASED = "released"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asks for; the same request id with the same content is the same job."""

    request_id: RequestId
    user: str = ""
    gang: tuple[int, ...] = (1,)  # GPUs a node
    mode: LaunchMode = LaunchMode.BATCH
    fence: Fence = Fence.HOLD
    retries: int = 0  # counts the job's own failures only
    limits: Limits = Limits()
    grace_s: float = 30.0
    suspend_level: SuspendLevel = SuspendLevel.FREEZE
    requeue: bool = True  # else a run that is lost or taken back is the job's end
    spec: object = None  # what else the job is; compared, stored, never looked into here


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What of a request may change after it was accepted; the request itself never does."""

    limits: Limits
    grace_s: float
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job's row."""

    job: JobId
    request: Request
    status: JobStatus = JobStatus.PENDING
    reason: str = "Resources"  # never empty while pending
    runs: RunNumber = RunNumber(0)  # the highest run number given
    failures: int = 0
    preemptions: int = 0
    exit: ExitRecord | None = None
    story: tuple[str, ...] = ()
    changed: Terms | None = None  # since it was accepted

    @property
    def terms(self) -> Terms:
        """Limits, grace and retries as they stand."""
        if self.changed is not None:
            return self.changed
        asked = self.request
        return Terms(limits=asked.limits, grace_s=asked.grace_s, retries=asked.retries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node's part in a run."""

    node: NodeName
    gpus: tuple[GpuId, ...]
    boot_id: BootId
    since: Term  # the node's desired set that first had it
    exit: ExitRecord | None = None  # recorded by the node; never replaced
    presumed: str = ""  # why it counts as over without a record, or is not the job's own doing
    let_go: bool = False  # its node says that the suspended run has nothing on its GPUs

    @property
    def is_over(self) -> bool:
        """Whether the node's part is known to be over."""
        return self.exit is not None or bool(self.presumed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run's row."""

    key: RunKey
    status: RunStatus
    members: Mapping[NodeName, Member]
    epoch: Epoch
    stop: StopReason | None = None
    stop_step: int | None = None
    suspended: bool = False
    suspension: int = 0  # the newest in which it gives way; never given twice, restores included
    gives_way: bool = False  # while suspended, others are to have its GPUs
    released: bool = False  # whether it may ever have executed

    @property
    def is_over(self) -> bool:
        """Whether every member is over."""
        return self.status is RunStatus.OVER

    @property
    def is_giving_way(self) -> bool:
        """Whether it is suspended, and nothing else is asked of it, for others to have its GPUs."""
        return self.suspended and self.gives_way and self.stop is None

    @property
    def is_away(self) -> bool:
        """Whether it is suspended and every node has said that its GPUs are free."""
        return (
            self.suspended
            and self.gives_way
            and all(member.let_go for member in self.members.values() if not member.is_over)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A run that a node holds and the database does not know."""

    held: HeldRun
    node: NodeName
    since: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's row."""

    name: NodeName
    boot_id: BootId = BootId("")
    incarnation: Incarnation = Incarnation(0)
    revision: Revision = Revision(0)
    status: NodeStatus = NodeStatus.UP
    why: str = ""
    gpus: tuple[GpuId, ...] = ()
    quarantined: tuple[GpuId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The database's content, as far as the protocol cares.

    `runs_of` and `held_by` say again what `runs` says, by job and by node, so that nothing looks
    through all jobs or runs; both follow every change of a run.
    """

    epoch: Epoch = Epoch(0)
    leader: str = ""
    next_job: JobId = JobId(1)
    jobs: Mapping[JobId, Job] = field(default_factory=Table)
    runs: Mapping[RunId, Run] = field(default_factory=Table)
    nodes: Mapping[NodeName, Node] = field(default_factory=Table)
    orphans: Mapping[tuple[NodeName, RunId], Orphan] = field(default_factory=Table)
    history: Mapping[tuple[NodeName, RunId], ExitRecord] = field(default_factory=Table)
    requests: Mapping[tuple[str, RequestId], JobId] = field(default_factory=Table)
    runs_of: Mapping[JobId, tuple[RunId, ...]] = field(
        default_factory=Table, repr=False, compare=False
    )
    held_by: Mapping[NodeName, frozenset[RunId]] = field(  # its member is not over
        default_factory=Table, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Derive what was not given: a ledger from elsewhere has plain tables only."""
        if not isinstance(self.runs, Table) or (self.runs and not self.runs_of):
            self._index()

    def _index(self) -> None:
        of: dict[JobId, tuple[RunId, ...]] = {}
        by: dict[NodeName, frozenset[RunId]] = {}
        for run_id, run in self.runs.items():
            of[run.key.job] = (*of.get(run.key.job, ()), run_id)
            for member in run.members.values():
                if not run.is_over and not member.is_over:
                    by[member.node] = by.get(member.node, frozenset()) | {run_id}
        for name in ("jobs", "runs", "nodes", "orphans", "history", "requests"):
            object.__setattr__(self, name, table_of(getattr(self, name)))
        object.__setattr__(self, "runs_of", Table(of))
        object.__setattr__(self, "held_by", Table(by))

    def runs_on(self, node: NodeName) -> list[Run]:
        """The runs with a member on a node that is not over, in key order."""
        found = [self.runs[run_id] for run_id in self.held_by.get(node, ())]
        return sorted(found, key=lambda run: run.key)

    def runs_of_job(self, job: JobId) -> list[Run]:
        """Every run of a job that is known here, in the order in which they came."""
        return [self.runs[run_id] for run_id in self.runs_of.get(job, ())]

    def live_run(self, job: JobId) -> Run | None:
        """The job's run that is not over."""
        for run_id in reversed(self.runs_of.get(job, ())):
            if not self.runs[run_id].is_over:
                return self.runs[run_id]
        return None

    def busy(self, node: NodeName, without: RunId | None = None) -> set[GpuId]:
        """The GPUs of a node that cannot be given out; one run may be left out of the count.

        A run that is away holds none, until it is asked to leave: it may want to save before.
        """
        taken = set(self.nodes[node].quarantined)
        for run_id in self.held_by.get(node, ()):
            run = self.runs[run_id]
            if run_id != without and not (run.is_away and run.stop is None):
                taken.update(run.members[node].gpus)
        for (place, _), orphan in self.orphans.items():
            if place == node:
                taken.update(orphan.held.gpus)
        return taken

    def desired(self, node: NodeName) -> tuple[DesiredRun, ...]:
        """What a node is to hold; runs that are over are not in it."""
        return tuple(self._desired_run(run, node) for run in self.runs_on(node))

    def _desired_run(self, run: Run, node: NodeName) -> DesiredRun:
        job = self.jobs[run.key.job]
        request, terms = job.request, job.terms
        if run.stop is not None:
            want = Want.STOPPED
        elif run.status is RunStatus.PREPARING:
            want = Want.PREPARED
        else:
            want = Want.SUSPENDED if run.suspended else Want.RUNNING
        return DesiredRun(
            key=run.key,
            want=want,
            epoch=run.epoch,
            boot_id=run.members[node].boot_id,
            gpus=run.members[node].gpus,
            layout=tuple(Share(node=m.node, gpus=m.gpus) for m in run.members.values()),
            mode=request.mode,
            fence=request.fence,
            limits=terms.limits,
            grace_s=terms.grace_s,
            suspend_level=request.suspend_level,
            suspension=run.suspension if run.suspended and run.gives_way else 0,
            stop=run.stop,
            stop_step=run.stop_step,
            request_id=request.request_id,
        )


# -- the changes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A job is accepted under the next id."""

    request: Request
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """A job's next run gets its GPUs; a one-node run is released with it."""

    key: RunKey
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class ReleaseRun:
    """Every member has prepared: the run may execute."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class StopRun:
    """A run is asked to stop; a cancel overrides any other reason, and `why` is the job's."""

    run_id: RunId
    reason: StopReason
    step: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class SuspendRun:
    """A run is to be suspended, or to go on; with `gives_way` others get its GPUs meanwhile."""

    run_id: RunId
    suspended: bool
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class LetGo:
    """A node says that a suspended run has nothing on its GPUs there any more."""

    run_id: RunId
    node: NodeName


@dataclass(frozen=True, slots=True)
class MemberOver:
    """One node's part of a run is over: by its record, or presumed for a named reason."""

    run_id: RunId
    node: NodeName
    exit: ExitRecord | None = None
    presumed: str = ""


@dataclass(frozen=True, slots=True)
class CancelJob:
    """A pending job is cancelled; `why` when it was not a user's wish."""

    job: JobId
    why: str = ""


@dataclass(frozen=True, slots=True)
class ChangeTerms:
    """A job has other limits, grace or retries from here on; its present run too."""

    job: JobId
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterNode:
    """A node's agent has started and said what the node is."""

    node: NodeName
    boot_id: BootId
    incarnation: Incarnation
    inventory: Inventory


@dataclass(frozen=True, slots=True)
class SetNode:
    """A node is up, lost or down, and why."""

    node: NodeName
    status: NodeStatus
    why: str = ""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The GPUs of a node that stuck processes hold."""

    node: NodeName
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class Adopt:
    """A run that the database does not know is alive on a node: keep it and show it."""

    held: HeldRun
    node: NodeName


@dataclass(frozen=True, slots=True)
class OrphanOver:
    """An unknown run has ended (or is no longer there)."""

    node: NodeName
    run_id: RunId
    exit: ExitRecord | None


@dataclass(frozen=True, slots=True)
class RaiseEpoch:
    """A node has seen a higher epoch than this database: go on above it."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class RaiseRevision:
    """A node has seen a higher revision than this database: go on above it."""

    node: NodeName
    revision: Revision


@dataclass(frozen=True, slots=True)
class Attach:
    """A row that is durable with the other changes of its transaction and means nothing here."""

    row: object


Write = (
    Submit
    | Assign
    | ReleaseRun
    | StopRun
    | SuspendRun
    | LetGo
    | MemberOver
    | CancelJob
    | ChangeTerms
    | RegisterNode
    | SetNode
    | Quarantine
    | Adopt
    | OrphanOver
    | RaiseEpoch
    | RaiseRevision
    | Attach
)


def apply(ledger: Ledger, write: Write) -> Ledger:  # noqa: PLR0911, PLR0912  # one case a change
    """The ledger after one change.

    Raises:
        InvariantBroken: when the change is not possible there, with the job's story.
    """
    match write:
        case Submit():
            return _submit(ledger, (write,))
        case Assign():
            return _assign(ledger, write)
        case ReleaseRun(run_id=run_id):
            run = ledger.runs[run_id]
            ledger = _put(ledger, replace(run, status=RunStatus.RELEASED, released=True))
            return _move(ledger, run.key.job, Cause.RELEASED)
        case StopRun(run_id=run_id, reason=reason, step=step, why=why):
            run = ledger.runs[run_id]
            if run.is_over or (run.stop is not None and reason is not StopReason.CANCEL):
                return ledger
            ledger = _put(ledger, replace(run, stop=reason, stop_step=step))
            told = {"reason": why} if why else {}
            return _move(ledger, run.key.job, Cause.STOP_ASKED, reason.value, **told)
        case SuspendRun():
            return _suspend(ledger, write)
        case LetGo():
            return _let_go(ledger, write)
        case MemberOver():
            return _member_over(ledger, write)
        case CancelJob(job=job, why=why):
            return _move(ledger, job, Cause.CANCELLED, why, reason=why)
        case ChangeTerms(job=job, terms=terms):
            row = replace(ledger.jobs[job], changed=terms)
            ledger = replace(ledger, jobs=having(ledger.jobs, job, row))
            live = ledger.live_run(job)
            return ledger if live is None else _bump(ledger, live.members)
        case RegisterNode():
            node = ledger.nodes.get(write.node, Node(name=write.node))
            node = replace(
                node,
                boot_id=write.boot_id,
                incarnation=write.incarnation,
                gpus=write.inventory.gpus,
                status=NodeStatus.UP,
                why="",
            )
            return replace(ledger, nodes=having(ledger.nodes, write.node, node))
        case SetNode(node=name, status=status, why=why):
            node = replace(ledger.nodes[name], status=status, why=why)
            if status is NodeStatus.DOWN:  # its disk may come back empty
                node = replace(node, incarnation=Incarnation(0))
            return replace(ledger, nodes=having(ledger.nodes, name, node))
        case Quarantine(node=name, gpus=gpus):
            node = replace(ledger.nodes[name], quarantined=gpus)
            return replace(ledger, nodes=having(ledger.nodes, name, node))
        case Adopt():
            return _adopt(ledger, write)
        case OrphanOver():
            return _orphan_over(ledger, write)
        case RaiseEpoch(epoch=epoch):
            return replace(ledger, epoch=Epoch(max(epoch, ledger.epoch)))
        case RaiseRevision(node=name, revision=revision):
            node = ledger.nodes[name]
            node = replace(node, revision=Revision(max(revision, node.revision)))
            return replace(ledger, nodes=having(ledger.nodes, name, node))
        case Attach():
            return ledger


def apply_all(ledger: Ledger, writes: Iterable[Write]) -> Ledger:
    """The ledger after some changes, in order; neighbouring submissions are one change."""
    waiting: list[Submit] = []
    for write in writes:
        if isinstance(write, Submit):
            waiting.append(write)
            continue
        if isinstance(write, Attach):
            continue
        if waiting:
            ledger, waiting = _submit(ledger, waiting), []
        ledger = apply(ledger, write)
    return _submit(ledger, waiting) if waiting else ledger


def _submit(ledger: Ledger, writes: Sequence[Submit]) -> Ledger:
    jobs = [(w.job, Job(job=w.job, request=w.request)) for w in writes]
    requests = [((w.request.user, w.request.request_id), w.job) for w in writes]
    return replace(
        ledger,
        next_job=JobId(max(ledger.next_job, max(w.job for w in writes) + 1)),
        jobs=table_of(ledger.jobs).having_all(jobs),
        requests=table_of(ledger.requests).having_all(requests),
    )


def without_jobs(ledger: Ledger, jobs: Iterable[JobId]) -> Ledger:
    """The ledger without some ended jobs and their runs: they are in the database only."""
    gone = [ledger.jobs[job] for job in jobs if job in ledger.jobs]
    ids = [row.job for row in gone]
    runs = [run_id for job in ids for run_id in ledger.runs_of.get(job, ())]
    return replace(
        ledger,
        jobs=table_of(ledger.jobs).without(ids),
        requests=table_of(ledger.requests).without(
            (row.request.user, row.request.request_id) for row in gone
        ),
        runs=table_of(ledger.runs).without(runs),
        runs_of=table_of(ledger.runs_of).without(ids),
    )


def with_run(ledger: Ledger, job: Job, run: Run) -> Ledger:
    """The ledger with a run, and its job, that the database knows and memory had dropped."""
    if run.key.run_id in ledger.runs:
        return ledger
    if job.job not in ledger.jobs:
        ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    return _indexed(replace(ledger, runs=having(ledger.runs, run.key.run_id, run)), run)


def _bump(ledger: Ledger, nodes: Iterable[NodeName]) -> Ledger:
    """New revisions for nodes whose desired set has changed."""
    rows = [ledger.nodes[name] for name in nodes if name in ledger.nodes]
    bumped = [(row.name, replace(row, revision=Revision(row.revision + 1))) for row in rows]
    return replace(ledger, nodes=table_of(ledger.nodes).having_all(bumped))


def _put(ledger: Ledger, run: Run) -> Ledger:
    ledger = replace(ledger, runs=having(ledger.runs, run.key.run_id, run))
    return _bump(_indexed(ledger, run), run.members)


def _indexed(ledger: Ledger, run: Run) -> Ledger:
    """The ledger with its two indices as one run now says."""
    run_id, of = run.key.run_id, ledger.runs_of.get(run.key.job, ())
    if run_id not in of:
        ledger = replace(ledger, runs_of=having(ledger.runs_of, run.key.job, (*of, run_id)))
    changed = []
    for name, member in run.members.items():
        held = ledger.held_by.get(name, frozenset())
        holds = not run.is_over and not member.is_over
        if holds != (run_id in held):
            changed.append((name, held | {run_id} if holds else held - {run_id}))
    if not changed:
        return ledger
    return replace(ledger, held_by=table_of(ledger.held_by).having_all(changed))


def _move(ledger: Ledger, job: JobId, cause: Cause, why: str = "", **changes: Any) -> Ledger:
    row = ledger.jobs[job]
    target = TRANSITIONS.get((row.status, cause))
    if target is None:
        raise InvariantBroken(
            f"job {job} is {row.status.value} and cannot be {cause.value}; its story: "
            + "; ".join(row.story)
        )
    line = f"{row.status.value} -> {target.value}: {cause.value} {why}".rstrip()
    row = replace(row, status=target, story=(*row.story, line), **changes)
    return replace(ledger, jobs=having(ledger.jobs, job, row))


def _assign(ledger: Ledger, write: Assign) -> Ledger:
    key = write.key
    for share in write.shares:
        held = set(share.gpus) & ledger.busy(share.node)
        if held:
            raise InvariantBroken(f"run {key}: {share.node} {sorted(held)} is not free")
    members = {}
    for share in write.shares:
        node = ledger.nodes[share.node]
        members[share.node] = Member(
            node=share.node,
            gpus=share.gpus,
            boot_id=node.boot_id,
            since=Term(ledger.epoch, Revision(node.revision + 1)),
        )
    alone = len(members) == 1
    run = Run(
        key=key,
        status=RunStatus.RELEASED if alone else RunStatus.PREPARING,
        members=members,
        epoch=ledger.epoch,
        released=alone,
    )
    ledger = _move(ledger, key.job, Cause.ASSIGNED, f"run {key.run}", runs=key.run, reason="")
    if alone:
        ledger = _move(ledger, key.job, Cause.RELEASED, "one node")
    return _put(ledger, run)


SUSPENSIONS = 1 << 20  # of a run, in one term


def _suspend(ledger: Ledger, write: SuspendRun) -> Ledger:
    run = ledger.runs[write.run_id]
    if not write.suspended and run.gives_way:
        for name, member in run.members.items():
            lent = set(member.gpus) & ledger.busy(name, run.key.run_id)
            if lent and not member.is_over:
                raise InvariantBroken(f"run {run.key}: {name} {sorted(lent)} is not free")
    gives_way = write.suspended and write.gives_way
    # numbers of a term that a restore has undone stay below those of the next
    number = max(run.suspension, ledger.epoch * SUSPENSIONS) + 1 if gives_way else run.suspension
    members = {name: replace(member, let_go=False) for name, member in run.members.items()}
    run = replace(
        run, suspended=write.suspended, gives_way=gives_way, suspension=number, members=members
    )
    cause = Cause.SUSPENDED if write.suspended else Cause.RESUMED
    return _move(_put(ledger, run), run.key.job, cause)


def _let_go(ledger: Ledger, write: LetGo) -> Ledger:
    run = ledger.runs[write.run_id]
    member = replace(run.members[write.node], let_go=True)
    new = replace(run, members=having(run.members, write.node, member))
    if new.is_away and not run.is_away:
        job = ledger.jobs[run.key.job]
        job = replace(job, preemptions=job.preemptions + 1)
        ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    return replace(ledger, runs=having(ledger.runs, write.run_id, new))


def _adopt(ledger: Ledger, write: Adopt) -> Ledger:
    """An unknown run; of a known job it keeps that job from starting until it is over."""
    held, name = write.held, write.node
    node = ledger.nodes[name]
    since = Term(ledger.epoch, Revision(node.revision + 1))
    orphan = Orphan(held=held, node=name, since=since)
    ledger = replace(ledger, orphans=having(ledger.orphans, (name, held.key.run_id), orphan))
    ledger = replace(ledger, next_job=JobId(max(ledger.next_job, held.key.job + 1)))
    job = ledger.jobs.get(held.key.job)
    if job is not None and job.request.request_id == held.request_id:
        runs = RunNumber(max(job.runs, held.key.run))
        line = f"run {held.key.run} is alive on {name}, unknown here"
        job = replace(job, runs=runs, story=(*job.story, line))
        if job.status is JobStatus.PENDING:
            job = replace(job, reason=f"Orphan(run {held.key.run} on {name})")
        ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    return _bump(ledger, [name])


def _orphan_over(ledger: Ledger, write: OrphanOver) -> Ledger:
    """An unknown run is over; its record still ends its job when nothing newer was released."""
    place, record = (write.node, write.run_id), write.exit
    orphan = ledger.orphans.get(place)
    ledger = replace(ledger, orphans=table_of(ledger.orphans).without([place]))
    if record is not None:
        ledger = replace(ledger, history=having(ledger.history, place, record))
    known = orphan.held if orphan is not None else record
    job = ledger.jobs.get(known.key.job) if known is not None else None
    if known is not None and job is not None and job.request.request_id == known.request_id:
        ledger = _job_of_orphan(ledger, job, known.key.run, record)
    return _bump(ledger, [write.node])


def _job_of_orphan(
    ledger: Ledger, job: Job, number: RunNumber, record: ExitRecord | None
) -> Ledger:
    runs = RunNumber(max(job.runs, number))
    waiting = job.reason.startswith("Orphan")
    job = replace(job, runs=runs, reason="Resources" if waiting else job.reason)
    ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    newer = any(run.key.run >= number and run.released for run in ledger.runs_of_job(job.job))
    if record is None or newer or job.status is not JobStatus.PENDING or len(record.nodes) > 1:
        return ledger
    if _succeeded(record):
        return _move(ledger, job.job, Cause.COMPLETED, "orphan: exit 0", exit=record, reason="")
    if _is_own_failure(record):
        return _move(ledger, job.job, Cause.FAILED, "orphan", exit=record, reason="")
    return ledger


def _member_over(ledger: Ledger, write: MemberOver) -> Ledger:
    run = ledger.runs[write.run_id]
    member = run.members[write.node]
    if member.exit is not None:
        return ledger  # P3: a recorded exit is never replaced
    late = run.is_over
    member = replace(member, exit=write.exit, presumed=write.presumed or member.presumed)
    run = replace(run, members=having(run.members, write.node, member))
    if not late and all(m.is_over for m in run.members.values()):
        run = replace(run, status=RunStatus.OVER)
    ledger = _put(ledger, run)
    if late:
        return _late_exit(ledger, run)
    if run.is_over:
        return _finish(ledger, run)
    return _end_peers(ledger, run, member)


def _end_peers(ledger: Ledger, run: Run, member: Member) -> Ledger:
    """One member of a gang is over: does the rest of it have to go?"""
    request = ledger.jobs[run.key.job].request
    if run.status is RunStatus.PREPARING:
        return apply(ledger, StopRun(run.key.run_id, StopReason.ABORT))
    fine = member.exit is not None and _succeeded(member.exit)
    if fine and (request.mode is not LaunchMode.BATCH or member.node != next(iter(run.members))):
        return ledger
    return apply(ledger, StopRun(run.key.run_id, StopReason.PEER))


def _late_exit(ledger: Ledger, run: Run) -> Ledger:
    """A record of a run that was presumed over: it counts while no later run is released."""
    job = ledger.jobs[run.key.job]
    newer = [r for r in ledger.runs_of_job(job.job) if r.key.run > run.key.run]
    if job.status.is_terminal or any(r.released for r in newer):
        return ledger
    cause, why, record = judge(run, job)
    if cause in (Cause.REQUEUED, Cause.LOST):
        return ledger
    for other in newer:
        ledger = apply(ledger, StopRun(other.key.run_id, StopReason.ABORT))
    return _move(ledger, job.job, cause, f"late: {why}", exit=record, reason="")


def _finish(ledger: Ledger, run: Run) -> Ledger:
    """Every member is over: the job ends, or waits for its next run."""
    job = ledger.jobs[run.key.job]
    if job.status.is_terminal or run.key.run != job.runs:
        return ledger
    cause, why, record = judge(run, job)
    if cause is Cause.FAILED and job.failures < job.terms.retries:
        return _move(
            ledger,
            job.job,
            Cause.REQUEUED,
            f"retry: {why}",
            failures=job.failures + 1,
            reason=f"Retry({why})",
        )
    if cause in (Cause.REQUEUED, Cause.LOST):
        preemptions = job.preemptions + int(run.stop is StopReason.PREEMPT)  # a move is none
        return _move(ledger, job.job, cause, why, reason=why, exit=record, preemptions=preemptions)
    kept = job.reason if cause is Cause.CANCELLED else ""
    return _move(ledger, job.job, cause, why, exit=record, reason=kept)


def _ends_instead(run: Run, job: Job, why: str) -> str:
    """How a job that must not begin anew ends with a run that is to be repeated; else empty.

    What its owner asks for, or never executed anything, repeats nothing.
    """
    records = [member.exit for member in run.members.values()]
    executed = run.released and any(
        record is None or record.reason is not ExitReason.NOT_STARTED for record in records
    )
    if job.request.requeue or not executed or run.stop in (StopReason.REQUEUE, StopReason.ABORT):
        return ""
    if any(_lost_its_gpu(member) for member in run.members.values()):
        return f"GpuFail({why})"
    lost = any(record is None or record.reason in INFRASTRUCTURE for record in records)
    return "Preempted" if run.stop in PREEMPTIONS and not lost else f"NodeFail({why})"


PREEMPTIONS = frozenset({StopReason.PREEMPT, StopReason.MIGRATE, StopReason.RESIZE})


def _succeeded(record: ExitRecord) -> bool:
    return record.reason is ExitReason.EXITED and record.code == 0


def judge(run: Run, job: Job) -> tuple[Cause, str, ExitRecord | None]:
    """What the end of a run means for its job, why, and the record that decides.

    What would begin anew ends instead when the job was submitted so.
    """
    cause, why, record = _verdict(run, job)
    if cause is Cause.REQUEUED and (ends := _ends_instead(run, job, why)):
        told = next((m.exit for m in run.members.values() if m.exit is not None), None)
        return Cause.LOST, ends, told
    return cause, why, record


def _verdict(  # noqa: PLR0911  # one case an end
    run: Run, job: Job
) -> tuple[Cause, str, ExitRecord | None]:
    """What a run's records say.

    0 is always success. 143, or a signal, under an outstanding stop request is that request's
    success. What the infrastructure did is never charged to the user; a lost keeper is, by the
    job's retry rule, because the job's own memory use is its commonest cause.
    """
    members = list(run.members.values())
    first = members[:1] if job.request.mode is LaunchMode.BATCH else members
    records = [m.exit for m in first if m.exit is not None]
    if len(records) == len(first) and all(map(_succeeded, records)):
        return Cause.COMPLETED, "exit 0", records[0]
    if run.stop is StopReason.CANCEL:
        return Cause.CANCELLED, "cancelled", records[0] if records else None
    if run.stop is StopReason.REQUEUE:
        return Cause.REQUEUED, "requeued", None
    for record in records:
        if record.reason is ExitReason.TIME_LIMIT or record.stop is StopReason.TIME_LIMIT:
            return Cause.TIMED_OUT, "time limit", record
    lost = [
        m for m in members if m.exit is None or m.exit.reason in INFRASTRUCTURE or _lost_its_gpu(m)
    ]
    if not lost:
        for member in members:
            if member.exit is not None and _is_own_failure(member.exit):
                return Cause.FAILED, _told(member.exit), member.exit
    for member in lost:
        if _lost_its_gpu(member):
            return Cause.REQUEUED, f"{member.node}: {member.presumed}", None
        detail = member.exit.detail if member.exit else member.presumed
        why = member.exit.reason.value if member.exit else "lost"
        return Cause.REQUEUED, f"{member.node}: {why} {detail}".rstrip(), None
    return Cause.REQUEUED, f"stopped: {run.stop.value if run.stop else 'signal'}", None


INFRASTRUCTURE = frozenset({ExitReason.NOT_STARTED, ExitReason.NODE_LOST})
GPU_UNHEALTHY = "unhealthy "  # how a member's presumption begins when its GPU is to blame


def _lost_its_gpu(member: Member) -> bool:
    """Whether a member failed while its node said that one of its GPUs was no good."""
    return (
        member.exit is not None
        and member.presumed.startswith(GPU_UNHEALTHY)
        and _is_own_failure(member.exit)
    )


def _is_own_failure(record: ExitRecord) -> bool:
    if record.reason in (ExitReason.OUT_OF_MEMORY, ExitReason.KEEPER_LOST):
        return True
    if record.reason is ExitReason.SIGNALLED:
        return record.stop is None
    if record.reason is ExitReason.EXITED:
        return record.code != 0 and not (record.code == 143 and record.stop is not None)
    return False


def _told(record: ExitRecord) -> str:
    if record.reason is ExitReason.SIGNALLED:
        return f"signal {record.signal}"
    if record.reason is ExitReason.KEEPER_LOST:
        return f"keeper-lost {record.detail}".rstrip()
    return f"exit {record.code}" if record.reason is ExitReason.EXITED else record.reason.value
