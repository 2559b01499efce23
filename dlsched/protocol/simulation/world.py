"""The simulated world: agenda, clocks, network, leaders, clients, a simple round, and faults.

Everything is drawn from one seed; the same seed gives the same story. The round is deliberately
naive (first fit, a few random preemptions): the protocol has to be safe under any round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from dlsched.protocol import agent, leader
from dlsched.protocol.ledger import JobStatus, NodeStatus, Request
from dlsched.protocol.messages import (
    JobId,
    NodeName,
    Nudge,
    Reply,
    RequestId,
    RunId,
    Share,
    StopReason,
    Sync,
    WitnessAnswer,
    WitnessQuery,
)
from dlsched.protocol.simulation.agenda import Agenda
from dlsched.protocol.simulation.database import Database
from dlsched.protocol.simulation.faults import Fault, Faults
from dlsched.protocol.simulation.invariants import Checker
from dlsched.protocol.simulation.node import CrashWhen, SimNode
from dlsched.protocol.simulation.processes import Behaviour, Process
from dlsched.protocol.timing import Timing

__all__ = ["World"]

CLIENT, DATABASE = "client", "database"
STORY_LINES, STORY_MOVES = 60, 12
MAX_STEPS = 100_000


class LeaderBox:
    """A daemon's process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.state: leader.LeaderState | None = None

    @property
    def session(self) -> str:
        """The name under which this process leads: unique per process."""
        return f"{self.name}#{self.generation}"


