"""What an agent knows, and what one of its steps builds up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlsched.protocol import messages as m
from dlsched.protocol.agent.interface import (
    AgentRecord,
    Command,
    RunRecord,
    SendSync,
    SyncLater,
)
from dlsched.protocol.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A run that exists on this node."""

    desired: m.DesiredRun
    phase: m.Phase
    quarantined: bool = False
    lost: bool = False  # its keeper has died; remaining processes are being killed
    record: RunRecord | None = None
    why: str = ""  # the keeper could not be started
    fault: m.StartFault | None = None  # likewise
    suspension: int = 0
    let_go: bool = False
    # when its keeper is killed: it was told to stop its run and does not
    kill_keeper_at: float | None = None
    # how it ends as soon as an operator confirms that none of its processes is left
    in_doubt: m.ExitRecord | None = None
    is_said_to_be_over: bool = False  # by an operator, although a process of it cannot be killed


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessRound:
    """One round of queries to the witnesses, with the ages that were answered."""

    nonce: int = 0
    asked_at: float = 0.0
    ages: Mapping[m.NodeName, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """Everything an agent knows; only `record` outlives its process."""

    node: m.NodeName
    inventory: m.Inventory
    timing: Timing = Timing()
    epilog_s: float = 0.0  # how long the site's epilog may take
    boot_id: m.BootId = m.BootId("")
    record: AgentRecord = AgentRecord()
    writing: AgentRecord | None = None
    pending: m.Reply | None = None  # waits until its term is durable
    applied: m.Term = m.Term()
    desired_digest: m.Digest = m.Digest("")
    desired: tuple[m.DesiredRun, ...] = ()
    held: Mapping[m.RunId, Held] = field(default_factory=dict)
    ended: Mapping[m.RunId, m.ExitRecord] = field(default_factory=dict)
    registered: bool = False
    started: bool = False
    sequence: int = 0
    sent: Mapping[int, float] = field(default_factory=dict)
    answered: int = -1  # newest sync with a used reply
    unanswered: bool = False  # no reply to the newest sync has come
    rests_until: float = float("-inf")  # news is sent from then on
    owes_sync: bool = False  # news waits for that
    reported_digest: m.Digest = m.Digest("")  # of the held set that was sent in full and answered
    reported: Mapping[int, m.Digest] = field(default_factory=dict)
    renewed_sequence: int = -1
    renewed_at: float = 0.0
    lease_until: float = float("-inf")
    covers: frozenset[m.RunId] = frozenset()
    witnesses: tuple[m.NodeName, ...] = ()
    witness_round: WitnessRound = WitnessRound()
    last_tick: float | None = None
    unhealthy: tuple[m.GpuId, ...] = ()
    refused: str = ""  # why the leader takes this agent for none of its node

    def held_runs(self) -> tuple[m.HeldRun, ...]:
        """The held runs as a sync reports them."""
        return tuple(
            m.HeldRun(
                key=held.desired.key,
                phase=held.phase,
                gpus=held.desired.gpus,
                nodes=tuple(share.node for share in held.desired.layout),
                request_id=held.desired.request_id,
                suspension=held.suspension,
                let_go=held.let_go,
                in_doubt=held.in_doubt is not None,
            )
            for run_id, held in sorted(self.held.items())
            if run_id not in self.ended
        )

    def quarantined(self) -> tuple[m.GpuId, ...]:
        """The GPUs that stuck processes hold."""
        return tuple(sorted(g for h in self.held.values() if h.quarantined for g in h.desired.gpus))


# -- one step ------------------------------------------------------------------------------------


PATIENCE_S = 0.5  # how long news waits for the reply to the last sync
REST, LONGEST_REST_S = 3.0, 0.1  # after a reply, in times that it took to come; at most
REMEMBERED_SYNCS = 16
REMEMBERED_STARTS = 32  # without an answer of a leader in between


class Turn:
    """The state and the commands that one step builds up."""

    def __init__(self, state: AgentState) -> None:
        self.state = state
        self.commands: list[Command] = []

    def change(self, **changes: object) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]  # checked by tests

    def emit(self, *commands: Command) -> None:
        """Add commands."""
        self.commands.extend(commands)

    def tell(self, now: float) -> None:
        """Send the leader news: at once, or with what else there is when the agent has rested."""
        if now >= self.state.rests_until:
            self.sync(now)
        elif not self.state.owes_sync:
            self.change(owes_sync=True)
            self.emit(SyncLater(self.state.rests_until))

    def rest(self, now: float, sequence: int) -> None:
        """Rest after the reply to the newest sync: the longer, the longer it took to come."""
        state = self.state
        if sequence != state.sequence:
            return
        pause = min(REST * (now - state.sent[sequence]), LONGEST_REST_S)
        self.change(unanswered=False, rests_until=now + pause)
        if state.owes_sync:
            self.emit(SyncLater(self.state.rests_until))

    def sync(self, now: float) -> None:
        """Send the leader all held and ended runs."""
        state = self.state
        if not state.started:
            return
        sequence = state.sequence + 1
        held = state.held_runs()
        digest = m.digest_of(held)
        known = state.registered and digest == state.reported_digest
        recent = dict(list(state.sent.items())[-REMEMBERED_SYNCS + 1 :])
        reported = dict(list(state.reported.items())[-REMEMBERED_SYNCS + 1 :])
        self.change(
            sequence=sequence,
            unanswered=True,
            owes_sync=False,
            rests_until=now + PATIENCE_S,
            sent={**recent, sequence: now},
            reported={**reported, sequence: digest},
        )
        self.emit(
            SendSync(
                m.Sync(
                    node=state.node,
                    boot_id=state.boot_id,
                    incarnation=state.record.incarnation,
                    sequence=sequence,
                    last=state.record.term,
                    applied=state.applied,
                    held_digest=digest,
                    held=None if known else held,
                    ended=tuple(state.ended[run_id] for run_id in sorted(state.ended)),
                    desired_digest=state.desired_digest,
                    renewed_sequence=state.renewed_sequence,
                    health=m.Health(quarantined=state.quarantined(), unhealthy=state.unhealthy),
                    inventory=None if state.registered else state.inventory,
                    starts=state.record.starts,
                    witnesses=state.witnesses,
                )
            )
        )
