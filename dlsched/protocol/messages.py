"""Everything that crosses the wire or a node's socket, as frozen values.

One exchange carries the protocol: an agent *syncs* the runs that it holds, and the leader *replies*
with the runs that it should hold. `proto/dlsched/v1` mirrors this module field by field;
`dlsched.rpc.conversion` converts. Durations are seconds. No message carries a point in time:
the clocks of two machines are never compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NewType

JobId = NewType("JobId", int)
RunNumber = NewType("RunNumber", int)  # 1, 2, ...: each start of a job
RunId = NewType("RunId", str)  # random: tells two runs of equal number apart after a restore
Epoch = NewType("Epoch", int)  # a leader's term; fences commands
Revision = NewType("Revision", int)  # of one node's desired set; only grows
NodeName = NewType("NodeName", str)
BootId = NewType("BootId", str)
Incarnation = NewType("Incarnation", int)  # starts of a node's agent, counted on its disk
GpuId = NewType("GpuId", str)  # UUID, never an index
RequestId = NewType("RequestId", str)  # chosen by the client, unique per user
Digest = NewType("Digest", str)  # of a set of runs; empty: nothing known


class LaunchMode(Enum):
    """What is started on which node of a run."""

    BATCH = "batch"  # the script, on the first node only
    NODE = "node"  # once a node
    GPU = "gpu"  # once a GPU


class Fence(Enum):
    """What a run does when its node gets no answer from a leader."""

    HOLD = "hold"  # runs on; the job starts nowhere else until this run is known to be over
    LEASE = "lease"  # freezes when the node lease ends


class SuspendLevel(Enum):
    """How a run is suspended; an agent without that level uses the next one and reports it."""

    FREEZE = "freeze"
    CUDA = "cuda"
    COOPERATIVE = "cooperative"


class Want(Enum):
    """The state that the leader wants one run on one node to have."""

    PREPARED = "prepared"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPED = "stopped"


class Phase(Enum):
    """The state of a run that a node reports."""

    STARTING = "starting"
    PREPARED = "prepared"
    RUNNING = "running"
    SUSPENDED = "suspended"
    FENCED = "fenced"
    STOPPING = "stopping"


class StopReason(Enum):
    """Why a run is asked to stop."""

    CANCEL = "cancel"
    PREEMPT = "preempt"
    MIGRATE = "migrate"
    RESIZE = "resize"
    ABORT = "abort"  # the gang could not start as one
    PEER = "peer"  # another member of the gang has ended
    TIME_LIMIT = "time-limit"
    OVER = "over"  # the database knows that the run is over; its processes must end
    REQUEUE = "requeue"  # its owner or an operator wants it to start again; never charged
    TARGET = "target"  # its training has reached what it was for, and the job is complete


class ExitReason(Enum):
    """How a run ended on one node."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    OUT_OF_MEMORY = "out-of-memory"
    TIME_LIMIT = "time-limit"
    NOT_STARTED = "not-started"  # refused, aborted or timed out before anything was executed
    KEEPER_LOST = "keeper-lost"
    NODE_LOST = "node-lost"  # rebooted, confirmed down, or fenced and waited out
    UNKILLABLE = "unkillable"  # a process is stuck in the kernel; its GPUs are in quarantine


class Told(Enum):
    """What the training of a run has last told its keeper about its end."""

    STOPPED = "stopped"  # its ranks have agreed to stop before it is done
    HANDED_OVER = "handed-over"  # likewise, and those of the next run have their state
    FINISHED = "finished"  # it is done


class StartFault(Enum):
    """Why a run could not start on a node, where that is no failure of its job."""

    NODE = "node"  # the node's: it is counted against it
    JOB_HERE = "job-here"  # the node does not run this job; another node may


