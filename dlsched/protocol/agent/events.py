"""What an agent is told."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.protocol.agent.records import AgentRecord, RunRecord
from dlsched.protocol.messages import (
    BootId,
    ExitRecord,
    GpuId,
    KeeperStatus,
    Nudge,
    Reply,
    RunId,
    WitnessAnswer,
    WitnessQuery,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The agent process begins: what the disk and the sockets say."""

    now: float
    boot_id: BootId
    record: AgentRecord
    runs: tuple[RunRecord, ...]
    keepers: tuple[KeeperStatus, ...]  # alive
    lease_until: float | None = None  # of the lease file, which a reboot empties


@dataclass(frozen=True, slots=True)
class Tick:
    """A beat has passed."""

    now: float


@dataclass(frozen=True, slots=True)
class ReplyArrived:
    """The leader answered a sync."""

    now: float
    reply: Reply


@dataclass(frozen=True, slots=True)
class Nudged:
    """The leader has news."""

    now: float
    nudge: Nudge


@dataclass(frozen=True, slots=True)
class Persisted:
    """The agent's own file is durable with this content."""

    now: float
    record: AgentRecord


@dataclass(frozen=True, slots=True)
class KeeperSpoke:
    """A keeper's status has changed."""

    now: float
    status: KeeperStatus


@dataclass(frozen=True, slots=True)
class KeeperGone:
    """A keeper's process is no more, or was never made: `why` then."""

    now: float
    run_id: RunId
    why: str = ""


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """GPUs have become unhealthy, or healthy again."""

    now: float
    unhealthy: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class LeftoversGone:
    """No process of the run is left; `record` is what its disk says by now."""

    now: float
    run_id: RunId
    record: RunRecord | None


@dataclass(frozen=True, slots=True)
class EndWritten:
    """An end that the agent wrote for a lost keeper is durable."""

    now: float
    exit: ExitRecord


@dataclass(frozen=True, slots=True)
class WitnessAsked:
    """Another agent asks."""

    now: float
    query: WitnessQuery


@dataclass(frozen=True, slots=True)
class WitnessAnswered:
    """Another agent answers."""

    now: float
    answer: WitnessAnswer


Event = (
    Started
    | Tick
    | ReplyArrived
    | Nudged
    | Persisted
    | KeeperSpoke
    | KeeperGone
    | HealthChanged
    | LeftoversGone
    | EndWritten
    | WitnessAsked
    | WitnessAnswered
)
