"""What an agent knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.protocol.agent.records import AgentRecord, RunRecord
from dlsched.protocol.messages import (
    BootId,
    DesiredRun,
    Digest,
    ExitRecord,
    GpuId,
    HeldRun,
    Inventory,
    NodeName,
    Phase,
    Reply,
    RunId,
    Term,
)
from dlsched.protocol.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A run that exists here."""

    desired: DesiredRun
    phase: Phase
    quarantined: bool = False
    lost: bool = False  # its keeper is gone; leftovers are being killed
    record: RunRecord | None = None
    why: str = ""  # it was never started
    suspension: int = 0
    let_go: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One round of questions to the witnesses."""

    nonce: int = 0
    asked_at: float = 0.0
    ages: Mapping[NodeName, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """Everything an agent knows; only `record` survives it."""

    node: NodeName
    inventory: Inventory
    timing: Timing = Timing()
    boot_id: BootId = BootId("")
    record: AgentRecord = AgentRecord()
    writing: AgentRecord | None = None
    pending: Reply | None = None  # waits until its term is durable
    applied: Term = Term()
    desired_digest: Digest = Digest("")
    desired: tuple[DesiredRun, ...] = ()
    held: Mapping[RunId, Held] = field(default_factory=dict)
    ended: Mapping[RunId, ExitRecord] = field(default_factory=dict)
    registered: bool = False
    started: bool = False
    sequence: int = 0
    sent: Mapping[int, float] = field(default_factory=dict)
    answered: int = -1  # newest sync whose reply was used
    told_digest: Digest = Digest("")  # of the held set that went out in full and was answered
    telling: Mapping[int, Digest] = field(default_factory=dict)
    renewed_sequence: int = -1
    renewed_at: float = 0.0
    lease_until: float = float("-inf")
    covers: frozenset[RunId] = frozenset()
    witnesses: tuple[NodeName, ...] = ()
    asking: Asking = Asking()
    last_tick: float | None = None
    unhealthy: tuple[GpuId, ...] = ()

    def held_runs(self) -> tuple[HeldRun, ...]:
        """What a sync says."""
        return tuple(
            HeldRun(
                key=held.desired.key,
                phase=held.phase,
                gpus=held.desired.gpus,
                nodes=tuple(share.node for share in held.desired.layout),
                request_id=held.desired.request_id,
                suspension=held.suspension,
                let_go=held.let_go,
            )
            for run_id, held in sorted(self.held.items())
            if run_id not in self.ended
        )

    def quarantined(self) -> tuple[GpuId, ...]:
        """The GPUs that stuck processes hold."""
        return tuple(sorted(g for h in self.held.values() if h.quarantined for g in h.desired.gpus))
