"""What a leader knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from dlsched.protocol.leader.commands import (
    Answer,
    Persist,
)
from dlsched.protocol.ledger import (
    Ledger,
    Write,
)
from dlsched.protocol.messages import (
    Digest,
    Epoch,
    HeldRun,
    Incarnation,
    NodeName,
    Revision,
    RunId,
    Term,
)
from dlsched.protocol.rules import Chain
from dlsched.protocol.timing import Timing

__all__ = ["WITNESSES", "Hearing", "LeaderState", "Role"]


WITNESSES = 5  # all nodes up to so many, else the first five by name


class Role(Enum):
    """Whether this process leads."""

    STANDBY = "standby"
    LEADING = "leading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """What this term has heard from one node."""

    incarnation: Incarnation
    sequence: int
    at: float
    held: tuple[HeldRun, ...] = ()
    held_digest: Digest = Digest("")
    renewals: Mapping[int, float] = field(default_factory=dict)  # reply sequence -> sent at
    chain: Chain | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """Everything a leader knows; all but `committed` dies with it."""

    name: str
    timing: Timing = Timing()
    role: Role = Role.STANDBY
    committed: Ledger = field(default_factory=Ledger)
    reserved: Ledger = field(default_factory=Ledger)
    queue: tuple[Write, ...] = ()
    queue_answers: tuple[Answer, ...] = ()
    in_flight: Persist | None = None
    in_flight_answers: tuple[Answer, ...] = ()
    again: bool = False  # the transaction in flight has to be sent again
    number: int = 0
    confirmed_at: float = float("-inf")
    last_tick: float | None = None
    window_from: float = 0.0  # no observation is older than this
    hearings: Mapping[NodeName, Hearing] = field(default_factory=dict)
    renewed: Mapping[NodeName, float] = field(default_factory=dict)  # last lease sent at
    prepared: Mapping[RunId, frozenset[NodeName]] = field(default_factory=dict)
    preparing_from: Mapping[RunId, float] = field(default_factory=dict)
    stepped_back: bool = False  # the database is older than what nodes have seen
    forgotten: Mapping[NodeName, Term] = field(default_factory=dict)  # terms that it lost
    loaded: Mapping[NodeName, Revision] = field(default_factory=dict)  # as this term began
    shown: frozenset[str] = frozenset()  # alarms that stand

    @property
    def epoch(self) -> Epoch:
        """The committed term."""
        return self.committed.epoch

    @property
    def witnesses(self) -> tuple[NodeName, ...]:
        """Whom a silent node asks."""
        return tuple(sorted(self.committed.nodes)[:WITNESSES])