@dataclass(frozen=True, slots=True, order=True)
class Term:
    """A point in a node's sequence of desired sets: epoch first, then revision."""

    epoch: Epoch = Epoch(0)
    revision: Revision = Revision(0)


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """The permanent name of one run of one job."""

    job: JobId
    run: RunNumber
    run_id: RunId

    def __str__(self) -> str:
        return f"{self.job}.{self.run}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One node's part of a run, with its GPUs."""

    node: NodeName
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a run on one node; None is no limit."""

    time_s: float | None = None  # of execution; suspensions do not count
    memory_bytes: int | None = None
    cpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRun:
    """What one node should do with one run."""

    key: RunKey
    want: Want
    epoch: Epoch  # of the assignment
    boot_id: BootId  # the boot that the run was assigned to; another boot must not start it
    gpus: tuple[GpuId, ...]
    layout: tuple[Share, ...]  # the whole run in rank order
    mode: LaunchMode = LaunchMode.BATCH
    fence: Fence = Fence.HOLD
    environment: str = ""  # reference into the secrets table, never the environment itself
    limits: Limits = Limits()
    grace_s: float = 30.0  # between a stop request and KILL
    suspend_level: SuspendLevel = SuspendLevel.FREEZE
    suspension: int = 0  # its number, when other runs may use the GPUs meanwhile; 0: they may not
    stop: StopReason | None = None
    stop_step: int | None = None  # all ranks of a cooperative job stop after this step
    request_id: RequestId = RequestId("")
    gpu_share: float | None = None  # part of each GPU; None: the whole, 0: what others leave
    follows: RunId = RunId("")  # the run that it waits for, ready, on GPUs of which some are both's
    hand_over: str = ""  # with a stop: where the ranks of the next run wait for the state


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A run that exists on a node, as the node reports it."""

    key: RunKey
    phase: Phase
    gpus: tuple[GpuId, ...]
    nodes: tuple[NodeName, ...]
    request_id: RequestId = RequestId("")
    suspension: int = 0  # the number of the current suspension
    let_go: bool = False  # suspended, and none of its processes uses its GPUs
    in_doubt: bool = (
        False  # its keeper is lost, and its node cannot tell whether processes are left
    )


