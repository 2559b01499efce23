"""What a leader knows, and what one of its steps builds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Job,
    Ledger,
    Node,
    NodeStatus,
    Run,
    Write,
    apply_all,
)
from dlsched.protocol.rules import Chain
from dlsched.protocol.timing import Timing

WITNESSES = 5  # at most; of more nodes that are up, the first five by name


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
    offered: tuple[m.NodeName, ...] = ()  # the witnesses in the last replies
    offered_from: float = 0.0  # when the first reply with them was sent


@dataclass(frozen=True, slots=True)
class OwedReply:
    """A reply that waits until what concerns its node is committed."""

    sync: m.Sync
    number: int  # of the transaction


@dataclass(frozen=True, slots=True)
class Refusal:
    """An agent was refused although it has a node's name."""

    at: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSet:
    """The desired set of one node, and the rows of the ledger that it was made of."""

    rows: Sequence[tuple[Run, Job]]
    runs: tuple[m.DesiredRun, ...]
    digest: m.Digest
    stopped: frozenset[m.RunId]  # those that are to end

    def is_of(self, rows: Sequence[tuple[Run, Job]]) -> bool:
        """Whether it was made of these very rows; rows are never changed, only replaced."""
        return len(rows) == len(self.rows) and all(
            run is known_run and job is known_job
            for (run, job), (known_run, known_job) in zip(rows, self.rows, strict=True)
        )


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
    owed: Mapping[m.NodeName, OwedReply] = field(default_factory=dict)
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
    # the runs that the last reply to each node has told it to end
    told_to_stop: Mapping[m.NodeName, frozenset[m.RunId]] = field(default_factory=dict)
    # orphans and runs in doubt that an operator ends, on these nodes
    ending: frozenset[tuple[m.NodeName, m.RunId]] = frozenset()
    alarms: frozenset[str] = frozenset()  # that were raised and still hold
    witnesses: tuple[m.NodeName, ...] = ()  # the nodes that a silent node asks
    # the last desired set of each node; its rows are checked before it is used again
    known_desired: dict[m.NodeName, DesiredSet] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def epoch(self) -> m.Epoch:
        """The committed term."""
        return self.committed.epoch

    def doubtful_nodes(self, run: Run) -> list[m.NodeName]:
        """The nodes that cannot tell whether processes of a run are left."""
        return sorted(node for node, run_id in self.in_doubt if run_id == run.key.run_id)

    def unsettled(self, job: m.JobId) -> list[tuple[m.NodeName, m.RunId]]:
        """Where processes of a job are left, or may be, that no node can end."""
        runs = self.committed.runs_of_job(job)
        return [
            (node, run.key.run_id)
            for run in runs
            for node in sorted({*run.stuck_on, *self.doubtful_nodes(run)})
        ]

    def desired(self, node: m.NodeName) -> DesiredSet:
        """The runs of the committed ledger that a node should hold, but those that are over."""
        committed, reserved = self.committed, self.reserved
        rows = [
            (run, committed.jobs[run.key.job])
            for run in committed.runs_on(node)
            if not reserved.runs[run.key.run_id].members[node].is_over
        ]
        known = self.known_desired.get(node)
        if known is not None and known.is_of(rows):
            return known
        runs = tuple(committed.desired_run(run, node) for run, _ in rows)
        stopped = frozenset(each.key.run_id for each in runs if each.want is m.Want.STOPPED)
        made = DesiredSet(rows=rows, runs=runs, digest=m.digest_of(runs), stopped=stopped)
        self.known_desired[node] = made
        return made


def witnesses_of(nodes: Mapping[m.NodeName, Node]) -> tuple[m.NodeName, ...]:
    """The nodes that a silent node asks: the same few for all, of those that are up."""
    up = [name for name, node in nodes.items() if node.status is NodeStatus.UP]
    return tuple(sorted(up)[:WITNESSES])


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

    def end_alarms(self, *beginnings: str) -> None:
        """End the alarms whose texts begin so."""
        kept = frozenset(text for text in self.state.alarms if not text.startswith(beginnings))
        if kept != self.state.alarms:
            self.change(alarms=kept)

    def tell(self, text: str) -> None:
        """Raise an alarm about something that has happened, and is over."""
        self.emit(Alarm(text, lasts=False))
