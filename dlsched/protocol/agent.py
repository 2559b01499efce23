"""A node's agent as a pure step: syncs, compares desired with held, orders its keepers.

The agent may die at any instant and take nothing with it: runs belong to keepers, ends to records
on disk, and the order of commands to the (epoch, revision) that is durable before a reply is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlsched.protocol import rules
from dlsched.protocol.messages import (
    Adjust,
    BootId,
    DesiredRun,
    Digest,
    ExitReason,
    ExitRecord,
    Forget,
    Freeze,
    GpuId,
    Health,
    HeldRun,
    Incarnation,
    Inventory,
    KeeperStatus,
    Kill,
    NodeName,
    Nudge,
    Order,
    Phase,
    Release,
    Reply,
    RunId,
    Stop,
    StopReason,
    Sync,
    Term,
    Thaw,
    Want,
    WitnessAnswer,
    WitnessQuery,
    digest_of,
)
from dlsched.protocol.timing import Timing

REMEMBERED_SYNCS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord:
    """The agent's own file: written whole, synced, renamed."""

    term: Term = Term()
    incarnation: Incarnation = Incarnation(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run's file on the node: reserved before anything runs, ended when all is over."""

    desired: DesiredRun
    boot_id: BootId
    released: bool = False
    exit: ExitRecord | None = None


# -- events --------------------------------------------------------------------------------------


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


# -- commands ------------------------------------------------------------------------------------


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


# -- state ---------------------------------------------------------------------------------------


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


def step(  # noqa: PLR0912  # one case an event
    state: AgentState, event: Event
) -> tuple[AgentState, list[Command]]:
    """The state after an event, and what is to be done, in order."""
    turn = _Turn(state)
    match event:
        case Started():
            turn.start(event)
        case Tick(now=now):
            turn.tick(now)
        case ReplyArrived(now=now, reply=reply):
            turn.receive(now, reply)
        case Nudged(now=now, nudge=nudge):
            if nudge.term > state.applied:
                turn.sync(now)
        case Persisted(now=now, record=record):
            turn.persisted(now, record)
        case KeeperSpoke(now=now, status=status):
            turn.keeper_spoke(now, status)
        case KeeperGone(run_id=run_id, why=why):
            turn.keeper_gone(run_id, why)
        case HealthChanged(now=now, unhealthy=unhealthy):
            if unhealthy != state.unhealthy:
                turn.change(unhealthy=unhealthy)
                turn.sync(now)
        case LeftoversGone(now=now, run_id=run_id, record=found):
            turn.leftovers_gone(now, run_id, found)
        case EndWritten(now=now, exit=record):
            turn.ended(now, record)
        case WitnessAsked(now=now, query=query):
            age = now - state.renewed_at
            turn.say(
                AnswerWitness(
                    WitnessAnswer(
                        asker=query.asker,
                        witness=query.witness,
                        nonce=query.nonce,
                        renewed_ago_s=age,
                    )
                )
            )
        case WitnessAnswered(now=now, answer=answer):
            turn.witnessed(now, answer)
    return turn.state, turn.commands


class _Turn:
    """One step in the making."""

    def __init__(self, state: AgentState) -> None:
        self.state = state
        self.commands: list[Command] = []

    def change(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]  # checked by tests

    def say(self, *commands: Command) -> None:
        self.commands.extend(commands)

    def start(self, event: Started) -> None:
        """Read the disk, find the keepers, count this start; talk when that is durable."""
        held: dict[RunId, Held] = {}
        ended: dict[RunId, ExitRecord] = {}
        for status in event.keepers:
            key = status.desired.key
            held[key.run_id] = Held(
                desired=status.desired,
                phase=status.phase,
                quarantined=status.quarantined,
                suspension=status.suspension,
                let_go=status.let_go,
            )
            if status.exit is not None:
                ended[key.run_id] = status.exit
        for record in event.runs:
            run_id = record.desired.key.run_id
            if record.exit is not None:
                ended[run_id] = record.exit
                if run_id in held and not held[run_id].quarantined:
                    del held[run_id]
            elif run_id not in held:
                held[run_id] = Held(
                    desired=record.desired, phase=Phase.STOPPING, lost=True, record=record
                )
                self.say(KillLeftovers(run_id))
        incarnation = Incarnation(event.record.incarnation + 1)
        record_ = replace(event.record, incarnation=incarnation)
        self.state = AgentState(
            node=self.state.node,
            inventory=self.state.inventory,
            timing=self.state.timing,
            boot_id=event.boot_id,
            record=event.record,
            writing=record_,
            held=held,
            ended=ended,
            renewed_at=event.now,  # it cannot rule out a renewal before its start
            lease_until=event.lease_until if event.lease_until is not None else float("-inf"),
            last_tick=event.now,
            unhealthy=self.state.unhealthy,
        )
        self.say(Persist(record_))

    def tick(self, now: float) -> None:
        state = self.state
        if state.last_tick is not None and rules.was_paused(state.last_tick, now, state.timing):
            self.change(renewed_at=now)  # nothing was observed meanwhile
        self.change(last_tick=now)
        self.sync(now)
        unrenewed = state.timing.witness_beats * state.timing.beat_s
        fenced = now < state.lease_until and now - self.state.renewed_at >= unrenewed
        if fenced and state.witnesses:
            nonce = state.asking.nonce + 1
            self.change(asking=Asking(nonce=nonce, asked_at=now))
            for witness in state.witnesses:
                self.say(Ask(WitnessQuery(asker=state.node, witness=witness, nonce=nonce)))

    # -- syncing -------------------------------------------------------------------------------

    def sync(self, now: float) -> None:
        state = self.state
        if not state.started:
            return
        sequence = state.sequence + 1
        held = state.held_runs()
        digest = digest_of(held)
        known = state.registered and digest == state.told_digest
        recent = dict(list(state.sent.items())[-REMEMBERED_SYNCS + 1 :])
        telling = dict(list(state.telling.items())[-REMEMBERED_SYNCS + 1 :])
        self.change(
            sequence=sequence,
            sent={**recent, sequence: now},
            telling={**telling, sequence: digest},
        )
        self.say(
            SendSync(
                Sync(
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
                    health=Health(quarantined=state.quarantined(), unhealthy=state.unhealthy),
                    inventory=None if state.registered else state.inventory,
                )
            )
        )

    def receive(self, now: float, reply: Reply) -> None:
        state = self.state
        sent_at = state.sent.get(reply.sequence)
        if (
            reply.incarnation != state.record.incarnation
            or sent_at is None
            or reply.sequence <= state.answered
        ):
            return
        if not rules.is_fresh(sent_at, now, state.timing):
            self.say(Note("a reply came too late"))
            return
        if reply.register or reply.want_held:  # orders nothing, so no term can forbid it
            news = state.registered or reply.want_held
            self.change(told_digest=Digest(""), registered=state.registered and not reply.register)
            if news:
                self.change(answered=reply.sequence)
                self.sync(now)
            return
        if not rules.supersedes(reply.term, state.record.term):
            self.say(Note(f"a reply of {reply.term} after {state.record.term}"))
            return
        self.change(pending=reply)
        if reply.term == state.record.term:
            self.use_pending(now)
        else:
            self.persist(reply.term)

    def persist(self, term: Term) -> None:
        newest = self.state.writing or self.state.record
        if term > newest.term:
            record = replace(self.state.record, term=term)
            self.change(writing=record)
            self.say(Persist(record))

    def persisted(self, now: float, record: AgentRecord) -> None:
        if self.state.writing == record:
            self.change(writing=None)
        self.change(record=record)
        if not self.state.started:
            self.change(started=True)
            self.sync(now)
        self.use_pending(now)

    def use_pending(self, now: float) -> None:
        """Use a reply whose term is durable, if it is still young enough."""
        state, reply = self.state, self.state.pending
        if reply is None or reply.term != state.record.term:
            return
        self.change(pending=None)
        sent_at = state.sent.get(reply.sequence)
        if sent_at is None or not rules.is_fresh(sent_at, now, state.timing):
            return
        self.change(
            registered=True,
            answered=reply.sequence,
            told_digest=state.telling[reply.sequence],
            witnesses=reply.witnesses,
        )
        if reply.desired is not None:
            self.change(desired=reply.desired, desired_digest=reply.desired_digest)
        elif reply.desired_digest != state.desired_digest:
            self.change(desired_digest=Digest(""))
            self.sync(now)
            return
        if reply.lease is not None:
            until = sent_at + reply.lease.duration_s
            self.change(renewed_at=now, renewed_sequence=reply.sequence)
            self.write_lease(until, reply.lease.covers, by_leader=True)
        self.acknowledge(reply)
        changed = self.reconcile()
        self.change(applied=reply.term)
        if changed:
            self.sync(now)

    def acknowledge(self, reply: Reply) -> None:
        ended, held = dict(self.state.ended), dict(self.state.held)
        for run_id in reply.acknowledged:
            if ended.pop(run_id, None) is None:
                continue
            self.say(Tell(run_id, Forget()), DropRecord(run_id))
            if run_id in held and not held[run_id].quarantined:
                del held[run_id]
        self.change(ended=ended, held=held)
        for run_id in reply.over:
            if run_id in held and not held[run_id].lost:
                self.say(Tell(run_id, Kill(StopReason.OVER)))

    # -- desired against held --------------------------------------------------------------------

    def reconcile(self) -> bool:
        """Order what the difference between desired and held means; whether it is news."""
        news = False
        for want in self.state.desired:
            run_id = want.key.run_id
            held = self.state.held.get(run_id)
            if run_id in self.state.ended:
                continue
            if held is not None:
                if not held.lost:
                    self.steer(held, want)
            elif reason := self.veto(want):
                self.refuse(want, reason)
                news = True
            else:
                self.spawn(want)
        return news

    def steer(self, held: Held, want: DesiredRun) -> None:
        run_id, has = want.key.run_id, held.desired
        if (want.limits, want.grace_s) != (has.limits, has.grace_s):
            self.say(Tell(run_id, Adjust(limits=want.limits, grace_s=want.grace_s)))
        match want.want, held.phase:
            case Want.STOPPED, _:
                reason = want.stop or StopReason.OVER
                if held.let_go and self.lent_to(held) is not None:
                    self.say(Tell(run_id, Kill(reason)))  # to save it would need its GPUs
                else:
                    self.say(Tell(run_id, Stop(reason=reason, step=want.stop_step)))
            case Want.RUNNING, Phase.STARTING | Phase.PREPARED:
                self.say(Tell(run_id, Release()))
            case Want.RUNNING, Phase.SUSPENDED if self.lent_to(held) is None:
                self.say(Tell(run_id, Thaw()))
            case Want.SUSPENDED, Phase.RUNNING:
                self.say(Tell(run_id, Freeze(want.suspend_level, want.suspension)))
            case Want.SUSPENDED, Phase.SUSPENDED if held.suspension != want.suspension:
                self.say(Tell(run_id, Freeze(want.suspend_level, want.suspension)))
            case _:
                pass

    def lent_to(self, held: Held) -> Held | None:
        """Who is on the GPUs of a run that has let them go."""
        if not held.let_go:
            return None
        mine = set(held.desired.gpus)
        others = (h for run_id, h in self.state.held.items() if run_id != held.desired.key.run_id)
        on_them = (h for h in others if mine & set(h.desired.gpus))
        return next((h for h in on_them if not self.is_off_its_gpus(h)), None)

    def is_off_its_gpus(self, held: Held) -> bool:
        """Whether a run is suspended for others to have its GPUs, and has left them."""
        wanted = {want.key.run_id: want for want in self.state.desired}
        want = wanted.get(held.desired.key.run_id)
        return rules.is_off_its_gpus(want, held.suspension, let_go=held.let_go)

    def veto(self, want: DesiredRun) -> str:  # noqa: PLR0911  # one reason a return
        """Why this node will not start a run; empty when it will."""
        state = self.state
        if want.want is Want.STOPPED:
            return "stopped before it was started"
        if want.boot_id != state.boot_id:
            return "assigned to another boot of this node"
        if not set(want.gpus) <= set(state.inventory.gpus):
            return "no such GPU here"
        if set(want.gpus) & set(state.unhealthy):
            return "GPU is unhealthy"
        for held in state.held.values():
            shared = want.share_group and want.share_group == held.desired.share_group
            on_them = set(held.desired.gpus) & set(want.gpus) and not self.is_off_its_gpus(held)
            if on_them and not shared:
                return f"GPU held by run {held.desired.key}"
            if held.desired.key.job == want.key.job:
                return f"run {held.desired.key} of the same job is here"
        return ""

    def refuse(self, want: DesiredRun, reason: str) -> None:
        record = ExitRecord(
            key=want.key,
            node=self.state.node,
            reason=ExitReason.NOT_STARTED,
            stop=want.stop,
            detail=reason,
            nodes=tuple(share.node for share in want.layout),
            request_id=want.request_id,
        )
        self.change(ended={**self.state.ended, want.key.run_id: record})

    def spawn(self, want: DesiredRun) -> None:
        run_id = want.key.run_id
        held = Held(desired=want, phase=Phase.STARTING)
        self.change(held={**self.state.held, run_id: held})
        covered = self.state.lease_until if run_id in self.state.covers else None
        self.say(Spawn(want, covered))

    # -- keepers -------------------------------------------------------------------------------

    def keeper_spoke(self, now: float, status: KeeperStatus) -> None:
        run_id = status.desired.key.run_id
        if status.exit is not None:
            if run_id in self.state.held or run_id in self.state.ended:
                self.note_quarantine(status)
                self.ended(now, status.exit)
            return
        held = self.state.held.get(run_id)
        if held is None or held.lost:
            return
        desired = replace(
            held.desired, limits=status.desired.limits, grace_s=status.desired.grace_s
        )
        news = replace(
            held,
            phase=status.phase,
            desired=desired,
            suspension=status.suspension,
            let_go=status.let_go,
        )
        self.change(held={**self.state.held, run_id: news})
        self.sync(now)

    def note_quarantine(self, status: KeeperStatus) -> None:
        run_id = status.desired.key.run_id
        held = dict(self.state.held)
        if status.quarantined:
            held[run_id] = Held(desired=status.desired, phase=Phase.STOPPING, quarantined=True)
        else:
            held.pop(run_id, None)
        self.change(held=held)

    def ended(self, now: float, record: ExitRecord) -> None:
        run_id = record.key.run_id
        held = {
            key: value
            for key, value in self.state.held.items()
            if key != run_id or value.quarantined
        }
        self.change(held=held, ended={**self.state.ended, run_id: record})
        self.sync(now)

    def keeper_gone(self, run_id: RunId, why: str) -> None:
        held = self.state.held.get(run_id)
        if held is None or held.lost:
            return
        lost = replace(held, lost=True, phase=Phase.STOPPING, why=why, let_go=False)
        self.change(held={**self.state.held, run_id: lost})
        self.say(KillLeftovers(run_id))

    def leftovers_gone(self, now: float, run_id: RunId, found: RunRecord | None) -> None:
        """A run without keeper and without processes: its record decides, else one is written."""
        held = self.state.held.get(run_id)
        if held is None or not held.lost:
            return
        if run_id in self.state.ended:  # a stuck process is gone at last
            self.change(held={k: v for k, v in self.state.held.items() if k != run_id})
            self.sync(now)
            return
        if found is not None and found.exit is not None:
            self.ended(now, found.exit)
            return
        if found is None or not found.released:
            reason = ExitReason.NOT_STARTED
        elif found.boot_id != self.state.boot_id:
            reason = ExitReason.NODE_LOST
        else:
            reason = ExitReason.KEEPER_LOST
        desired = held.desired
        record = ExitRecord(
            key=desired.key,
            node=self.state.node,
            reason=reason,
            stop=desired.stop,
            detail=held.why,
            nodes=tuple(share.node for share in desired.layout),
            request_id=desired.request_id,
        )
        if found is None:
            self.ended(now, record)  # nothing was ever reserved: nothing to overwrite
        else:
            self.say(WriteEnd(record))

    # -- the node lease ------------------------------------------------------------------------

    def write_lease(self, until: float, covers: frozenset[RunId], *, by_leader: bool) -> None:
        self.change(lease_until=until, covers=covers)
        self.say(WriteLease(until, covers, by_leader))

    def witnessed(self, now: float, answer: WitnessAnswer) -> None:
        state, asking = self.state, self.state.asking
        if answer.nonce != asking.nonce or answer.witness not in state.witnesses:
            return
        if state.renewed_at > asking.asked_at:
            return
        ages = {**asking.ages, answer.witness: answer.renewed_ago_s}
        self.change(asking=replace(asking, ages=ages))
        if not rules.is_fresh(asking.asked_at, now, state.timing):
            return
        if rules.may_extend(
            ages.values(), len(state.witnesses), state.lease_until, now, state.timing
        ):
            until = asking.asked_at + state.timing.lease_s
            if until > state.lease_until:
                self.write_lease(until, state.covers, by_leader=False)
