"""The rows of a ledger as frozen values: jobs, runs, nodes and orphans.

Invariant: a job has at most one run that is not over, and beside it at most one that *follows* it:
a run whose processes are ready, and that trains nothing until the run before it is over. A lost run
counts as over only by a `MemberOver` with a named reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from dlsched.protocol import messages as m
from dlsched.protocol.gpu_shares import UNUSABLE, part_of, without_room
from dlsched.protocol.table import Table, table_of


class JobStatus(Enum):
    """The states of a job; the last four are terminal."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    def __init__(self, text: str) -> None:
        """Note whether a job with this status has ended."""
        self.is_terminal = text in ("completed", "failed", "timeout", "cancelled")


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
    LOST = "ended"  # its run was lost or preempted, and it must not start again
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    ADOPTED = "adopted"
    RESTARTED = "queued again"  # its user asked for it after its end
    REPEATED = "restarted in place"  # its run failed; the next one has the same GPUs
    HANDED_OVER = "handed over"  # its run has given its state to the one that followed it


_LIVE = (JobStatus.STARTING, JobStatus.RUNNING, JobStatus.SUSPENDED, JobStatus.STOPPING)


TRANSITIONS: Mapping[tuple[JobStatus, Cause], JobStatus] = MappingProxyType(
    {
        (JobStatus.PENDING, Cause.ASSIGNED): JobStatus.STARTING,
        (JobStatus.PENDING, Cause.CANCELLED): JobStatus.CANCELLED,
        (JobStatus.PENDING, Cause.ADOPTED): JobStatus.RUNNING,
        # a late record of a run that was presumed over, before its successor is released
        (JobStatus.PENDING, Cause.COMPLETED): JobStatus.COMPLETED,
        (JobStatus.PENDING, Cause.FAILED): JobStatus.FAILED,
        (JobStatus.PENDING, Cause.TIMED_OUT): JobStatus.TIMEOUT,
        (JobStatus.STARTING, Cause.RELEASED): JobStatus.RUNNING,
        (JobStatus.RUNNING, Cause.SUSPENDED): JobStatus.SUSPENDED,
        (JobStatus.SUSPENDED, Cause.RESUMED): JobStatus.RUNNING,
    }
    | {(status, Cause.RESTARTED): JobStatus.PENDING for status in JobStatus if status.is_terminal}
    | {(status, Cause.STOP_ASKED): JobStatus.STOPPING for status in _LIVE}
    | {(status, Cause.REQUEUED): JobStatus.PENDING for status in _LIVE}
    | {(status, Cause.REPEATED): JobStatus.STARTING for status in _LIVE}
    | {(status, Cause.HANDED_OVER): JobStatus.RUNNING for status in _LIVE}
    | {(status, Cause.COMPLETED): JobStatus.COMPLETED for status in _LIVE}
    | {(status, Cause.FAILED): JobStatus.FAILED for status in _LIVE}
    | {(status, Cause.LOST): JobStatus.FAILED for status in _LIVE}
    | {(status, Cause.TIMED_OUT): JobStatus.TIMEOUT for status in _LIVE}
    | {(status, Cause.CANCELLED): JobStatus.CANCELLED for status in _LIVE}
)


class NodeStatus(Enum):
    """The states of a node, as the leader sees it."""

    UP = "up"
    LOST = "lost"  # silent for a proven window: its fenced runs are over
    DOWN = "down"  # an operator confirms that nothing runs there


