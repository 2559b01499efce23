"""The leader as a pure step: events in, new state and commands out.

Decide on `reserved`, commit, then speak from `committed`: nothing that a reply, an
acknowledgement or a client's answer says can be lost with this process. One transaction is in
flight at a time; what comes meanwhile is gathered for the next. Losing the database's word (a
write refused for its epoch) ends the term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from dlsched.protocol import rules
from dlsched.protocol.ledger import (
    GPU_UNHEALTHY,
    Adopt,
    Assign,
    Attach,
    CancelJob,
    ChangeTerms,
    Job,
    JobStatus,
    Ledger,
    LetGo,
    MemberOver,
    NodeStatus,
    OrphanOver,
    Quarantine,
    RaiseEpoch,
    RaiseRevision,
    RegisterNode,
    ReleaseRun,
    Request,
    Run,
    RunStatus,
    SetNode,
    StopRun,
    Submit,
    SuspendRun,
    Terms,
    Write,
    apply_all,
    having,
    with_run,
    without_jobs,
)
from dlsched.protocol.messages import (
    Digest,
    Epoch,
    ExitReason,
    Fence,
    HeldRun,
    Incarnation,
    JobId,
    Lease,
    NodeName,
    Nudge,
    Phase,
    Reply,
    Revision,
    RunId,
    RunKey,
    RunNumber,
    Share,
    StopReason,
    Sync,
    Term,
    digest_of,
)
from dlsched.protocol.rules import Chain
from dlsched.protocol.timing import Timing

WITNESSES = 5  # all nodes up to so many, else the first five by name
REMEMBERED_REPLIES = 16  # a node


class Role(Enum):
    """Whether this process leads."""

    STANDBY = "standby"
    LEADING = "leading"


# -- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """A beat has passed."""

    now: float


@dataclass(frozen=True, slots=True)
class Elected:
    """The database made this process the leader; `asked_at` is when it was asked."""

    now: float
    asked_at: float
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The database still knew this leader when asked at `asked_at`."""

    now: float
    asked_at: float


@dataclass(frozen=True, slots=True)
class Deposed:
    """The database knows another leader, or refused a write for its epoch."""

    now: float


@dataclass(frozen=True, slots=True)
class Persisted:
    """A transaction is durable."""

    now: float
    number: int


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """A transaction's fate is unknown or it failed; it is sent again, under its number."""

    now: float
    number: int


@dataclass(frozen=True, slots=True)
class SyncArrived:
    """A node has synced.

    `recalled` are rows of the database for runs in the sync that memory does not know: without
    them a run that the database knows is over would be taken for an orphan.
    """

    now: float
    sync: Sync
    recalled: tuple[tuple[Job, Run], ...] = ()


@dataclass(frozen=True, slots=True)
class SubmitAsked:
    """A client submits; `token` finds the client again."""

    now: float
    token: int
    request: Request


@dataclass(frozen=True, slots=True)
class BatchAsked:
    """A client submits several jobs, all or none; they get consecutive ids.

    `rows` are durable with them. Whoever builds rows that name the new jobs reads
    `reserved.next_job` just before the step, and tells it as `first`.
    """

    now: float
    token: int
    requests: tuple[Request, ...]
    first: JobId | None = None
    rows: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A client cancels; `why` when it is the daemon, for a reason that the job shows."""

    now: float
    token: int
    job: JobId
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlaceAsked:
    """The round wants a job's next run on some GPUs; `run_id` is random, from the shell."""

    now: float
    job: JobId
    run_id: RunId
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The round wants a job's run back; `step` is the stop step that its ranks have agreed on."""

    now: float
    job: JobId
    reason: StopReason
    step: int | None = None


@dataclass(frozen=True, slots=True)
class SuspendAsked:
    """The round wants a job suspended, or resumed.

    With `gives_way` others may have its GPUs as soon as its nodes say that it has left them; where
    that cannot be, it is preempted. Then it resumes only when they are free again.
    """

    now: float
    job: JobId
    suspended: bool
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class RequeueAsked:
    """A client wants a job's run stopped and the job pending again, uncharged."""

    now: float
    token: int
    job: JobId


