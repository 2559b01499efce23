"""Everything that crosses the wire or a node's socket, as frozen values.

One message carries the protocol: an agent *syncs* what it holds, the leader *replies* what it wants
held. `proto/dlsched/v1` mirrors this module field by field; `dlsched.rpc` converts. Durations are
seconds; no message carries a point in time, because clocks of two machines are never compared.
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
    """What a run does when its node hears no leader."""

    HOLD = "hold"  # runs on; nothing restarts elsewhere until it is known to be over
    LEASE = "lease"  # freezes when the node lease ends


class SuspendLevel(Enum):
    """How a run is suspended; an agent that cannot degrades to the next and says so."""

    FREEZE = "freeze"
    CUDA = "cuda"
    COOPERATIVE = "cooperative"


class Want(Enum):
    """What the leader wants of one run on one node."""

    PREPARED = "prepared"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPED = "stopped"


class Phase(Enum):
    """What a node says about a run that it holds."""

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
    OVER = "over"  # the database knows that the run is over; its processes must go
    REQUEUE = "requeue"  # its owner or an operator wants it to begin anew; never charged


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


@dataclass(frozen=True, slots=True, order=True)
class Term:
    """A point in a node's sequence of desired sets: epoch first, then revision."""

    epoch: Epoch = Epoch(0)
    revision: Revision = Revision(0)


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """Names one run of one job for ever."""

    job: JobId
    run: RunNumber
    run_id: RunId

    def __str__(self) -> str:
        return f"{self.job}.{self.run}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One node's part of a run's world."""

    node: NodeName
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a run on one node; None is no limit."""

    time_s: float | None = None  # executed time, suspensions not counted
    memory_bytes: int | None = None
    cpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRun:
    """What one node is to do with one run."""

    key: RunKey
    want: Want
    epoch: Epoch  # of the assignment
    boot_id: BootId  # the boot that the run was assigned to; another boot must not start it
    gpus: tuple[GpuId, ...]
    layout: tuple[Share, ...]  # the whole world in rank order
    mode: LaunchMode = LaunchMode.BATCH
    fence: Fence = Fence.HOLD
    environment: str = ""  # reference into the secrets table, never the environment itself
    limits: Limits = Limits()
    grace_s: float = 30.0  # between a stop request and KILL
    suspend_level: SuspendLevel = SuspendLevel.FREEZE
    suspension: int = 0  # which one, if others are to have its GPUs meanwhile; 0: it keeps them
    stop: StopReason | None = None
    stop_step: int | None = None  # a cooperative job stops after this step, all ranks alike
    request_id: RequestId = RequestId("")
    gpu_share: float | None = None  # of each of its GPUs, beside others; None: all of it

    @property
    def is_gang(self) -> bool:
        """Whether the run spans nodes and so is prepared everywhere before it is released."""
        return len(self.layout) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A run that exists on a node, as the node tells it."""

    key: RunKey
    phase: Phase
    gpus: tuple[GpuId, ...]
    nodes: tuple[NodeName, ...]
    request_id: RequestId = RequestId("")
    suspension: int = 0  # the one that stands
    let_go: bool = False  # suspended, and nothing of it is on its GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """How a run ended on one node; durable there until the leader has committed it."""

    key: RunKey
    node: NodeName
    reason: ExitReason
    code: int = 0
    signal: int = 0
    stop: StopReason | None = None  # the stop request that was outstanding
    ran_s: float = 0.0
    detail: str = ""
    nodes: tuple[NodeName, ...] = ()
    request_id: RequestId = RequestId("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a node knows about its GPUs beyond the runs."""

    quarantined: tuple[GpuId, ...] = ()  # held by processes that cannot be killed
    unhealthy: tuple[GpuId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a registering node offers."""

    gpus: tuple[GpuId, ...]
    gpu_type: str = ""
    agent_version: str = ""
    can_freeze: bool = True
    can_fence: bool = True  # killing a keeper kills its whole job


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """An agent's whole truth; with `inventory` it is a registration."""

    node: NodeName
    boot_id: BootId
    incarnation: Incarnation
    sequence: int  # of this incarnation's syncs, echoed by the reply
    last: Term  # newest term on the agent's disk: no older reply will be used
    applied: Term  # newest term whose desired set this incarnation has carried out
    held_digest: Digest
    held: tuple[HeldRun, ...] | None  # None: unchanged since the sync with this digest
    ended: tuple[ExitRecord, ...] = ()
    desired_digest: Digest = Digest("")  # of the desired set that the agent has
    renewed_sequence: int = -1  # newest reply with a lease that arrived
    health: Health = Health()
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A node's right to run what it lists, counted from the moment its sync left."""

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
    desired: tuple[DesiredRun, ...] | None  # None: as the digest in the sync
    acknowledged: tuple[RunId, ...] = ()  # ends that are committed: their records may go
    over: tuple[RunId, ...] = ()  # held runs that the database knows are over
    lease: Lease | None = None
    register: bool = False  # nothing else counts: register anew
    want_held: bool = False  # nothing else counts: send the held runs in full
    witnesses: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    """Sync now: there is something newer than what you have."""

    node: NodeName
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessQuery:
    """One agent asks another when it was last renewed by a leader."""

    asker: NodeName
    witness: NodeName
    nonce: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessAnswer:
    """How long ago, on the witness's clock, a leader renewed it (or it cannot rule that out)."""

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
    suspension: int = 0  # which one, if others are to have its GPUs meanwhile


@dataclass(frozen=True, slots=True)
class Thaw:
    """Let a suspended job go on; never ends a fence."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Send one signal to the job and do nothing else."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjust:
    """Other limits and grace count from here on; what has run so far counts towards them."""

    limits: Limits
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Ask the job to leave within its grace; `OVER` kills at once."""

    reason: StopReason
    step: int | None = None  # leave after this step; a resize or migration agrees on one


@dataclass(frozen=True, slots=True)
class Kill:
    """End the job's processes now."""

    reason: StopReason = StopReason.OVER


@dataclass(frozen=True, slots=True)
class Forget:
    """The end is committed: the keeper may leave."""


Order = Release | Freeze | Thaw | Signal | Adjust | Stop | Kill | Forget


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperStatus:
    """A keeper's account of its run: sent on every change and when an agent attaches."""

    desired: DesiredRun
    phase: Phase
    exit: ExitRecord | None = None
    quarantined: bool = False  # ended as far as anybody waits, yet a process is stuck
    suspension: int = 0  # the one that stands, if others are to have its GPUs meanwhile
    let_go: bool = False  # suspended, and nothing of it is on its GPUs


def digest_of(values: Iterable[DesiredRun | HeldRun]) -> Digest:
    """A stable digest of a set of runs, whatever its order; equal sets have equal digests."""
    text = "\n".join(sorted(map(repr, values)))
    return Digest(hashlib.blake2b(text.encode(), digest_size=12).hexdigest())
