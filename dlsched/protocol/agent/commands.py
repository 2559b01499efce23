"""What an agent has done."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.protocol.agent.records import AgentRecord
from dlsched.protocol.messages import (
    DesiredRun,
    ExitRecord,
    Order,
    RunId,
    Sync,
    WitnessAnswer,
    WitnessQuery,
)


@dataclass(frozen=True, slots=True)
class SendSync:
    """Tell the leader."""

    sync: Sync


@dataclass(frozen=True, slots=True)
class Persist:
    """Make the agent's own file durable."""

    record: AgentRecord


@dataclass(frozen=True, slots=True)
class WriteEnd:
    """Write the end of a run that has no keeper; refused by the disk when there is one already."""

    exit: ExitRecord


@dataclass(frozen=True, slots=True)
class DropRecord:
    """Delete the files of a run whose end is committed."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class Spawn:
    """Make a keeper; `covered_until` is the node lease when it lists the run."""

    desired: DesiredRun
    covered_until: float | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """Give a keeper an order."""

    run_id: RunId
    order: Order


@dataclass(frozen=True, slots=True)
class KillLeftovers:
    """Kill what a lost keeper may have left (cgroup, session), then read its record."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class WriteLease:
    """Replace the lease file; keepers watch it."""

    until: float
    covers: frozenset[RunId]
    by_leader: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a witness."""

    query: WitnessQuery


@dataclass(frozen=True, slots=True)
class AnswerWitness:
    """Answer as a witness."""

    answer: WitnessAnswer


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

    text: str


Command = (
    SendSync
    | Persist
    | WriteEnd
    | DropRecord
    | Spawn
    | Tell
    | KillLeftovers
    | WriteLease
    | Ask
    | AnswerWitness
    | Note
)