@dataclass(frozen=True, slots=True)
class TermsAsked:
    """A client wants a job under other limits, grace or retries, its present run too."""

    now: float
    job: JobId
    terms: Terms


@dataclass(frozen=True, slots=True)
class AttachAsked:
    """Rows that mean nothing here are to be durable; `token` is answered when they are."""

    now: float
    rows: tuple[object, ...]
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """Events that are one decision: what they change is in one transaction.

    A round is one: its stops, suspensions, resumptions and placements, with its rows. What cannot
    be is refused and reported by itself.
    """

    now: float
    events: tuple[
        SubmitAsked
        | BatchAsked
        | CancelAsked
        | RequeueAsked
        | PlaceAsked
        | StopAsked
        | SuspendAsked
        | TermsAsked
        | AttachAsked
        | DownConfirmed,
        ...,
    ]


@dataclass(frozen=True, slots=True)
class ForgetAsked:
    """Ended jobs may leave memory, those that no node tells of and no change is under way for."""

    now: float
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class DownConfirmed:
    """An operator says that nothing runs on a node (`admin node-down NODE --confirmed`)."""

    now: float
    node: NodeName


Event = (
    Tick
    | Elected
    | Confirmed
    | Deposed
    | Persisted
    | PersistFailed
    | SyncArrived
    | SubmitAsked
    | BatchAsked
    | CancelAsked
    | RequeueAsked
    | PlaceAsked
    | StopAsked
    | SuspendAsked
    | TermsAsked
    | AttachAsked
    | Together
    | ForgetAsked
    | DownConfirmed
)


# -- commands ------------------------------------------------------------------------------------


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


# -- state ---------------------------------------------------------------------------------------


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


def step(state: LeaderState, event: Event) -> tuple[LeaderState, list[Command]]:
    """The state after an event, and what is to be done, in order."""
    turn = _Turn(state)
    turn.take(event)
    turn.flush()
    return turn.state, turn.commands


def refusal(state: LeaderState, job: JobId, now: float) -> str:
    """Why a job's next run may not be placed now; empty when it may."""
    return recovering(state, now) or _unplaceable(state.reserved, job)


def recovering(state: LeaderState, now: float) -> str:
    """Why nothing may be placed yet: a term begins by hearing what its nodes hold."""
    if not state.stepped_back and rules.window_passed(state.window_from, now, state.timing):
        return ""
    nodes, hearings = state.reserved.nodes.values(), state.hearings
    unheard = [n.name for n in nodes if n.status is NodeStatus.UP and n.name not in hearings]
    return f"Recovering({', '.join(unheard)} not heard yet)" if unheard else ""


def _unplaceable(ledger: Ledger, job: JobId) -> str:
    row = ledger.jobs.get(job)
    if row is None or row.status is not JobStatus.PENDING:
        return "not pending"
    if any(orphan.held.key.job == job for orphan in ledger.orphans.values()):
        return "Orphan"
    for run in ledger.runs_of_job(job):
        if stuck := _stuck_on(ledger, run):
            return f"Unkillable({stuck})"
    return ""


def _stuck_on(ledger: Ledger, run: Run) -> str:
    """The node on which a process of an ended run is still stuck."""
    for member in run.members.values():
        node = ledger.nodes[member.node]
        stuck = member.exit is not None and member.exit.reason is ExitReason.UNKILLABLE
        if stuck and node.boot_id == member.boot_id and set(node.quarantined) & set(member.gpus):
            return node.name
    return ""