class World(Agenda):
    """Daemons, a database, nodes and clients under faults."""

    def __init__(
        self,
        *,
        seed: int = 0,
        nodes: int = 2,
        gpus: int = 2,
        leaders: int = 1,
        jobs: Sequence[tuple[Request, Behaviour]] = (),
        faults: Faults | None = None,
        timing: Timing | None = None,
        crash: tuple[int, CrashWhen] | None = None,
        can_freeze: bool = True,
        unrest: float = 0.0,
        resumes: bool = True,
        gives_way: float = 0.0,
    ) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.timing = timing or Timing()
        self.faults = faults or Faults()
        super().__init__(self.faults.clock_rates)
        self.steps = 0
        self.lines: list[tuple[float, str, str]] = []
        self.network = self.faults.network
        self.cuts: dict[tuple[str, str], float] = {}
        self.processes: list[Process] = []
        self.executions: list[tuple[NodeName, RunId]] = []
        self.ever_reserved: dict[NodeName, set[RunId]] = {}
        self.database = Database()
        self.checker = Checker(self)
        self.crash, self.persists = crash, 0
        self.points: list[str] = []
        self.unrest, self.resumes, self.gives_way = unrest, resumes, gives_way
        self.nodes = {
            NodeName(f"n{k}"): SimNode(self, NodeName(f"n{k}"), gpus, can_freeze=can_freeze)
            for k in range(1, nodes + 1)
        }
        self.leaders = {f"d{k}": LeaderBox(f"d{k}") for k in range(1, leaders + 1)}
        self.jobs = list(jobs)
        self.behaviours: dict[RequestId, Behaviour] = {r.request_id: b for r, b in self.jobs}
        self.by_job: dict[JobId, Behaviour] = {}
        self.asked: dict[int, Request] = {}
        self.tokens = 0
        self.alarms: list[str] = []
        self.answers: dict[RequestId, JobId] = {}
        self._begin()

    def _begin(self) -> None:
        for name in self.leaders:
            self.start_leader(name)
        for node in self.nodes.values():
            self.after(self.rng.uniform(0, 1), node.start_agent)
        for k, (request, _) in enumerate(self.jobs):
            self.after(3.0 + 0.5 * k, partial(self.submit, request))
        self.after(4.0, self.round)
        for fault in self.faults.faults:
            self.at(fault.at, partial(self.strike, fault))

    # -- time -------------------------------------------------------------------------------------

    def run(self, until: float) -> World:
        """Advance to a true time."""
        while (what := self.next_until(until)) is not None:
            self.steps += 1
            if self.steps > MAX_STEPS:
                self.checker.fail("liveness", "the world does not come to rest")
            what()
        self.now = until
        return self

    def run_until_done(self, limit: float) -> World:
        """Advance until every job has come to its end and the nodes are empty, or to a limit."""
        while self.now < limit:
            self.run(self.now + 5.0)
            jobs = self.database.ledger.jobs.values()
            late = self.faults.faults and self.now < max(f.at + f.for_s for f in self.faults.faults)
            if late or len(self.answers) < len(self.jobs) or self.processes:
                continue
            if all(job.status.is_terminal for job in jobs):
                break
        return self

    # -- the story --------------------------------------------------------------------------------

    def tell(self, who: str, text: str, job: JobId | None = None) -> None:
        """One line of the story."""
        self.lines.append((self.now, who, text))

    def story(self, *subjects: object) -> str:
        """The last lines about some jobs and nodes, and all faults."""
        nodes = {str(s) for s in subjects if str(s) in self.nodes}
        others = [str(s) for s in subjects if str(s) not in self.nodes]
        jobs = {mark for s in others for mark in (f" {s}.", f"'{s}-")}
        kept = [
            f"{time:9.3f} {who:10} {text}"
            for time, who, text in self.lines
            if who in nodes or who == "fault" or any(mark in f" {text}" for mark in jobs)
        ]
        rows = [
            f"job {s}: " + "; ".join(self.database.ledger.jobs[JobId(s)].story[-STORY_MOVES:])
            for s in subjects
            if isinstance(s, int) and s in self.database.ledger.jobs
        ]
        return "\n".join([*kept[-STORY_LINES:], *rows])

    # -- the network ------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one party to another just now."""
        return any(
            self.cuts.get(pair, 0.0) > self.now
            for pair in ((source, target), (source, "*"), ("*", target))
        )

    def send(self, source: str, target: str, message: object) -> None:
        """Send a message between machines: it may be lost, doubled, late or overtaken."""
        if self.is_cut(source, target) or self.rng.random() < self.network.lost:
            return
        copies = 2 if self.rng.random() < self.network.doubled else 1
        for _ in range(copies):
            delay = self.network.delay_s * self.rng.uniform(0.5, 1.5)
            if self.rng.random() < self.network.slow:
                delay = self.rng.uniform(0, self.network.slow_s)
            self.after(delay, lambda: self.arrive(target, message))

    def send_to_leaders(self, source: str, sync: Sync) -> None:
        """An agent talks to whoever leads: it asks all daemons, a standby says nothing."""
        for name in self.leaders:
            self.send(source, name, sync)

    def arrive(self, target: str, message: object) -> None:
        """Deliver a message."""
        if target in self.leaders:
            assert isinstance(message, Sync)
            self.to_leader(target, lambda: self.sync_event(target, message))
            return
        node = self.nodes[NodeName(target)]
        match message:
            case Reply():
                node.to_agent(lambda: agent.ReplyArrived(node.clock(), message))
            case Nudge():
                node.to_agent(lambda: agent.Nudged(node.clock(), message))
            case WitnessQuery():
                node.to_agent(lambda: agent.WitnessAsked(node.clock(), message))
            case WitnessAnswer():
                node.to_agent(lambda: agent.WitnessAnswered(node.clock(), message))

    # -- leaders ----------------------------------------------------------------------------------

    def start_leader(self, name: str) -> None:
        """Start a daemon's process."""
        box = self.leaders[name]
        if box.state is not None:
            return
        box.generation += 1
        box.state = leader.LeaderState(name=box.session, timing=self.timing)
        self.tell(name, "daemon starts")
        self.leader_beat(name, box.generation)

    def kill_leader(self, name: str) -> None:
        """Kill -9 a daemon."""
        box = self.leaders[name]
        if box.state is not None:
            self.tell(name, "daemon dies")
        box.state = None
        box.generation += 1

    def leader_beat(self, name: str, generation: int) -> None:
        """A daemon's timer."""
        box = self.leaders[name]
        if box.generation != generation or box.state is None:
            return
        self.to_leader(name, lambda: leader.Tick(self.clock(name)))
        self.after_local(name, self.timing.beat_s / 2, lambda: self.leader_beat(name, generation))

    def to_leader(self, name: str, event: Callable[[], leader.Event]) -> None:
        """Deliver to the daemon process as it is now."""
        box = self.leaders[name]
        generation = box.generation

        def deliver() -> None:
            if box.state is not None and box.generation == generation:
                self.leader_event(name, event())

        if box.state is not None:
            self.when_awake(name, deliver)

    def leader_event(self, name: str, event: leader.Event) -> None:
        """One step of a leader and what it commands."""
        box = self.leaders[name]
        assert box.state is not None
        generation = box.generation
        box.state, commands = leader.step(box.state, event)
        for command in commands:
            if box.generation != generation:
                return
            self.do_leader(name, box, command)

    def do_leader(self, name: str, box: LeaderBox, command: leader.Command) -> None:
        """Carry out one command of a leader."""
        match command:
            case leader.SendReply(reply=reply):
                self.send(name, reply.node, reply)
            case leader.SendNudge(nudge=nudge):
                self.send(name, nudge.node, nudge)
            case leader.Answer():
                self.answer(command)
            case leader.Alarm(text=text):
                self.alarms.append(text)
                self.tell(name, f"alarm: {text}")
            case leader.Refused(job=job, reason=reason):
                self.tell(name, f"{job}. not placed: {reason}")
            case leader.Contend() | leader.Confirm() | leader.Persist():
                self.ask_database(name, box, command)

    def ask_database(
        self, name: str, box: LeaderBox, command: leader.Contend | leader.Confirm | leader.Persist
    ) -> None:
        """A request to the database and its answer, over one connection: in order."""
        generation, session = box.generation, box.session

        def reach() -> None:
            if self.is_cut(name, DATABASE) or not self.database.available:
                if isinstance(command, leader.Persist) and box.generation == generation:
                    number = command.number
                    self.to_leader(name, lambda: leader.PersistFailed(self.clock(name), number))
                return
            event = self.database_does(name, session, command)
            if event is not None and box.generation == generation:
                self.after(
                    0.005,
                    lambda: self.to_leader(name, event) if box.generation == generation else None,
                )

        self.after(0.005, reach)

    def database_does(  # noqa: PLR0911  # one answer a case
        self,
        name: str,
        session: str,
        command: leader.Contend | leader.Confirm | leader.Persist,
    ) -> Callable[[], leader.Event] | None:
        """What the database makes of a request; None is no answer."""
        base = self.database
        match command:
            case leader.Contend(asked_at=asked_at):
                holder, _, number = base.leader.partition("#")
                alive = holder in self.leaders and str(self.leaders[holder].generation) == number
                found = base.contend(session, self.now, alive)
                if found is None:
                    return None
                self.tell(name, f"leads epoch {found.epoch}")
                self.checker.database_changed()
                return lambda: leader.Elected(self.clock(name), asked_at, found)
            case leader.Confirm(asked_at=asked_at):
                if base.confirm(session, self.now):
                    return lambda: leader.Confirmed(self.clock(name), asked_at)
                return lambda: leader.Deposed(self.clock(name))
            case leader.Persist(number=number_):
                when = self.persist_point(f"{name}/database")
                done = when != "before" and base.write(session, command)
                if done:
                    for write in command.writes:
                        self.tell("database", f"{session} {write}")
                    self.checker.database_changed()
                if when is not None:
                    self.kill_leader(name)
                    self.after(7.0, lambda: self.start_leader(name))
                    return None
                if done:
                    return lambda: leader.Persisted(self.clock(name), number_)
                return lambda: leader.Deposed(self.clock(name))

    def persist_point(self, label: str) -> CrashWhen | None:
        """Count a persist; whether its party is to crash before or after it."""
        self.persists += 1
        self.points.append(label)
        if self.crash is not None and self.crash[0] == self.persists:
            self.tell("fault", f"crash {self.crash[1]} persist {self.persists} ({label})")
            return self.crash[1]
        return None

    # -- clients ----------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """A client submits, and again under the same request id until it has an answer."""
        if request.request_id in self.answers:
            return
        self.tokens += 1
        token = self.tokens
        self.asked[token] = request
        for name in self.leaders:
            if not self.is_cut(CLIENT, name):
                self.to_leader(name, partial(self.submit_event, name, token, request))
        self.after(6.0, lambda: self.submit(request))

    def submit_event(self, name: str, token: int, request: Request) -> leader.Event:
        """A submission as it reaches a daemon; several jobs at once now and then."""
        if token % 2:
            return leader.BatchAsked(self.clock(name), token, (request,))
        return leader.SubmitAsked(self.clock(name), token, request)

    def sync_event(self, name: str, sync: Sync) -> leader.Event:
        """A sync with the database's rows for the runs that have left the leader's memory."""
        box, rows = self.leaders[name], self.database.ledger
        told = [*(held.key for held in sync.held or ()), *(end.key for end in sync.ended)]
        known = box.state.reserved.runs if box.state is not None else {}
        recalled = [rows.runs[k.run_id] for k in told if k.run_id in rows.runs]
        return leader.SyncArrived(
            self.clock(name),
            sync,
            tuple((rows.jobs[r.key.job], r) for r in recalled if r.key.run_id not in known),
        )

    def forget_event(self, name: str) -> leader.Event:
        """A daemon's memory is tidied: what has ended and was answered may leave it."""
        state = self.leaders[name].state
        jobs = state.committed.jobs if state is not None else {}
        answered = set(self.answers.values())
        over = [job for job, row in jobs.items() if row.status.is_terminal and job in answered]
        return leader.ForgetAsked(self.clock(name), tuple(over))

    def answer(self, answer: leader.Answer) -> None:
        """A client hears."""
        request = self.asked.get(answer.token)
        if request is None or answer.unknown or answer.job is None:
            return
        self.answers.setdefault(request.request_id, answer.job)
        self.checker.answered_job(answer.job, request)

    def behaviour(self, job: JobId) -> Behaviour:
        """What a job really does."""
        row = self.database.ledger.jobs.get(job)
        if row is not None:
            self.by_job[job] = self.behaviours[row.request.request_id]
        return self.by_job.get(job, Behaviour())

    def rendezvous(self, run_id: RunId) -> None:
        """Ranks work only while all of them are there and none is frozen."""
        mine = [p for p in self.processes if p.desired.key.run_id == run_id]
        if not mine or any(process.frozen for process in mine):
            return
        layout = mine[0].desired.layout
        if any((share.node, run_id) not in self.executions for share in layout):
            return
        for process in mine:
            if process.counting_from is None:
                self.nodes[process.node].count(process)

    # -- the round --------------------------------------------------------------------------------

    def round(self) -> None:
        """Every leader that believes it leads decides something."""
        for name, box in self.leaders.items():
            state = box.state
            if state is None or state.role is not leader.Role.LEADING:
                continue
            if self.asleep.get(name, 0.0) > self.now:
                continue
            self.to_leader(name, partial(self.forget_event, name))
            self.decide(name, state)
        self.after(1.0, self.round)

    def place_event(
        self, name: str, job: JobId, run_id: RunId, shares: tuple[Share, ...]
    ) -> leader.Event:
        """A placement as it reaches a daemon."""
        return leader.PlaceAsked(self.clock(name), job, run_id, shares)

    def suspend_event(
        self, name: str, job: JobId, suspended: bool, gives_way: bool = False
    ) -> leader.Event:
        """A suspension or resumption as it reaches a daemon."""
        return leader.SuspendAsked(self.clock(name), job, suspended, gives_way)

    def down_event(self, name: str, node: NodeName) -> leader.Event:
        """An operator's word as it reaches a daemon."""
        return leader.DownConfirmed(self.clock(name), node)

    def decide(self, name: str, state: leader.LeaderState) -> None:
        """Place what fits; now and then preempt, suspend or resume."""
        ledger, taken = state.reserved, set[tuple[NodeName, str]]()
        for job in sorted(ledger.jobs):
            row = ledger.jobs[job]
            if row.status is JobStatus.PENDING:
                shares = self.first_fit(state, row.request, taken)
                if shares:
                    run_id = RunId(f"{job}-{self.rng.getrandbits(32):08x}")
                    self.to_leader(name, partial(self.place_event, name, job, run_id, shares))
            elif row.status is JobStatus.RUNNING and self.rng.random() < self.unrest:
                self.disturb(name, job)
            elif row.status is JobStatus.SUSPENDED and self.resumes and self.rng.random() < 0.2:
                self.to_leader(name, partial(self.suspend_event, name, job, False))

    def disturb(self, name: str, job: JobId) -> None:
        """Take a running job's GPUs one way or another."""
        kind = self.rng.choice([*StopReason][1:3])
        if self.rng.random() < 0.5:
            gives_way = self.gives_way and self.rng.random() < self.gives_way
            self.to_leader(name, partial(self.suspend_event, name, job, True, bool(gives_way)))
        else:
            self.to_leader(name, lambda: leader.StopAsked(self.clock(name), job, kind))

    def first_fit(
        self, state: leader.LeaderState, request: Request, taken: set[tuple[NodeName, str]]
    ) -> tuple[Share, ...]:
        """GPUs for a gang on distinct nodes, or nothing."""
        shares: list[Share] = []
        names = sorted(state.reserved.nodes)
        self.rng.shuffle(names)
        for need in request.gang:
            for name in names:
                node = state.reserved.nodes[name]
                if node.status is not NodeStatus.UP or any(s.node == name for s in shares):
                    continue
                busy = state.reserved.busy(name, share=request.gpu_share)
                free = [g for g in node.gpus if g not in busy and (name, g) not in taken]
                if len(free) >= need:
                    shares.append(Share(node=name, gpus=tuple(free[:need])))
                    break
            else:
                return ()
        taken.update((share.node, gpu) for share in shares for gpu in share.gpus)
        return tuple(shares)

    # -- faults -----------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:  # noqa: PLR0912  # one case a kind
        """Carry out one fault."""
        self.tell("fault", f"{fault.kind} {fault.target} {fault.other} for {fault.for_s:.1f} s")
        end = self.now + fault.for_s
        match fault.kind:
            case "cut":
                self.cuts[fault.target, fault.other] = end
                self.cuts[fault.other, fault.target] = end
            case "cut one way":
                self.cuts[fault.target, fault.other] = end
            case "crash leader":
                self.kill_leader(fault.target)
                self.at(end, lambda: self.start_leader(fault.target))
            case "crash agent":
                node = self.nodes[NodeName(fault.target)]
                node.kill_agent()
                self.at(end, node.start_agent)
            case "crash keeper":
                node = self.nodes[NodeName(fault.target)]
                for run_id in list(node.keepers)[:1]:
                    node.kill_keeper(run_id)
            case "reboot":
                node = self.nodes[NodeName(fault.target)]
                node.power_off()
                self.at(end, node.power_on)
            case "pause":
                self.asleep[fault.target] = end
            case "database down":
                self.database.available = False
                self.at(end, lambda: setattr(self.database, "available", True))
            case "backup":
                self.database.take_backup()
            case "restore":
                self.restore()
            case "node down":
                self.confirm_down(NodeName(fault.target))
            case "cancel" | "preempt" | "suspend" | "resume" | "give way":
                self.ask(fault)
            case _:
                raise ValueError(fault.kind)

    def restore(self) -> None:
        """Daemons stopped, an older database put in place, daemons started."""
        for name in self.leaders:
            self.kill_leader(name)
        self.database.restore()
        self.checker.restored()
        for name in self.leaders:
            self.after(3.0, partial(self.start_leader, name))

    def confirm_down(self, node: NodeName) -> None:
        """An operator says that nothing runs on a node; the checker knows when that is not so."""
        if any(process.node == node for process in self.processes):
            self.checker.lied.add(node)
        for name in self.leaders:
            self.to_leader(name, partial(self.down_event, name, node))

    def ask(self, fault: Fault) -> None:
        """A user or the round asks for something."""
        job = JobId(int(fault.target))
        for name in self.leaders:

            def event(n: str = name) -> leader.Event:
                now = self.clock(n)
                match fault.kind:
                    case "cancel":
                        return leader.CancelAsked(now, -1, job)
                    case "preempt":
                        return leader.StopAsked(now, job, StopReason.PREEMPT)
                    case _:
                        gives_way = fault.kind == "give way"
                        suspended = gives_way or fault.kind == "suspend"
                        return leader.SuspendAsked(now, job, suspended, gives_way)

            self.to_leader(name, event)