NOT_RELEASED_IN_TIME = "not released in time"  # the detail of a member whose gang did not start


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One call of `srun` or `dlsched run` in a run.

    Other nodes than the first know only its number and what its tasks there have used.
    """

    number: int
    name: str = ""  # of its program
    nodes: str = ""  # a host list
    tasks: int = 0
    cpus: int = 0  # of all its tasks; 0: not said
    began_at: float = 0.0  # by the first node's clock, in seconds since the epoch
    ran_s: float = 0.0
    code: int = 0  # of the first of its tasks that failed
    signal: int = 0
    cpu_s: float = 0.0  # processor time of its tasks that have ended
    peak_memory_bytes: int = 0  # of the largest process of these tasks
    running: bool = False  # it goes on; `ran_s` counts to now


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """How a run ended on one node; durable there until the leader has committed it."""

    key: RunKey
    node: NodeName
    reason: ExitReason
    code: int = 0
    signal: int = 0
    stop: StopReason | None = None  # the stop request that was pending
    ran_s: float = 0.0
    detail: str = ""
    nodes: tuple[NodeName, ...] = ()
    request_id: RequestId = RequestId("")
    told: Told | None = None
    checkpoint: int | None = None  # step of the last one handed in while the stop was pending
    term_s: float | None = None  # from TERM to the end; None: the keeper sent none
    at: float | None = None  # when, by the node's clock, in seconds since the epoch; None: unknown
    hook: str = ""  # which of the site's hooks failed at this run, and how
    steps: tuple[StepRecord, ...] = ()  # the newest calls of `srun`, with what they used here
    cpu_s: float = 0.0  # processor time of all its processes here
    peak_memory_bytes: int = 0  # of its largest process here
    script_cpu_s: float = 0.0  # the same two without the tasks of calls of `srun`
    script_peak_bytes: int = 0
    stuck: bool = False  # a process of it outlives SIGKILL; it has ended for its user only
    start_fault: StartFault | None = None  # it could not start there, and that is not its failure

    @property
    def is_failed_start(self) -> bool:
        """Whether the run could not start on the node, or the node has lost its keeper."""
        return (
            self.start_fault is not None
            or self.hook.startswith("prolog")
            or self.reason is ExitReason.KEEPER_LOST
        )

    @property
    def leaves_a_process(self) -> bool:
        """Whether a process of the run was there when this was written."""
        return self.stuck or self.reason is ExitReason.UNKILLABLE  # of an earlier version


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a node knows about its GPUs beside its runs."""

    quarantined: tuple[GpuId, ...] = ()  # held by processes that cannot be killed
    unhealthy: tuple[GpuId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The resources that a node registers."""

    gpus: tuple[GpuId, ...]
    gpu_type: str = ""
    agent_version: str = ""
    can_freeze: bool = True
    can_fence: bool = True  # killing a keeper kills its whole job
    machine: str = ""  # names the hardware; empty: nothing names it


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Everything that an agent reports; with `inventory` it registers the node."""

    node: NodeName
    boot_id: BootId
    incarnation: Incarnation
    sequence: int  # of this incarnation's syncs; the reply repeats it
    last: Term  # newest term on the agent's disk: no older reply will be used
    applied: Term  # newest term that this incarnation has carried out
    held_digest: Digest
    held: tuple[HeldRun, ...] | None  # None: unchanged since the sync with this digest
    ended: tuple[ExitRecord, ...] = ()
    desired_digest: Digest = Digest("")  # of the desired set that the agent has
    renewed_sequence: int = -1  # newest reply with a lease that arrived
    health: Health = Health()
    inventory: Inventory | None = None
    starts: tuple[str, ...] = ()  # random names of the last starts on this disk; newest last
    witnesses: tuple[NodeName, ...] = ()  # the nodes that it would ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A node's right to execute the listed runs, counted from the moment its sync was sent."""

    duration_s: float
    covers: frozenset[RunId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The leader's answer to one sync.

    `acknowledged` and `over` only ever grow for one run, so they need no revision of their own.
    A held run that is in none of `desired` and `over` is left alone.
    """

    node: NodeName
    incarnation: Incarnation
    sequence: int
    term: Term
    desired_digest: Digest
    desired: tuple[DesiredRun, ...] | None  # None: the set that the sync's digest names
    acknowledged: tuple[RunId, ...] = ()  # committed ends: the agent may delete their records
    over: tuple[RunId, ...] = ()  # held runs that the database knows are over
    lease: Lease | None = None
    register: bool = False  # ignore the other fields and register again
    want_held: bool = False  # ignore the other fields and send all held runs
    witnesses: tuple[NodeName, ...] = ()
    refused: str = ""  # why this agent may not speak for its node; it asks again
    count_on_from: Incarnation = Incarnation(0)  # register again with an incarnation above this


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    """A request to sync now, because the leader has something newer."""

    node: NodeName
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessQuery:
    """An agent asks another one when a leader last renewed its lease."""

    asker: NodeName
    witness: NodeName
    nonce: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessAnswer:
    """How long ago, on its own clock, a leader last renewed (or may have renewed) the witness."""

    asker: NodeName
    witness: NodeName
    nonce: int
    renewed_ago_s: float


# -- between agent and keeper -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Release:
    """Execute the prepared run."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Suspend the job's processes."""

    level: SuspendLevel = SuspendLevel.FREEZE
    suspension: int = 0  # its number, when other runs may use the GPUs meanwhile


@dataclass(frozen=True, slots=True)
class Thaw:
    """Resume a suspended job; this never ends a fence."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Send one signal to the job and do nothing else."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjust:
    """Use other limits and another grace from now on; time executed so far counts towards them."""

    limits: Limits
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Ask the job to exit within its grace; the reason `OVER` kills at once."""

    reason: StopReason
    step: int | None = None  # exit after this step; all ranks of a resize or migration agree on it
    hand_over: str = ""  # where the ranks of the next run wait for the state


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The run that this one has waited for is over: go on in its place."""


@dataclass(frozen=True, slots=True)
class Kill:
    """End the job's processes now."""

    reason: StopReason = StopReason.OVER


@dataclass(frozen=True, slots=True)
class Forget:
    """The end is committed: the keeper may exit."""


Order = Release | Freeze | Thaw | Signal | Adjust | Stop | TakeOver | Kill | Forget


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperStatus:
    """A keeper's report on its run: sent on every change and when an agent attaches."""

    desired: DesiredRun
    phase: Phase
    exit: ExitRecord | None = None
    quarantined: bool = False  # the run has ended, but one of its processes cannot be killed
    suspension: int = 0  # of the complete suspension, when other runs may use its GPUs
    let_go: bool = False  # suspended, and none of its processes uses its GPUs


def digest_of(values: Iterable[DesiredRun | HeldRun]) -> Digest:
    """A digest of a set of runs; equal sets have equal digests, in any order."""
    text = "\n".join(sorted(map(repr, values)))
    return Digest(hashlib.blake2b(text.encode(), digest_size=12).hexdigest())