class _Turn:
    """One step in the making: the state so far and the commands so far."""

    def __init__(self, state: LeaderState) -> None:
        self.state = state
        self.commands: list[Command] = []
        self.recovery: str | None = None  # hearings do not change while a round is taken in

    def take(self, event: Event) -> None:  # noqa: PLR0912  # one case an event
        match event:
            case Tick(now=now):
                self.tick(now)
            case Elected(now=now, asked_at=asked_at, ledger=ledger):
                if self.state.role is Role.STANDBY:
                    self.begin_term(now, asked_at, ledger)
            case Deposed():
                self.step_down()
            case _ if self.state.role is not Role.LEADING:
                self.decline(event)
            case Confirmed(asked_at=asked_at):
                self.change(confirmed_at=max(self.state.confirmed_at, asked_at))
            case Persisted(number=number):
                self.commit(number)
            case PersistFailed(number=number):
                flying = self.state.in_flight
                self.change(again=flying is not None and flying.number == number)
            case SyncArrived(now=now, sync=sync, recalled=recalled):
                self.recall(recalled)
                self.hear(now, sync)
            case Together(events=events):
                for each in events:
                    self.take(each)
            case ForgetAsked(jobs=jobs):
                self.forget(jobs)
            case _:
                self.take_wish(event)

    def take_wish(self, event: Event) -> None:
        """What a client, an operator or the round wants."""
        match event:
            case SubmitAsked(token=token, request=request):
                self.submit(token, request)
            case BatchAsked():
                self.submit_all(event)
            case CancelAsked(token=token, job=job, why=why):
                self.cancel(token, job, why)
            case RequeueAsked(token=token, job=job):
                self.requeue(token, job)
            case PlaceAsked():
                self.place(event)
            case StopAsked(job=job, reason=reason, step=at):
                self.stop(job, reason, at)
            case SuspendAsked():
                self.suspend(event)
            case TermsAsked(job=job, terms=terms):
                row = self.state.reserved.jobs.get(job)
                if row is not None and not row.status.is_terminal and row.terms != terms:
                    self.write(ChangeTerms(job, terms))
            case AttachAsked(rows=rows, token=token_):
                self.write(*map(Attach, rows))
                if token_ is not None:
                    self.answer_after_commit(Answer(token_))
            case DownConfirmed(node=node):
                self.node_down(node)

    def decline(self, event: Event) -> None:
        """Who does not lead decides nothing and says so."""
        for each in event.events if isinstance(event, Together) else (event,):
            token = getattr(each, "token", None)
            if token is not None:
                self.say(Answer(token, unknown=True))

    def change(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]  # checked by tests

    def say(self, *commands: Command) -> None:
        self.commands.extend(commands)

    def write(self, *writes: Write) -> None:
        self.change(
            reserved=apply_all(self.state.reserved, writes), queue=(*self.state.queue, *writes)
        )

    def alarm(self, text: str) -> None:
        if text not in self.state.shown:
            self.change(shown=self.state.shown | {text})
            self.say(Alarm(text))

    # -- the term ------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        state = self.state
        if state.last_tick is not None and rules.was_paused(state.last_tick, now, state.timing):
            self.start_windows_anew(now)
        self.change(last_tick=now)
        if state.role is Role.STANDBY:
            self.say(Contend(now))
            return
        self.say(Confirm(now, state.epoch))
        if state.again and state.in_flight is not None:
            self.change(again=False)
            self.say(state.in_flight)
        self.abort_slow_gangs(now)
        self.judge_silence(now)

    def start_windows_anew(self, now: float) -> None:
        hearings = {
            name: replace(hearing, chain=None, renewals={})
            for name, hearing in self.state.hearings.items()
        }
        self.change(window_from=now, hearings=hearings)

    def begin_term(self, now: float, asked_at: float, ledger: Ledger) -> None:
        self.recovery = None
        self.state = LeaderState(
            name=self.state.name,
            timing=self.state.timing,
            role=Role.LEADING,
            committed=ledger,
            reserved=ledger,
            confirmed_at=asked_at,
            last_tick=now,
            window_from=now,
            loaded={name: node.revision for name, node in ledger.nodes.items()},
            preparing_from={
                run.key.run_id: now
                for run in ledger.runs.values()
                if run.status is RunStatus.PREPARING
            },
        )

    def step_down(self) -> None:
        state = self.state
        for answer in (*state.in_flight_answers, *state.queue_answers):
            self.say(Answer(answer.token, unknown=True))
        self.state = LeaderState(name=state.name, timing=state.timing, last_tick=state.last_tick)

    def flush(self) -> None:
        state = self.state
        if (
            state.role is not Role.LEADING
            or state.in_flight
            or not (state.queue or state.queue_answers)
        ):
            return
        transaction = Persist(state.epoch, state.number + 1, state.queue)
        self.change(
            in_flight=transaction,
            in_flight_answers=state.queue_answers,
            queue=(),
            queue_answers=(),
            number=transaction.number,
        )
        self.say(transaction)

    def commit(self, number: int) -> None:
        state = self.state
        if state.in_flight is None or state.in_flight.number != number:
            return
        before, after = state.committed, apply_all(state.committed, state.in_flight.writes)
        self.change(committed=after, in_flight=None, in_flight_answers=(), again=False)
        self.sound(state.in_flight.writes)
        self.say(*state.in_flight_answers)
        for name, node in after.nodes.items():
            old = before.nodes.get(name)
            if old is None or old != node or before.epoch != after.epoch:
                term = Term(after.epoch, node.revision)
                self.say(SendNudge(Nudge(node=name, term=term)))

    def sound(self, writes: Iterable[Write]) -> None:
        """Alarms of committed facts: a deposed leader sees higher epochs too, and says nothing."""
        for write in writes:
            match write:
                case RaiseEpoch(epoch=epoch):
                    self.alarm(f"the database had stepped back; going on in epoch {epoch}")
                case RaiseRevision(node=node, revision=revision):
                    self.alarm(f"the database had stepped back; {node} had seen {revision}")
                case Adopt(held=held, node=node):
                    self.alarm(f"{node} holds run {held.key}, unknown here: kept as an orphan")
                case _:
                    pass

    # -- nodes ---------------------------------------------------------------------------------

    def hear(self, now: float, sync: Sync) -> None:
        """Take in a sync: its news first, then the reply."""
        name = sync.node
        self.notice_step_back(sync)
        if not self.is_registered(sync):
            return
        hearing = self.state.hearings.get(name)
        if hearing is not None and hearing.incarnation == sync.incarnation:
            if sync.sequence <= hearing.sequence:
                return  # a repeated or overtaken message
        else:
            hearing = None
        held = sync.held
        if held is None and hearing is not None and hearing.held_digest == sync.held_digest:
            held = hearing.held
        self.note_hearing(now, sync, hearing, held)
        self.take_ends(sync)
        if held is None:
            self.say(SendReply(replace(self.bare_reply(sync), want_held=True)))
            return
        self.take_held(sync, held)
        if sync.health.quarantined != self.state.reserved.nodes[name].quarantined:
            self.write(Quarantine(name, sync.health.quarantined))
        self.reply(now, sync, held)

    def notice_step_back(self, sync: Sync) -> None:
        """A node that has seen more than this database ever said: the database is an older one.

        What was said in earlier terms is what this term found when it began; a revision beyond
        that, or a term beyond this one, was lost. The term goes on above everything seen.
        """
        state, name, last = self.state, sync.node, sync.last
        row = state.reserved.nodes.get(name)
        if last.epoch < state.epoch:
            known = state.loaded.get(name, Revision(0))
        else:
            known = row.revision if row is not None else Revision(0)
        if last.epoch <= state.reserved.epoch and last.revision <= known:
            return
        if row is None and last.epoch <= state.reserved.epoch:
            self.change(stepped_back=True)
            return  # the node itself was forgotten; it will register
        forgotten = max(last, state.forgotten.get(name, Term()))
        self.change(stepped_back=True, forgotten=having(state.forgotten, name, forgotten))
        if last.epoch >= state.reserved.epoch:
            self.write(RaiseEpoch(Epoch(last.epoch + 1)))
        if row is not None and last.revision > row.revision:
            self.write(RaiseRevision(name, last.revision))

    def is_registered(self, sync: Sync) -> bool:
        """Whether a sync is from a node's registered agent; registers one that asks for it."""
        name = sync.node
        node = self.state.reserved.nodes.get(name)
        known = self.state.committed.nodes.get(name)
        for row in (node, known):
            if row is None or (row.boot_id, row.incarnation) != (sync.boot_id, sync.incarnation):
                break
            if row.status is not NodeStatus.UP:
                break
        else:
            return True
        if node is not None and sync.incarnation < node.incarnation:
            return False  # a message of an agent that is no more
        if sync.inventory is None:
            self.say(SendReply(replace(self.bare_reply(sync), register=True)))
        elif node is None or node == known:
            self.register(sync)
        return False

    def bare_reply(self, sync: Sync) -> Reply:
        """A reply that only asks for something."""
        node = self.state.committed.nodes.get(sync.node)
        return Reply(
            node=sync.node,
            incarnation=sync.incarnation,
            sequence=sync.sequence,
            term=Term(self.state.epoch, node.revision) if node else Term(),
            desired_digest=Digest(""),
            desired=None,
        )

    def register(self, sync: Sync) -> None:
        assert sync.inventory is not None
        rebooted = [
            run
            for run in self.state.reserved.runs_on(sync.node)
            if sync.node in self.state.reserved.nodes
            and run.members[sync.node].boot_id != sync.boot_id
        ]
        self.write(
            RegisterNode(
                node=sync.node,
                boot_id=sync.boot_id,
                incarnation=sync.incarnation,
                inventory=sync.inventory,
            )
        )
        self.take_ends(sync)  # its exit records first
        for run in rebooted:
            if not self.state.reserved.runs[run.key.run_id].members[sync.node].is_over:
                self.write(MemberOver(run.key.run_id, sync.node, presumed="rebooted"))
        self.change(shown=frozenset(t for t in self.state.shown if not t.startswith(sync.node)))

    def note_hearing(
        self, now: float, sync: Sync, hearing: Hearing | None, held: tuple[HeldRun, ...] | None
    ) -> None:
        timing = self.state.timing
        old = hearing or Hearing(incarnation=sync.incarnation, sequence=-1, at=now)
        chain = old.chain
        sent = old.renewals.get(sync.renewed_sequence)
        if sent is not None:
            if chain is None or now - chain.last_sent > timing.witnessed_s:
                chain = Chain(since=now, last_sent=sent)
            elif sent > chain.last_sent:
                chain = replace(chain, last_sent=sent)
        new = replace(
            old,
            sequence=sync.sequence,
            at=now,
            held=held if held is not None else (),
            held_digest=sync.held_digest if held is not None else Digest(""),
            chain=chain,
        )
        shown = frozenset(t for t in self.state.shown if not t.startswith(f"{sync.node} is late"))
        self.change(hearings=having(self.state.hearings, sync.node, new), shown=shown)

    def recall(self, rows: Iterable[tuple[Job, Run]]) -> None:
        """Take rows back that have left memory: what is committed stays known.

        Only what is over leaves memory; a run that is not over and unknown here belongs to a
        later term.
        """
        for job, run in rows:
            if not run.is_over:
                continue
            self.change(
                reserved=with_run(self.state.reserved, job, run),
                committed=with_run(self.state.committed, job, run),
            )

    def forget(self, jobs: Iterable[JobId]) -> None:
        state = self.state
        flying = state.in_flight.writes if state.in_flight is not None else ()
        moving = {
            getattr(write, "run_id", None)
            for write in (*flying, *state.queue)
            if not isinstance(write, Attach | Submit)
        }
        told = {held.key.run_id for hearing in state.hearings.values() for held in hearing.held}
        gone = []
        for job in jobs:
            row = state.committed.jobs.get(job)
            runs = state.reserved.runs_of_job(job)
            if row is None or not row.status.is_terminal:
                continue
            if all(r.is_over and r.key.run_id not in moving | told for r in runs):
                gone.append(job)
        runs_gone = {r for job in gone for r in state.reserved.runs_of.get(job, ())}
        if gone:
            self.change(
                reserved=without_jobs(state.reserved, gone),
                committed=without_jobs(state.committed, gone),
                prepared={r: n for r, n in state.prepared.items() if r not in runs_gone},
                preparing_from={
                    r: at for r, at in state.preparing_from.items() if r not in runs_gone
                },
            )

    def take_ends(self, sync: Sync) -> None:
        """Ended runs, from whatever epoch: a report is never refused."""
        for record in sync.ended:
            reserved = self.state.reserved
            run = reserved.runs.get(record.key.run_id)
            if run is not None and sync.node in run.members:
                member = run.members[sync.node]
                if member.exit is None:
                    sick = sorted(set(member.gpus) & set(sync.health.unhealthy))
                    why = f"{GPU_UNHEALTHY}{', '.join(sick)}" if sick else ""
                    self.write(MemberOver(record.key.run_id, sync.node, record, why))
            elif (sync.node, record.key.run_id) not in reserved.history:
                self.write(OrphanOver(sync.node, record.key.run_id, record))

    def take_held(self, sync: Sync, held: tuple[HeldRun, ...]) -> None:
        """Compare what a node holds with what it should."""
        name = sync.node
        present = {h.key.run_id for h in held} | {r.key.run_id for r in sync.ended}
        for mine in held:
            run = self.state.reserved.runs.get(mine.key.run_id)
            if run is None or name not in run.members:
                if (name, mine.key.run_id) not in self.state.reserved.orphans:
                    self.write(Adopt(mine, name))
            elif mine.phase is Phase.PREPARED and run.status is RunStatus.PREPARING:
                self.note_prepared(run, name)
            elif run.is_giving_way and mine.suspension == run.suspension:
                self.note_suspended(run, name, mine)
        seen = max(sync.applied, self.state.forgotten.get(name, Term()))
        for run in self.state.reserved.runs_on(name):
            if run.key.run_id not in present and seen >= run.members[name].since:
                self.write(MemberOver(run.key.run_id, name, presumed="not there"))
        for (place, run_id), orphan in list(self.state.reserved.orphans.items()):
            if place == name and run_id not in present and sync.applied >= orphan.since:
                self.write(OrphanOver(name, run_id, None))

    def note_prepared(self, run: Run, node: NodeName) -> None:
        run_id = run.key.run_id
        ready = self.state.prepared.get(run_id, frozenset()) | {node}
        self.change(prepared=having(self.state.prepared, run_id, ready))
        if rules.may_release(run, ready):
            self.write(ReleaseRun(run_id))

    def note_suspended(self, run: Run, node: NodeName, held: HeldRun) -> None:
        """A run that gives way stands still on a node: it is off its GPUs, or never will be."""
        if held.let_go:
            if not run.members[node].let_go:
                self.write(LetGo(run.key.run_id, node))
        elif held.phase is Phase.SUSPENDED:
            self.write(StopRun(run.key.run_id, StopReason.PREEMPT))

    def reply(self, now: float, sync: Sync, held: tuple[HeldRun, ...]) -> None:
        state, name = self.state, sync.node
        committed, reserved = state.committed, state.reserved
        desired = tuple(
            want
            for want in committed.desired(name)
            if not reserved.runs[want.key.run_id].members[name].is_over
        )
        digest = digest_of(desired)
        over = []
        for mine in held:
            run = committed.runs.get(mine.key.run_id)
            if run is not None and name in run.members and run.members[name].is_over:
                over.append(mine.key.run_id)
        acknowledged = tuple(
            record.key.run_id for record in sync.ended if _is_committed(committed, name, record.key)
        )
        term = Term(committed.epoch, committed.nodes[name].revision)
        if term < sync.last:
            return  # the raise of the epoch or revision is not committed yet
        self.say(
            SendReply(
                Reply(
                    node=name,
                    incarnation=sync.incarnation,
                    sequence=sync.sequence,
                    term=term,
                    desired_digest=digest,
                    desired=None if digest == sync.desired_digest else desired,
                    acknowledged=acknowledged,
                    over=tuple(over),
                    lease=self.renew(now, sync, [d.key.run_id for d in desired]),
                    witnesses=state.witnesses,
                )
            )
        )

    def renew(self, now: float, sync: Sync, runs: Iterable[RunId]) -> Lease | None:
        state, name = self.state, sync.node
        if not rules.may_renew(state.confirmed_at, now, state.timing):
            return None
        hearing = state.hearings[name]
        recent = list(hearing.renewals.items())[-REMEMBERED_REPLIES + 1 :]
        hearing = replace(hearing, renewals={**dict(recent), sync.sequence: now})
        self.change(
            hearings=having(state.hearings, name, hearing), renewed=having(state.renewed, name, now)
        )
        orphans = [run_id for place, run_id in state.committed.orphans if place == name]
        return Lease(duration_s=state.timing.lease_s, covers=frozenset([*runs, *orphans]))

    def abort_slow_gangs(self, now: float) -> None:
        waiting = {
            run_id: since
            for run_id, since in self.state.preparing_from.items()
            if self.state.reserved.runs[run_id].status is RunStatus.PREPARING
        }
        self.change(preparing_from=waiting)
        for run_id, since in waiting.items():
            run = self.state.reserved.runs[run_id]
            if run.stop is None and now - since > self.state.timing.prepare_s:
                self.write(StopRun(run.key.run_id, StopReason.ABORT))

    def judge_silence(self, now: float) -> None:
        """Say which nodes are late; lose one only with witnesses and only its fenced runs."""
        state = self.state
        for name, node in state.reserved.nodes.items():
            hearing = state.hearings.get(name)
            heard = hearing.at if hearing is not None else float("-inf")
            since = max(state.window_from, heard, state.renewed.get(name, float("-inf")))
            if node.status is not NodeStatus.UP or not rules.window_passed(
                since, now, state.timing
            ):
                continue
            fenced = [
                run
                for run in self.state.reserved.runs_on(name)
                if self.state.reserved.jobs[run.key.job].request.fence is Fence.LEASE
            ]
            self.alarm(f"{name} is late: its runs stay as they are")
            if not fenced:
                continue
            chains = [
                other.chain
                for witness in state.witnesses
                if witness != name
                and (other := state.hearings.get(witness)) is not None
                and other.chain is not None
            ]
            if rules.is_witnessed(chains, len(state.witnesses), now, state.timing):
                self.write(SetNode(name, NodeStatus.LOST, "silent, fenced"))
                for run in fenced:
                    self.write(MemberOver(run.key.run_id, name, presumed="fenced"))
            else:
                self.alarm(f"quorum lost: {name} is silent and too few witnesses are renewed")

    def node_down(self, name: NodeName) -> None:
        if name not in self.state.reserved.nodes:
            return
        self.write(SetNode(name, NodeStatus.DOWN, "confirmed by an operator"))
        for run in self.state.reserved.runs_on(name):
            self.write(MemberOver(run.key.run_id, name, presumed="confirmed down"))
        for place, run_id in list(self.state.reserved.orphans):
            if place == name:
                self.write(OrphanOver(name, run_id, None))

    # -- jobs ----------------------------------------------------------------------------------

    def submit(self, token: int, request: Request) -> None:
        reserved = self.state.reserved
        job = reserved.requests.get((request.user, request.request_id))
        if job is None:
            job = reserved.next_job
            self.write(Submit(request=request, job=job))
        elif reserved.jobs[job].request != request:
            self.say(Answer(token, refused="Conflict: the request id stands for another job"))
            return
        self.answer_after_commit(Answer(token, job=job))

    def submit_all(self, event: BatchAsked) -> None:
        """Several jobs under request ids that are all new, or all known with the same content."""
        reserved = self.state.reserved
        known = [reserved.requests.get((r.user, r.request_id)) for r in event.requests]
        first = reserved.next_job
        if all(job is None for job in known):
            if event.first is not None and event.first != first:
                self.say(Answer(event.token, unknown=True))
                return
            made = [
                Submit(request=request, job=JobId(first + k))
                for k, request in enumerate(event.requests)
            ]
            self.write(*made, *map(Attach, event.rows))
            self.answer_after_commit(Answer(event.token, job=first))
            return
        same = all(
            job is not None and reserved.jobs[job].request == request
            for job, request in zip(known, event.requests, strict=True)
        )
        if not same:
            self.say(Answer(event.token, refused="Conflict: the request id stands for other jobs"))
            return
        self.answer_after_commit(Answer(event.token, job=known[0]))

    def answer_after_commit(self, answer: Answer) -> None:
        """Whatever an answer rests on may still be in flight, so it waits for a later commit."""
        self.change(queue_answers=(*self.state.queue_answers, answer))

    def cancel(self, token: int, job: JobId, why: str) -> None:
        row = self.state.reserved.jobs.get(job)
        if row is None:
            self.say(Answer(token, refused="NotFound"))
            return
        if row.status is JobStatus.PENDING:
            self.write(CancelJob(job, why))
        elif (run := self.state.reserved.live_run(job)) and run.stop is not StopReason.CANCEL:
            self.write(StopRun(run.key.run_id, StopReason.CANCEL, why=why))
        self.answer_after_commit(Answer(token, job=job))

    def requeue(self, token: int, job: JobId) -> None:
        row = self.state.reserved.jobs.get(job)
        if row is None:
            self.say(Answer(token, refused="NotFound"))
            return
        if row.status.is_terminal:
            self.say(Answer(token, job=job, refused=f"it is {row.status.value}"))
            return
        self.stop(job, StopReason.REQUEUE, None)
        self.answer_after_commit(Answer(token, job=job))

    def place(self, event: PlaceAsked) -> None:
        if self.recovery is None:
            self.recovery = recovering(self.state, event.now)
        reason = self.recovery or _unplaceable(self.state.reserved, event.job) or self.misfit(event)
        if reason:
            self.say(Refused(event.job, reason))
            return
        row: Job = self.state.reserved.jobs[event.job]
        key = RunKey(event.job, RunNumber(row.runs + 1), event.run_id)
        self.write(Assign(key=key, shares=event.shares))
        if len(event.shares) > 1:
            self.change(preparing_from=having(self.state.preparing_from, event.run_id, event.now))

    def misfit(self, event: PlaceAsked) -> str:
        """Verify a plan against fresh state."""
        ledger, timing = self.state.reserved, self.state.timing
        for share in event.shares:
            node = ledger.nodes.get(share.node)
            hearing = self.state.hearings.get(share.node)
            if node is None or node.status is not NodeStatus.UP or hearing is None:
                return f"{share.node} is not up"
            if event.now - hearing.at > timing.witness_beats * timing.beat_s:
                return f"{share.node} is late"
            if not set(share.gpus) <= set(node.gpus):
                return f"{share.node} has no such GPU"
            if set(share.gpus) & ledger.busy(share.node):
                return f"{share.node} is busy"
        return ""

    def stop(self, job: JobId, reason: StopReason, at: int | None) -> None:
        run = self.state.reserved.live_run(job)
        if run is not None and run.stop is None:
            self.write(StopRun(run.key.run_id, reason, at))

    def suspend(self, event: SuspendAsked) -> None:
        ledger, job = self.state.reserved, event.job
        row, run = ledger.jobs.get(job), ledger.live_run(job)
        wanted = JobStatus.RUNNING if event.suspended else JobStatus.SUSPENDED
        if row is None or row.status is not wanted or run is None:
            return
        if not event.suspended and run.gives_way:
            for name, member in run.members.items():
                if not member.is_over and set(member.gpus) & ledger.busy(name, run.key.run_id):
                    self.say(Refused(job, f"its GPUs of {name} are not free"))
                    return
        self.write(SuspendRun(run.key.run_id, event.suspended, event.gives_way))


def _is_committed(ledger: Ledger, node: NodeName, key: RunKey) -> bool:
    run = ledger.runs.get(key.run_id)
    if run is not None and node in run.members:
        return run.members[node].exit is not None
    return (node, key.run_id) in ledger.history
