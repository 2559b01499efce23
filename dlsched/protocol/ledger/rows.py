"""What the database knows, as a frozen value: jobs, runs, nodes and orphans.

Invariant: a job has at most one run that is not over, unless `MemberOver` says why a lost one
counts as over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from dlsched.protocol.gpu_shares import WHOLE, part_of, without_room
from dlsched.protocol.messages import (
    BootId,
    DesiredRun,
    Epoch,
    ExitRecord,
    Fence,
    GpuId,
    HeldRun,
    Incarnation,
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
    gpu_share: float | None = None  # needed of each GPU, beside others; None: all of it
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

    def busy(
        self, node: NodeName, without: RunId | None = None, *, share: float | None = None
    ) -> set[GpuId]:
        """The GPUs of a node that have no room for a run; one run may be left out of the count.

        A run that is away holds none, until it is asked to leave: it may want to save before.

        Args:
            node: whose.
            without: the run that is not counted.
            share: what is needed of each GPU; None: all of it.
        """
        return without_room(self._holders(node, without), part_of(share))

    def _holders(
        self, node: NodeName, without: RunId | None
    ) -> Iterator[tuple[tuple[GpuId, ...], float]]:
        """Whose GPUs of a node these are, and what they need of each."""
        yield self.nodes[node].quarantined, WHOLE
        for run_id in self.held_by.get(node, ()):
            run = self.runs[run_id]
            if run_id != without and not (run.is_away and run.stop is None):
                yield run.members[node].gpus, part_of(self.share_of(run))
        for (place, _), orphan in self.orphans.items():
            if place == node:
                yield orphan.held.gpus, WHOLE

    def share_of(self, run: Run) -> float | None:
        """What a run needs of each of its GPUs; None: all of it."""
        return self.jobs[run.key.job].request.gpu_share

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
            gpu_share=request.gpu_share,
        )
