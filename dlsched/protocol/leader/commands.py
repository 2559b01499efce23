"""What a leader has done: its words to nodes, clients and the database."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.protocol.ledger import (
    Write,
)
from dlsched.protocol.messages import (
    Epoch,
    JobId,
    Nudge,
    Reply,
)

__all__ = [
    "Alarm",
    "Answer",
    "Command",
    "Confirm",
    "Contend",
    "Persist",
    "Refused",
    "SendNudge",
    "SendReply",
]


@dataclass(frozen=True, slots=True)
class Contend:
    """Ask the database for the lead: lock, stale session ended, epoch + 1."""

    asked_at: float


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ask the database whether this epoch still leads (and beat in the leader row)."""

    asked_at: float
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Persist:
    """One transaction, all or nothing, `WHERE epoch`; doing a number twice does it once."""

    epoch: Epoch
    number: int
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class SendReply:
    """Answer a sync."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class SendNudge:
    """Tell a node to sync."""

    nudge: Nudge


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a client: what was asked for is committed, or refused, or its fate is unknown."""

    token: int
    job: JobId | None = None
    refused: str = ""
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something an operator must see."""

    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The round asked for what cannot be; why."""

    job: JobId
    reason: str


Command = Contend | Confirm | Persist | SendReply | SendNudge | Answer | Alarm | Refused
