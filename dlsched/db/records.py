"""Rows of the store beside the protocol's ledger, as frozen values.

The ledger says which job runs on which GPUs. These rows contain what a job is, which user changed
it, and what was decided. They are part of a transaction as `ledger.Attach` and so become durable
with the changes that they explain. Times are seconds since the epoch, UTC, for display only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlsched.jobs.sweep import Sweep, filled
from dlsched.jobs.typed_forms import JobFields
from dlsched.protocol.messages import JobId, NodeName, RunId
from dlsched.tenants.fields import OPERATOR, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A condition on another job; conditions are joined by "and", or by "or" with `or_next`."""

    kind: str  # after, afterok, afterany, afternotok, aftercorr, singleton
    job: JobId = JobId(0)  # of an array: its first element; 0 for singleton
    delay_s: float = 0.0
    or_next: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayShape:
    """The array that a job is an element of."""

    tasks: tuple[int, ...]
    limit: int = 0  # of elements that run at once; 0: no limit
    step: int = 1
    sweep: Sweep | None = None  # whose rows are the parameters of the tasks
    short_tasks: tuple[str, ...] = ()  # lines for the shell, which the elements share
    short_task_bytes: int = 0  # of these lines


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBody(JobFields):
    """What a user asks for, the same for every element of an array; None is "not said".

    What the job executes is not part of it, but named by `program` and `seal`: see `contents`.
    """

    program: str = ""  # its script or command with all arguments, as a word and a digest
    seal: str = field(default="", repr=False)  # salted digest of its environment
    gang: tuple[int, ...] | None = None  # GPUs a node; None: `gpus` wherever they are
    dependencies: tuple[Dependency, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def layout(self) -> tuple[int, ...] | None:
        """GPUs a node, as `layout_of` says."""
        return layout_of(self.gang, self.gpus, self.gpus_by_type)


def layout_of(gang: tuple[int, ...] | None, gpus: int, gpus_by_type: str) -> tuple[int, ...] | None:
    """GPUs a node; None: wherever they are.

    Those of a type that only nodes with several types have are on one node if nothing is said.
    """
    return (gpus,) if gang is None and gpus_by_type else gang


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job: its body, its user, and its place in an array."""

    body: JobBody
    user: str
    uid: int
    submitted_at: float
    array: ArrayShape | None = None
    index: int = 0  # place in the array: the array's id is this job's id minus `index`
    content_bytes: int = field(default=0, compare=False)  # its part of what an array shares

    @property
    def task(self) -> int | None:
        """The element's number in its array."""
        return self.array.tasks[self.index] if self.array is not None else None

    @property
    def sweep(self) -> Sweep | None:
        """The sweep that the job is part of."""
        return None if self.array is None else self.array.sweep

    @property
    def parameters(self) -> dict[str, str]:
        """The job's parameters in its sweep; empty outside of one."""
        return {} if self.sweep is None else self.sweep.of(self.index)

    @property
    def name(self) -> str:
        """The job's name, with its parameters put in."""
        return self.filled(self.body.name)

    def filled(self, text: str) -> str:
        """A text of the body with the job's parameters put in."""
        return text if self.sweep is None else filled(text, self.parameters)

    def field(self, name: str) -> Any:
        """A field of the body as this job has it."""
        return self.name if name == "name" else getattr(self.body, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChanged:
    """A job is held by its user, an operator or because of its prolog, or is released."""

    job: JobId
    held: str  # "", "user", "admin", "launch"
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentGiven:
    """A job that starts again after its end gets an environment; its own one is deleted."""

    job: JobId
    variables: Mapping[str, str] = field(repr=False)  # secret


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsChanged:
    """Fields of a job's body that were changed after its submission."""

    job: JobId
    fields: Mapping[str, object]
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; every change of a job's state has at least one. Events are never changed."""

    at: float
    kind: str
    actor: str = ""  # a user, "policy NAME", "node NAME", "daemon"
    job: JobId | None = None
    run_id: RunId | None = None
    node: NodeName | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDone:
    """A round has decided; its plan is in the same transaction."""

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
    """Another policy was set."""

    at: float
    parts: Mapping[str, str]  # stage -> name
    options: tuple[str, ...]  # KEY=VALUE
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """The state of the policy's parts, with which they continue after a restart."""

    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted start and end of a pending job, and the basis of the prediction.

    Attributes:
        job: its id.
        made_at: when it was predicted.
        start_at, start_p10, start_p90: its start, and the interval; None: not known.
        basis: what the durations of all jobs are based on.
        end_at, end_p10, end_p90: its end, and the interval.
        policy: under which it was predicted; empty: by an older release.
        source: of the job's own duration: expected time, time limit, measured speed, …
        gpus: that it asks for.
    """

    job: JobId
    made_at: float
    start_at: float
    basis: str
    policy: str = ""
    source: str = ""
    gpus: int | None = None
    start_p10: float | None = None
    start_p90: float | None = None
    end_at: float | None = None
    end_p10: float | None = None
    end_p90: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run, collected and written from time to time."""

    run_id: RunId
    step: int
    executed_s: float
    restart_s: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted:
    """A committed checkpoint; a job resumes from its newest one."""

    job: JobId
    run_id: RunId
    at: float
    path: str
    step: int
    size_bytes: int
    sha256: str
    executed_s: float = 0.0  # by its run until then; later work is repeated after a resume
    loss: float | None = None
    source: JobId | None = None  # the job that wrote it, where `job` only begins at it


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockMoved:
    """The daemon's clock was set: the times of what is live move with it, to be one clock's.

    Attributes:
        by_s: how far.
        since: times from here on are of the clock as it is now, and do not move; inf: none are.
        until: up to here; a clock that was set back has had later times before.
    """

    by_s: float
    since: float = math.inf
    until: float = math.inf

    def moved(self, time: float) -> float:
        """A time, as the clock has it now."""
        return time if self.since <= time <= self.until else time + self.by_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescribed:
    """The description that a node sent, as JSON of `NodeFacts`."""

    node: NodeName
    facts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesHeard:
    """The last syncs of nodes, collected and written from time to time; for display only."""

    heard_at: Mapping[NodeName, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A node is drained and gets no new runs, or it is resumed."""

    node: NodeName
    drained: bool
    reason: str
    actor: str
    at: float
    by_at: float | None = None  # its runs are preempted then; None: they may end


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSet:
    """A user, account, virtual cluster, partition or quota was set."""

    tenant: Tenant
    actor: str
    at: float
    source: str = OPERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRemoved:
    """A user, account, virtual cluster, partition or quota was removed."""

    kind: str
    name: str
    actor: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsConfigured:
    """All tenants of the configuration; they replace those of the previous one."""

    tenants: tuple[Tenant, ...]
    at: float
