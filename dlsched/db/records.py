"""What the store keeps beside the protocol's ledger, as plain frozen values.

The ledger says who runs where; these rows say what a job is, who changed it and what was decided.
They travel in `ledger.Attach` and so are durable in the same transaction as the changes that they
explain. Times are seconds since the epoch, UTC, for display; nothing is ordered or timed by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.db.speeds import SpeedsForgotten, SpeedsSet
from dlsched.db.tenants import OPERATOR, Tenant
from dlsched.db.trainings import TrainingTold
from dlsched.protocol.messages import JobId, NodeName, RunId

__all__ = [
    "ArrayShape",
    "CheckpointCommitted",
    "Dependency",
    "Drained",
    "Event",
    "FieldsChanged",
    "HoldChanged",
    "JobBody",
    "JobSpec",
    "NodeDescribed",
    "NodesHeard",
    "PolicySet",
    "PolicyState",
    "Prediction",
    "Progress",
    "Record",
    "RoundDone",
    "TenantRemoved",
    "TenantSet",
    "TenantsConfigured",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """What another job must have done first; conditions are joined by "and" unless `or_next`."""

    kind: str  # after, afterok, afterany, afternotok, aftercorr, singleton
    job: JobId = JobId(0)  # of an array: its first element; 0 for singleton
    delay_s: float = 0.0
    or_next: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayShape:
    """The array that a job is an element of."""

    tasks: tuple[int, ...]
    limit: int = 0  # how many may run at once; 0: all
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBody:
    """What a user asks for, the same for every element of an array.

    None is "not said". GPUs are counted; `memory_bytes` is a node's, `cpus` the whole gang's.
    """

    name: str
    argv: tuple[str, ...] = ()  # the command; with a script, its arguments
    script: bytes = b""
    working_directory: str = ""
    output: str = ""
    error: str = ""
    truncate: bool = False
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # secret
    partition: str = ""
    account: str = ""
    vc: str = ""
    priority_class: str = ""
    priority: float | None = None
    gang: tuple[int, ...] | None = None  # GPUs a node; None: `gpus` wherever they are
    gpus: int = 1
    gpu_types: tuple[str, ...] = ()
    min_gpus: int | None = None
    max_gpus: int | None = None
    share: float | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    only_nodes: tuple[str, ...] = ()
    not_nodes: tuple[str, ...] = ()
    exclusive: bool = False
    time_limit_s: float | None = None
    begin_at: float | None = None
    deadline_at: float | None = None
    warn_signal: int = 0
    warn_before_s: float = 0.0
    requeue: bool = True
    dependencies: tuple[Dependency, ...] = ()
    keep_on_broken_dependency: bool = False
    model: str = ""
    batch_size: float | None = None
    total_iterations: float | None = None
    weight: float | None = None
    expected_s: float | None = None
    comment: str = ""
    notify: str = ""
    slurm_environment: bool = True
    extra: Mapping[str, str] = field(default_factory=dict)
    adaptive: bool = False
    fixed_batch: bool = False
    submit_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job: a body, whose it is, and its place in an array."""

    body: JobBody
    user: str
    uid: int
    submitted_at: float
    array: ArrayShape | None = None
    index: int = 0  # place in the array: the array's id is this job's id minus `index`

    @property
    def task(self) -> int | None:
        """The element's number in its array."""
        return self.array.tasks[self.index] if self.array is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChanged:
    """A job is held by its user or an operator, or no longer."""

    job: JobId
    held: str  # "", "user", "admin"
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsChanged:
    """Fields of a job's body that were updated after it was submitted."""

    job: JobId
    fields: Mapping[str, object]
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the append-only story; at least one for every change of state."""

    at: float
    kind: str
    actor: str = ""  # a user, "policy NAME", "node NAME", "daemon"
    job: JobId | None = None
    run_id: RunId | None = None
    node: NodeName | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDone:
    """A round was decided; its plan is in the same transaction."""

    number: int
    at: float
    mode: str  # full, fill
    policy: str
    wall_s: float
    cpu_s: float
    pending: int
    running: int
    starts: int
    stops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """Another policy was switched on."""

    at: float
    parts: Mapping[str, str]  # stage -> name
    options: tuple[str, ...]  # KEY=VALUE
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """What the parts must know to decide on as if nothing had happened."""

    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """When a pending job was thought to start, and by what."""

    job: JobId
    made_at: float
    start_at: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come, gathered and written now and then."""

    run_id: RunId
    step: int
    executed_s: float
    restart_s: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted:
    """A checkpoint counts from here on: the job resumes from the last one."""

    job: JobId
    run_id: RunId
    at: float
    path: str
    step: int
    size_bytes: int
    sha256: str
    executed_s: float = 0.0  # by its run until then: what came after is done again


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescribed:
    """What a node said that it is, as JSON of `NodeFacts`."""

    node: NodeName
    facts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesHeard:
    """When nodes were last heard, gathered and written now and then; for display only."""

    heard_at: Mapping[NodeName, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A node is to take no more runs, or may again."""

    node: NodeName
    drained: bool
    reason: str
    actor: str
    at: float
    by_at: float | None = None  # what runs there has to leave by then; None: it may end


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSet:
    """A user, account, virtual cluster, partition or quota is like this from now on."""

    tenant: Tenant
    actor: str
    at: float
    source: str = OPERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRemoved:
    """One of them is no more."""

    kind: str
    name: str
    actor: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsConfigured:
    """All that the configuration says of them, in place of what it said before."""

    tenants: tuple[Tenant, ...]
    at: float


Record = (
    HoldChanged
    | FieldsChanged
    | Event
    | RoundDone
    | PolicySet
    | PolicyState
    | Prediction
    | Progress
    | CheckpointCommitted
    | NodeDescribed
    | NodesHeard
    | Drained
    | TenantSet
    | TenantRemoved
    | TenantsConfigured
    | SpeedsSet
    | SpeedsForgotten
    | TrainingTold
)
