"""What a leader is told."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.protocol.ledger import (
    Job,
    Ledger,
    Request,
    Run,
    Terms,
)
from dlsched.protocol.messages import (
    JobId,
    NodeName,
    RunId,
    Share,
    StopReason,
    Sync,
)

__all__ = [
    "AttachAsked",
    "BatchAsked",
    "CancelAsked",
    "Confirmed",
    "Deposed",
    "DownConfirmed",
    "Elected",
    "Event",
    "ForgetAsked",
    "PersistFailed",
    "Persisted",
    "PlaceAsked",
    "RequeueAsked",
    "StopAsked",
    "SubmitAsked",
    "SuspendAsked",
    "SyncArrived",
    "TermsAsked",
    "Tick",
    "Together",
]


@dataclass(frozen=True, slots=True)
class Tick:
    """A beat has passed."""

    now: float


@dataclass(frozen=True, slots=True)
class Elected:
    """The database made this process the leader; `asked_at` is when it was asked."""

    now: float
    asked_at: float
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The database still knew this leader when asked at `asked_at`."""

    now: float
    asked_at: float


@dataclass(frozen=True, slots=True)
class Deposed:
    """The database knows another leader, or refused a write for its epoch."""

    now: float


@dataclass(frozen=True, slots=True)
class Persisted:
    """A transaction is durable."""

    now: float
    number: int


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """A transaction's fate is unknown or it failed; it is sent again, under its number."""

    now: float
    number: int


@dataclass(frozen=True, slots=True)
class SyncArrived:
    """A node has synced.

    `recalled` are rows of the database for runs in the sync that memory does not know: without
    them a run that the database knows is over would be taken for an orphan.
    """

    now: float
    sync: Sync
    recalled: tuple[tuple[Job, Run], ...] = ()


@dataclass(frozen=True, slots=True)
class SubmitAsked:
    """A client submits; `token` finds the client again."""

    now: float
    token: int
    request: Request


@dataclass(frozen=True, slots=True)
class BatchAsked:
    """A client submits several jobs, all or none; they get consecutive ids.

    `rows` are durable with them. Whoever builds rows that name the new jobs reads
    `reserved.next_job` just before the step, and tells it as `first`.
    """

    now: float
    token: int
    requests: tuple[Request, ...]
    first: JobId | None = None
    rows: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A client cancels; `why` when it is the daemon, for a reason that the job shows."""

    now: float
    token: int
    job: JobId
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlaceAsked:
    """The round wants a job's next run on some GPUs; `run_id` is random, from the shell."""

    now: float
    job: JobId
    run_id: RunId
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The round wants a job's run back; `step` is the stop step that its ranks have agreed on."""

    now: float
    job: JobId
    reason: StopReason
    step: int | None = None


@dataclass(frozen=True, slots=True)
class SuspendAsked:
    """The round wants a job suspended, or resumed.

    With `gives_way` others may have its GPUs as soon as its nodes say that it has left them; where
    that cannot be, it is preempted. Then it resumes only when they are free again.
    """

    now: float
    job: JobId
    suspended: bool
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class RequeueAsked:
    """A client wants a job's run stopped and the job pending again, uncharged."""

    now: float
    token: int
    job: JobId


@dataclass(frozen=True, slots=True)
class TermsAsked:
    """A client wants a job under other limits, grace or retries, its present run too."""

    now: float
    job: JobId
    terms: Terms


@dataclass(frozen=True, slots=True)
class AttachAsked:
    """Rows that mean nothing here are to be durable; `token` is answered when they are."""

    now: float
    rows: tuple[object, ...]
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """Events that are one decision: what they change is in one transaction.

    A round is one: its stops, suspensions, resumptions and placements, with its rows. What cannot
    be is refused and reported by itself.
    """

    now: float
    events: tuple[
        SubmitAsked
        | BatchAsked
        | CancelAsked
        | RequeueAsked
        | PlaceAsked
        | StopAsked
        | SuspendAsked
        | TermsAsked
        | AttachAsked
        | DownConfirmed,
        ...,
    ]


@dataclass(frozen=True, slots=True)
class ForgetAsked:
    """Ended jobs may leave memory, those that no node tells of and no change is under way for."""

    now: float
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class DownConfirmed:
    """An operator says that nothing runs on a node (`admin node-down NODE --confirmed`)."""

    now: float
    node: NodeName


Event = (
    Tick
    | Elected
    | Confirmed
    | Deposed
    | Persisted
    | PersistFailed
    | SyncArrived
    | SubmitAsked
    | BatchAsked
    | CancelAsked
    | RequeueAsked
    | PlaceAsked
    | StopAsked
    | SuspendAsked
    | TermsAsked
    | AttachAsked
    | Together
    | ForgetAsked
    | DownConfirmed
)
