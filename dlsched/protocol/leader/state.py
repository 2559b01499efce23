"""What a leader knows, and what one of its steps builds up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from dlsched.protocol import messages as m
from dlsched.protocol.leader.interface import (
    Alarm,
    Answer,
    Command,
    Persist,
)
from dlsched.protocol.ledger import (
    Ledger,
    Run,
    Write,
    apply_all,
)
from dlsched.protocol.rules import Chain
from dlsched.protocol.timing import Timing

WITNESSES = 5  # at most; of more nodes, the first five by name


class Role(Enum):
    """Whether this process leads."""

    STANDBY = "standby"
    LEADING = "leading"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSync:
    """The newest sync of one node in this term."""

    incarnation: m.Incarnation
    sequence: int
    at: float
    starts: tuple[str, ...] = ()  # of its agent
    held: tuple[m.HeldRun, ...] = ()
    held_digest: m.Digest = m.Digest("")
    renewals: Mapping[int, float] = field(default_factory=dict)  # reply sequence -> sent at
    chain: Chain | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An agent was refused although it has a node's name."""

    at: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """Everything a leader knows; only `committed` outlives its process."""

    name: str
    timing: Timing = Timing()
    role: Role = Role.STANDBY
    committed: Ledger = field(default_factory=Ledger)
    reserved: Ledger = field(default_factory=Ledger)
    queue: tuple[Write, ...] = ()
    queue_answers: tuple[Answer, ...] = ()
    in_flight: Persist | None = None
    in_flight_answers: tuple[Answer, ...] = ()
    resend: bool = False  # the transaction in flight must be sent again
    number: int = 0
    confirmed_at: float = float("-inf")
    last_tick: float | None = None
    window_from: float = 0.0  # observations of silence begin here
    last_syncs: Mapping[m.NodeName, LastSync] = field(default_factory=dict)
    renewed: Mapping[m.NodeName, float] = field(default_factory=dict)  # when a lease was last sent
    prepared: Mapping[m.RunId, frozenset[m.NodeName]] = field(default_factory=dict)
    preparing_from: Mapping[m.RunId, float] = field(default_factory=dict)
    taken: frozenset[m.RunId] = frozenset()  # runs of failing gangs whose GPUs a round has taken
    stepped_back: bool = False  # the database is older than what nodes have seen
    lost_terms: Mapping[m.NodeName, m.Term] = field(default_factory=dict)  # those terms
    loaded: Mapping[m.NodeName, m.Revision] = field(
        default_factory=dict
    )  # at the beginning of this term
    refusals: Mapping[m.NodeName, Refusal] = field(default_factory=dict)  # the last of each node
    in_doubt: frozenset[tuple[m.NodeName, m.RunId]] = frozenset()  # as nodes report
    # orphans and runs in doubt that an operator ends, on these nodes
    ending: frozenset[tuple[m.NodeName, m.RunId]] = frozenset()
    alarms: frozenset[str] = frozenset()  # that were raised and still hold

    @property
    def epoch(self) -> m.Epoch:
        """The committed term."""
        return self.committed.epoch

    def doubtful_nodes(self, run: Run) -> list[m.NodeName]:
        """The nodes that cannot tell whether processes of a run are left."""
        return sorted(node for node, run_id in self.in_doubt if run_id == run.key.run_id)

    @property
    def witnesses(self) -> tuple[m.NodeName, ...]:
        """The nodes that a silent node asks."""
        return tuple(sorted(self.committed.nodes)[:WITNESSES])


# -- one step ------------------------------------------------------------------------------------


class Turn:
    """The state and the commands that one step builds up."""

    def __init__(self, state: LeaderState) -> None:
        self.state = state
        self.commands: list[Command] = []
        self.recovery: str | None = None  # computed once: no sync arrives within a round

    def change(self, **changes: object) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]  # checked by tests

    def emit(self, *commands: Command) -> None:
        """Add commands."""
        self.commands.extend(commands)

    def write(self, *writes: Write) -> None:
        """Make changes: reserved now, committed with the next transaction."""
        self.change(
            reserved=apply_all(self.state.reserved, writes), queue=(*self.state.queue, *writes)
        )

    def alarm(self, text: str) -> None:
        """Raise an alarm once for as long as it holds."""
        if text not in self.state.alarms:
            self.change(alarms=self.state.alarms | {text})
            self.emit(Alarm(text))
