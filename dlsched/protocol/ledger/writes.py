"""The only changes of a ledger that exist."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.protocol.ledger.rows import (
    NodeStatus,
    Request,
    Terms,
)
from dlsched.protocol.messages import (
    BootId,
    Epoch,
    ExitRecord,
    GpuId,
    HeldRun,
    Incarnation,
    Inventory,
    JobId,
    NodeName,
    Revision,
    RunId,
    RunKey,
    Share,
    StopReason,
)


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