class RunStatus(Enum):
    """The states of one run."""

    PREPARING = "preparing"
    RELEASED = "released"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A client's request; an equal request with the same id means the same job."""

    request_id: m.RequestId
    user: str = ""
    gang: tuple[int, ...] = (1,)  # GPUs on each node
    mode: m.LaunchMode = m.LaunchMode.BATCH
    fence: m.Fence = m.Fence.HOLD
    retries: int = 0  # counts the job's own failures only
    timeouts: int = 0  # so often it starts again after its time limit
    gpu_retries: int | None = None  # so often in a row after faults of GPUs; None: always
    limits: m.Limits = m.Limits()
    grace_s: float = 30.0
    suspend_level: m.SuspendLevel = m.SuspendLevel.FREEZE
    requeue: bool = True  # else the job ends when its run is lost or preempted
    gpu_share: float | None = None  # part of each GPU that it needs; None: the whole GPU
    spec: object = None  # the rest of the job; the protocol only compares and stores it


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The parts of a request that may change later; the request itself never changes."""

    limits: m.Limits
    grace_s: float
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job's row."""

    job: m.JobId
    request: Request
    status: JobStatus = JobStatus.PENDING
    reason: str = "Resources"  # never empty while pending
    runs: m.RunNumber = m.RunNumber(0)  # the highest run number given
    failures: int = 0
    timeouts: int = 0  # after which it was queued again
    gpu_failures: int = 0  # runs in a row that faults of GPUs have ended soon
    preemptions: int = 0
    exit: m.ExitRecord | None = None
    story: tuple[str, ...] = ()
    changed: Terms | None = None  # since its submission

    @property
    def terms(self) -> Terms:
        """The present limits, grace and retries."""
        if self.changed is not None:
            return self.changed
        asked = self.request
        return Terms(limits=asked.limits, grace_s=asked.grace_s, retries=asked.retries)


