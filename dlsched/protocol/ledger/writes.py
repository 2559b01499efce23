"""The only changes of a ledger that exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dlsched.protocol import messages as m
from dlsched.protocol.ledger.rows import (
    Job,
    Ledger,
    NodeStatus,
    Request,
    Terms,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A job is accepted under the next id."""

    request: Request
    job: m.JobId
    row: Job = field(init=False, repr=False, compare=False)  # one for every ledger that has the job

    def __post_init__(self) -> None:
        """Make the job's row."""
        object.__setattr__(self, "row", Job(job=self.job, request=self.request))


def submissions(requests: Iterable[Request], first: m.JobId) -> Iterator[Submit]:
    """The acceptances of some requests under consecutive ids."""
    return (Submit(request=each, job=m.JobId(first + k)) for k, each in enumerate(requests))


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """A job's next run gets its GPUs; a run on one node is released at once.

    With `follows`, it is made ready beside that run of the job, and may have GPUs of it.
    """

    key: m.RunKey
    shares: tuple[m.Share, ...]
    follows: m.RunId | None = None


@dataclass(frozen=True, slots=True)
class ReleaseRun:
    """Every member has prepared: the run may execute."""

    run_id: m.RunId


@dataclass(frozen=True, slots=True)
class StopRun:
    """A run is to stop; a cancel overrides any other reason, and `why` becomes the job's reason."""

    run_id: m.RunId
    reason: m.StopReason
    step: int | None = None
    why: str = ""
    hand_over: str = ""  # where the ranks of the run that follows it wait for the state


@dataclass(frozen=True, slots=True)
class SuspendRun:
    """Suspend or resume a run; with `gives_way`, other runs may use its GPUs meanwhile."""

    run_id: m.RunId
    suspended: bool
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class LetGo:
    """A node reports that a suspended run uses none of its GPUs there any more."""

    run_id: m.RunId
    node: m.NodeName


@dataclass(frozen=True, slots=True)
class MemberOver:
    """One node's part of a run is over: by its record, or presumed for a named reason.

    With `again`, the run is over with it and is repeated in place: its job's next run, of that id,
    has the same GPUs from the same moment on.
    """

    run_id: m.RunId
    node: m.NodeName
    exit: m.ExitRecord | None = None
    presumed: str = ""
    again: m.RunId | None = None


@dataclass(frozen=True, slots=True)
class CancelJob:
    """A pending job is cancelled; `why` is given when no user asked for it."""

    job: m.JobId
    why: str = ""


@dataclass(frozen=True, slots=True)
class Restart:
    """A job that has ended is pending again; its earlier runs stay, its counts begin anew."""

    job: m.JobId


@dataclass(frozen=True, slots=True)
class ChangeTerms:
    """Change the limits, grace or retries of a job and of its present run."""

    job: m.JobId
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterNode:
    """A node's agent has started and registered the node."""

    node: m.NodeName
    boot_id: m.BootId
    incarnation: m.Incarnation
    inventory: m.Inventory
    start: str = ""


@dataclass(frozen=True, slots=True)
class SetWitnesses:
    """A node may have one of these sets of witnesses; it is told of the last one from now on."""

    node: m.NodeName
    sets: tuple[tuple[m.NodeName, ...], ...]


@dataclass(frozen=True, slots=True)
class SetNode:
    """A node is up, lost or down, and why."""

    node: m.NodeName
    status: NodeStatus
    why: str = ""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Set the GPUs of a node that stuck processes hold."""

    node: m.NodeName
    gpus: tuple[m.GpuId, ...]


@dataclass(frozen=True, slots=True)
class Adopt:
    """Adopt a run that is alive on a node and unknown to the database."""

    held: m.HeldRun
    node: m.NodeName


@dataclass(frozen=True, slots=True)
class OrphanOver:
    """An orphan has ended, or its node no longer holds it."""

    node: m.NodeName
    run_id: m.RunId
    exit: m.ExitRecord | None


@dataclass(frozen=True, slots=True)
class RaiseEpoch:
    """A node has seen a higher epoch than this database: go on above it."""

    epoch: m.Epoch


@dataclass(frozen=True, slots=True)
class RaiseRevision:
    """A node has seen a higher revision than this database: go on above it."""

    node: m.NodeName
    revision: m.Revision


@dataclass(frozen=True, slots=True)
class Attach:
    """Store a row with the other changes of its transaction; the ledger does not contain it."""

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
    | Restart
    | ChangeTerms
    | RegisterNode
    | SetWitnesses
    | SetNode
    | Quarantine
    | Adopt
    | OrphanOver
    | RaiseEpoch
    | RaiseRevision
    | Attach
)


def job_changed(write: Write, ledger: Ledger) -> m.JobId | None:
    """The job that a change is about; None for a change of a node, or of an unknown run."""
    match write:
        case Submit(job=job) | CancelJob(job=job) | Restart(job=job) | ChangeTerms(job=job):
            return job
        case (
            Assign(key=key)
            | Adopt(held=m.HeldRun(key=key))
            | OrphanOver(exit=m.ExitRecord(key=key))
        ):
            return key.job
        case ReleaseRun() | StopRun() | SuspendRun() | LetGo() | MemberOver():
            run = ledger.runs.get(write.run_id)
            return None if run is None else run.key.job
    return None
