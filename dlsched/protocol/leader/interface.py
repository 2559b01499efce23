"""What a leader's step takes and gives: its events and its commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.protocol import messages as m
from dlsched.protocol.ledger import (
    Job,
    Ledger,
    Request,
    Run,
    Submit,
    Terms,
    Write,
)

# -- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """What has happened, at `now` on the clock of this machine since its boot."""

    now: float


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """The timer: time has passed."""


@dataclass(frozen=True, slots=True)
class Elected(Event):
    """The database made this process the leader; `asked_at` is when the request was sent."""

    asked_at: float
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Confirmed(Event):
    """The database confirmed this leader's term in answer to a request sent at `asked_at`."""

    asked_at: float


@dataclass(frozen=True, slots=True)
class Deposed(Event):
    """The database has another leader, or refused a write because of its epoch."""


@dataclass(frozen=True, slots=True)
class Persisted(Event):
    """A transaction is durable."""

    number: int


@dataclass(frozen=True, slots=True)
class PersistFailed(Event):
    """A transaction failed, or its result is unknown; it is sent again under its number."""

    number: int


@dataclass(frozen=True, slots=True)
class SyncArrived(Event):
    """A node has synced.

    `recalled` are the rows of runs in the sync that only the database knows. Without them, a run
    that is over in the database would be adopted as an orphan. `again` has a random run id for each
    job of an ended run that may be repeated in place, as far as the ledger does not forbid it.
    """

    sync: m.Sync
    recalled: tuple[tuple[Job, Run], ...] = ()
    again: Mapping[m.JobId, m.RunId] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubmitAsked(Event):
    """A client submits a job; `token` identifies the client in the answer."""

    token: int
    request: Request


@dataclass(frozen=True, slots=True)
class BatchAsked(Event):
    """A client submits several jobs, all or none; they get consecutive ids.

    `rows` become durable with them. Rows that name the new jobs are built with
    `reserved.next_job`, read just before the step; `first` is that number. `made` are the
    requests' submissions under the ids from `first` on, if they are at hand.
    """

    token: int
    requests: tuple[Request, ...]
    first: m.JobId | None = None
    rows: tuple[object, ...] = ()
    made: tuple[Submit, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelAsked(Event):
    """A client cancels a job; `why` is the reason that the job shows when the daemon does it."""

    token: int
    job: m.JobId
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlaceAsked(Event):
    """The round places a job's next run on some GPUs; `run_id` is random.

    With `beside`, the present run goes on until the ranks of the next one are ready.
    """

    job: m.JobId
    run_id: m.RunId
    shares: tuple[m.Share, ...]
    beside: bool = False


@dataclass(frozen=True, slots=True)
class StopAsked(Event):
    """The round stops a job's run; `step` is the stop step on which its ranks have agreed.

    `why` is the reason that the job shows from then on.
    """

    job: m.JobId
    reason: m.StopReason
    step: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ReadyToFollow(Event):
    """The ranks of a run that follows another one wait for the state; `where` says where."""

    run_id: m.RunId
    where: str


@dataclass(frozen=True, slots=True)
class FollowerGivenUp(Event):
    """A run that follows another one is to end: it has not become ready in time."""

    run_id: m.RunId


@dataclass(frozen=True, slots=True)
class SuspendAsked(Event):
    """The round suspends or resumes a job.

    With `gives_way`, other runs may use its GPUs as soon as its nodes report that it has left them,
    and it resumes only when they are free again. A run that cannot leave them is preempted.
    """

    job: m.JobId
    suspended: bool
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class RequeueAsked(Event):
    """A client stops a job's run so that the job is pending again; no failure is counted.

    A job that has ended is pending again, too; `recalled` has it and its last run, since it may
    have left memory.
    """

    token: int
    job: m.JobId
    recalled: tuple[Job, Run | None] | None = None


@dataclass(frozen=True, slots=True)
class TermsAsked(Event):
    """A client changes the limits, grace or retries of a job, and of its present run."""

    job: m.JobId
    terms: Terms


@dataclass(frozen=True, slots=True)
class AttachAsked(Event):
    """Store rows without a meaning for the protocol; `token` is answered when they are durable."""

    rows: tuple[object, ...]
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Together(Event):
    """Events that are one decision: their changes are one transaction.

    A round is one: its stops, suspensions, resumptions and placements, with its rows. A part that
    is not possible is refused and reported, and the others are carried out.
    """

    events: tuple[
        SubmitAsked
        | BatchAsked
        | CancelAsked
        | RequeueAsked
        | PlaceAsked
        | StopAsked
        | SuspendAsked
        | FollowerGivenUp
        | TermsAsked
        | AttachAsked
        | DownConfirmed
        | EndOrphans
        | OverConfirmed,
        ...,
    ]


@dataclass(frozen=True, slots=True)
class ForgetAsked(Event):
    """Ended jobs may leave memory, unless a node still reports them or a change is in flight."""

    jobs: tuple[m.JobId, ...]


@dataclass(frozen=True, slots=True)
class DownConfirmed(Event):
    """An operator confirms that nothing runs on a node (`admin node-down NODE --confirmed`)."""

    node: m.NodeName


@dataclass(frozen=True, slots=True)
class NodeOff(Event):
    """The site's fencing command says that a node is off, as `PowerOff` has asked."""

    node: m.NodeName
    asked: PowerOff


@dataclass(frozen=True, slots=True)
class OverConfirmed(Event):
    """An operator confirms that no process of a run is left on nodes that cannot tell or end it.

    `places` are those that the operator was told of: nothing is confirmed of any other.
    """

    places: frozenset[tuple[m.NodeName, m.RunId]]


@dataclass(frozen=True, slots=True)
class EndOrphans(Event):
    """An operator ends runs that nodes hold and the database does not know.

    Not durable: a leader that starts meanwhile has to be asked again.
    """

    run_ids: frozenset[m.RunId]


# -- commands ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contend:
    """Ask the database to make this process the leader, with the next epoch."""

    asked_at: float


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ask the database whether this epoch still leads, and renew the heartbeat in its row."""

    asked_at: float
    epoch: m.Epoch


@dataclass(frozen=True, slots=True)
class Persist:
    """Store one transaction under an epoch; a repeated number is stored once."""

    epoch: m.Epoch
    number: int
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class PowerOff:
    """Have the site's fencing command switch a silent node off; asked again at each tick.

    `asked_at` and `incarnation` say until when an answer counts: until the node is heard again.
    """

    node: m.NodeName
    asked_at: float
    incarnation: m.Incarnation


@dataclass(frozen=True, slots=True)
class SendReply:
    """Answer a sync."""

    reply: m.Reply


@dataclass(frozen=True, slots=True)
class SendNudge:
    """Ask a node to sync."""

    nudge: m.Nudge


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a client: its request is committed, refused, or its result is unknown."""

    token: int
    job: m.JobId | None = None
    refused: str = ""
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Alarm:
    """A message that an operator must see; one that does not last tells of one moment."""

    text: str
    lasts: bool = True


@dataclass(frozen=True, slots=True)
class PlacementRefused:
    """A placement or resumption of the round is not possible, with the reason."""

    job: m.JobId
    reason: str


Command = (
    Contend
    | Confirm
    | Persist
    | PowerOff
    | SendReply
    | SendNudge
    | Answer
    | Alarm
    | PlacementRefused
)