FENCED = "fenced"  # why a member is over whose node is silent under a lease
REBOOTED = "rebooted"
IS_DOWN = "confirmed down"
IS_GONE = "its last process is gone"
SAID_TO_BE_OVER = "confirmed over"
NONE_LEFT = (REBOOTED, IS_DOWN, IS_GONE, SAID_TO_BE_OVER)  # why no process of a member is alive


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node's part in a run."""

    node: m.NodeName
    gpus: tuple[m.GpuId, ...]
    boot_id: m.BootId
    since: m.Term  # of the node's desired set that first contained it
    exit: m.ExitRecord | None = None  # recorded by the node; never replaced
    presumed: str = ""  # why it counts as over without a record, or is not the job's own failure
    let_go: bool = False  # its node reports that the suspended run uses no GPU there

    @property
    def is_over(self) -> bool:
        """Whether this node's part is over."""
        return self.exit is not None or bool(self.presumed)

    @property
    def is_stuck(self) -> bool:
        """Whether it is over for its user, and a process of it that cannot be killed is alive.

        It is until that is seen gone, the node has booted, or an operator says so.
        """
        left = self.exit is not None and self.exit.leaves_a_process
        return left and not self.presumed.endswith(NONE_LEFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run's row."""

    key: m.RunKey
    status: RunStatus
    members: Mapping[m.NodeName, Member]
    epoch: m.Epoch
    stop: m.StopReason | None = None
    stop_step: int | None = None
    suspended: bool = False
    suspension: int = 0  # number of the newest `gives_way` suspension; unique even after a restore
    gives_way: bool = False  # while suspended, other runs may use its GPUs
    released: bool = False  # whether it may have executed
    follows: m.RunId | None = None  # the run that it waits for; None: it waits for none
    hand_over: str = ""  # with its stop: where the ranks of the next run wait for the state

    @property
    def is_over(self) -> bool:
        """Whether every member is over."""
        return self.status is RunStatus.OVER

    @property
    def stuck_on(self) -> list[m.NodeName]:
        """The nodes on which a process of it cannot be killed."""
        return [member.node for member in self.members.values() if member.is_stuck]

    @property
    def shares(self) -> tuple[m.Share, ...]:
        """Its GPUs by node, in rank order."""
        return tuple(m.Share(node=each.node, gpus=each.gpus) for each in self.members.values())

    @property
    def is_giving_way(self) -> bool:
        """Whether the run is suspended for other runs, and is not asked to stop."""
        return self.suspended and self.gives_way and self.stop is None

    @property
    def is_away(self) -> bool:
        """Whether the run is suspended and has left its GPUs on every node."""
        return (
            self.suspended
            and self.gives_way
            and all(member.let_go for member in self.members.values() if not member.is_over)
        )


def holds(run: Run, member: Member) -> bool:
    """Whether a member's node holds its run, as far as is known."""
    return member.is_stuck or not (run.is_over or member.is_over)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A run that a node holds and the database does not know."""

    held: m.HeldRun
    node: m.NodeName
    since: m.Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's row."""

    name: m.NodeName
    boot_id: m.BootId = m.BootId("")
    incarnation: m.Incarnation = m.Incarnation(0)
    revision: m.Revision = m.Revision(0)
    status: NodeStatus = NodeStatus.UP
    why: str = ""
    gpus: tuple[m.GpuId, ...] = ()
    quarantined: tuple[m.GpuId, ...] = ()
    start: str = ""  # random name of the registered agent's start
    machine: str = ""  # names its hardware; empty: nothing names it
    can_fence: bool = False  # killing a keeper kills its whole job: true of all runs on it
    witnesses: tuple[tuple[m.NodeName, ...], ...] = ()  # sets of which it may have one; newest last


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The part of the database that the protocol needs.

    `runs_of` and `held_by` are indices of `runs` by job and by node, so that no function searches
    all jobs or runs; every change of a run updates both.
    """

    epoch: m.Epoch = m.Epoch(0)
    leader: str = ""
    next_job: m.JobId = m.JobId(1)
    jobs: Mapping[m.JobId, Job] = field(default_factory=Table)
    runs: Mapping[m.RunId, Run] = field(default_factory=Table)
    nodes: Mapping[m.NodeName, Node] = field(default_factory=Table)
    orphans: Mapping[tuple[m.NodeName, m.RunId], Orphan] = field(default_factory=Table)
    history: Mapping[tuple[m.NodeName, m.RunId], m.ExitRecord] = field(default_factory=Table)
    requests: Mapping[tuple[str, m.RequestId], m.JobId] = field(default_factory=Table)
    runs_of: Mapping[m.JobId, tuple[m.RunId, ...]] = field(
        default_factory=Table, repr=False, compare=False
    )
    # its member is not over, or is stuck
    held_by: Mapping[m.NodeName, frozenset[m.RunId]] = field(
        default_factory=Table, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Make tables and indices of plain mappings."""
        if not isinstance(self.runs, Table) or (self.runs and not self.runs_of):
            self._index()

    def _index(self) -> None:
        of: dict[m.JobId, tuple[m.RunId, ...]] = {}
        by: dict[m.NodeName, frozenset[m.RunId]] = {}
        for run_id, run in self.runs.items():
            of[run.key.job] = (*of.get(run.key.job, ()), run_id)
            for member in run.members.values():
                if holds(run, member):
                    by[member.node] = by.get(member.node, frozenset()) | {run_id}
        for name in ("jobs", "runs", "nodes", "orphans", "history", "requests"):
            object.__setattr__(self, name, table_of(getattr(self, name)))
        object.__setattr__(self, "runs_of", Table(of))
        object.__setattr__(self, "held_by", Table(by))

    def runs_on(self, node: m.NodeName) -> list[Run]:
        """The runs with a member on a node that is not over, in key order."""
        return [run for run in self._held_by(node) if not run.members[node].is_stuck]

    def stuck_runs_on(self, node: m.NodeName) -> list[Run]:
        """The runs with a process on a node that cannot be killed, in key order."""
        return [run for run in self._held_by(node) if run.members[node].is_stuck]

    def _held_by(self, node: m.NodeName) -> list[Run]:
        found = [self.runs[run_id] for run_id in self.held_by.get(node, ())]
        return sorted(found, key=lambda run: run.key)

    def stuck_run(self, job: m.JobId) -> Run | None:
        """A run of a job of which a process cannot be killed; None: there is none."""
        return next((run for run in self.runs_of_job(job) if run.stuck_on), None)

    def runs_of_job(self, job: m.JobId) -> list[Run]:
        """The known runs of a job, oldest first."""
        return [self.runs[run_id] for run_id in self.runs_of.get(job, ())]

    def live_run(self, job: m.JobId) -> Run | None:
        """The job's run that is not over and follows none; None: there is none."""
        for run in reversed(self.runs_of_job(job)):
            if not run.is_over and run.follows is None:
                return run
        return None

    def next_run(self, job: m.JobId) -> Run | None:
        """The job's run that follows another one and is not over; None: there is none."""
        for run in reversed(self.runs_of_job(job)):
            if not run.is_over and run.follows is not None:
                return run
        return None

    def is_newest(self, run: Run) -> bool:
        """Whether a run has begun last of its job's; those that only follow another have not."""
        later = (each for each in self.runs_of_job(run.key.job) if each.key.run > run.key.run)
        return run.follows is None and all(each.follows is not None for each in later)

    def busy(
        self, node: m.NodeName, without: m.RunId | None = None, *, share: float | None = None
    ) -> set[m.GpuId]:
        """The GPUs of a node that have no room for another run.

        A suspended run that has left its GPUs holds none, until it is asked to stop: then it may
        need them to save. `without` is a run that is not counted; `share` is the part of each GPU
        that the other run needs, None for the whole GPU.
        """
        return without_room(self._holders(node, without), part_of(share))

    def _holders(
        self, node: m.NodeName, without: m.RunId | None
    ) -> Iterator[tuple[tuple[m.GpuId, ...], float]]:
        """For each holder on a node: its GPUs and the part of each that it needs."""
        yield self.nodes[node].quarantined, UNUSABLE
        for run_id in self.held_by.get(node, ()):
            run = self.runs[run_id]
            if run.members[node].is_stuck:
                yield run.members[node].gpus, UNUSABLE
            elif run_id != without and not (run.is_away and run.stop is None):
                yield run.members[node].gpus, part_of(self.share_of(run))
        for (place, _), orphan in self.orphans.items():
            if place == node:
                yield orphan.held.gpus, UNUSABLE

    def share_of(self, run: Run) -> float | None:
        """The part of each of its GPUs that a run needs; None: the whole GPU."""
        return self.jobs[run.key.job].request.gpu_share

    def gpus_of(self, run: Run | None) -> float:
        """The GPUs that a run has, parts as parts; none where there is no run."""
        if run is None:
            return 0.0
        return sum(len(each.gpus) for each in run.members.values()) * part_of(self.share_of(run))

    def desired(self, node: m.NodeName) -> tuple[m.DesiredRun, ...]:
        """The desired set of a node; it contains no runs that are over."""
        return tuple(self.desired_run(run, node) for run in self.runs_on(node))

    def desired_run(self, run: Run, node: m.NodeName) -> m.DesiredRun:
        """What a node of a run that is not over should do with it."""
        job = self.jobs[run.key.job]
        request, terms = job.request, job.terms
        if run.stop is not None:
            want = m.Want.STOPPED
        elif run.status is RunStatus.PREPARING:
            want = m.Want.PREPARED
        else:
            want = m.Want.SUSPENDED if run.suspended else m.Want.RUNNING
        return m.DesiredRun(
            key=run.key,
            want=want,
            epoch=run.epoch,
            boot_id=run.members[node].boot_id,
            gpus=run.members[node].gpus,
            layout=run.shares,
            mode=request.mode,
            # a job that its keeper cannot end need not be frozen: the leader holds it anyway
            fence=request.fence if self.nodes[node].can_fence else m.Fence.HOLD,
            limits=terms.limits,
            grace_s=terms.grace_s,
            suspend_level=request.suspend_level,
            suspension=run.suspension if run.suspended and run.gives_way else 0,
            stop=run.stop,
            stop_step=run.stop_step,
            request_id=request.request_id,
            gpu_share=request.gpu_share,
            follows=run.follows or m.RunId(""),
            hand_over=run.hand_over,
        )
