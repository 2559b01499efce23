"""The simulated world: event queue, clocks, network, leaders, clients, a simple round, and faults.

Every random choice follows from one seed, so a seed always gives the same log. The round is simple
on purpose (first fit, a few random preemptions): the protocol must be safe under any round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dlsched.protocol import agent, leader
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import JobStatus, NodeStatus, Request
from dlsched.protocol.timing import Timing
from tests.protocol.simulation.agenda import Agenda
from tests.protocol.simulation.invariants import Checker
from tests.protocol.simulation.node import CrashWhen, Disk, SimNode
from tests.protocol.simulation.scenario import Behaviour, Fault, Faults
from tests.protocol.simulation.truth import Database, Process

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
        """The name under which this process leads, unique for each process."""
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
        can_fence: bool = True,
        hooks: bool = False,
        unrest: float = 0.0,
        resumes: bool = True,
        gives_way: float = 0.0,
        whole_runs: bool = False,
        joins: Mapping[str, float] | None = None,
        power_cycles: bool = False,
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
        self.executions: list[tuple[m.NodeName, m.RunId]] = []
        self.ever_reserved: dict[m.NodeName, set[m.RunId]] = {}
        self.database = Database()
        self.checker = Checker(self)
        self.crash, self.persists = crash, 0
        self.points: list[str] = []
        self.unrest, self.resumes, self.gives_way = unrest, resumes, gives_way
        self.whole_runs = whole_runs  # the round leaves a run its GPUs until all of it is over
        self.nodes = {
            m.NodeName(f"n{k}"): SimNode(
                self,
                m.NodeName(f"n{k}"),
                gpus,
                can_freeze=can_freeze,
                can_fence=can_fence,
                hooks=hooks,
            )
            for k in range(1, nodes + 1)
        }
        self.leaders = {f"d{k}": LeaderBox(f"d{k}") for k in range(1, leaders + 1)}
        self.power_cycles = power_cycles  # the site has a fencing command
        self.switching: set[m.NodeName] = set()
        self.joins = joins or {}  # when a node's agent starts for the first time, if not at once
        self.jobs = list(jobs)
        self.behaviours: dict[m.RequestId, Behaviour] = {r.request_id: b for r, b in self.jobs}
        self.by_job: dict[m.JobId, Behaviour] = {}
        self.asked: dict[int, Request] = {}
        self.tokens = self.run_ids = 0
        self.alarms: list[str] = []
        self.answers: dict[m.RequestId, m.JobId] = {}
        self._begin()

    def _begin(self) -> None:
        for name in self.leaders:
            self.start_leader(name)
        for name, node in self.nodes.items():
            self.after(self.joins.get(name, self.rng.uniform(0, 1)), node.start_agent)
        for k, (request, _) in enumerate(self.jobs):
            self.after(3.0 + 0.5 * k, partial(self.submit, request))
        self.after(4.0, self.round)
        if not all(node.inventory.can_fence for node in self.nodes.values()):
            self.after(20.0, self.look_after_doubts)
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
        """Advance until every job has ended and no process is left, or to a limit in true time."""
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

    def tell(self, party: str, text: str, job: m.JobId | None = None) -> None:
        """Add one line to the log."""
        self.lines.append((self.now, party, text))

    def story(self, *subjects: object) -> str:
        """The last log lines about some jobs and nodes, and about faults."""
        nodes = {str(s) for s in subjects if str(s) in self.nodes}
        others = [str(s) for s in subjects if str(s) not in self.nodes]
        jobs = {mark for s in others for mark in (f" {s}.", f"'{s}-")}
        kept = [
            f"{time:9.3f} {party:10} {text}"
            for time, party, text in self.lines
            if party in nodes or party == "fault" or any(mark in f" {text}" for mark in jobs)
        ]
        rows = [
            f"job {s}: " + "; ".join(self.database.ledger.jobs[m.JobId(s)].story[-STORY_MOVES:])
            for s in subjects
            if isinstance(s, int) and s in self.database.ledger.jobs
        ]
        return "\n".join([*kept[-STORY_LINES:], *rows])

    # -- the network ------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        """Whether messages from one party to another are lost now."""
        return any(
            self.cuts.get(pair, 0.0) > self.now
            for pair in ((source, target), (source, "*"), ("*", target))
        )

    def send(self, source: str, target: str, message: object) -> None:
        """Send a message between machines; it may be lost, doubled, delayed or overtaken."""
        if self.is_cut(source, target) or self.rng.random() < self.network.lost:
            return
        copies = 2 if self.rng.random() < self.network.doubled else 1
        for _ in range(copies):
            delay = self.network.delay_s * self.rng.uniform(0.5, 1.5)
            if self.rng.random() < self.network.slow:
                delay = self.rng.uniform(0, self.network.slow_s)
            self.after(delay, lambda: self.arrive(target, message))

    def send_to_leaders(self, source: str, sync: m.Sync) -> None:
        """Send a sync to all daemons; only the leader answers."""
        for name in self.leaders:
            self.send(source, name, sync)

    def arrive(self, target: str, message: object) -> None:
        """Deliver a message."""
        if target in self.leaders:
            assert isinstance(message, m.Sync)
            self.to_leader(target, lambda: self.sync_event(target, message))
            return
        node = self.nodes[m.NodeName(target)]
        match message:
            case m.Reply():
                node.to_agent(lambda: agent.ReplyArrived(node.clock(), message))
            case m.Nudge():
                node.to_agent(lambda: agent.Nudged(node.clock(), message))
            case m.WitnessQuery():
                node.to_agent(lambda: agent.WitnessAsked(node.clock(), message))
            case m.WitnessAnswer():
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

    def daemons(self) -> set[str]:
        """The present daemon processes."""
        return {box.session for box in self.leaders.values() if box.state is not None}

    def daemons_that_know(self, node: m.NodeName, run_id: m.RunId) -> set[str]:
        """The present daemon processes that a node has told of a run."""
        states = [box.state for box in self.leaders.values() if box.state is not None]
        told = [(state.name, state.last_syncs.get(node)) for state in states]
        return {
            name
            for name, last in told
            if last is not None and any(held.key.run_id == run_id for held in last.held)
        }

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
        self.after_local(name, self.timing.tick_s, lambda: self.leader_beat(name, generation))

    def to_leader(self, name: str, event: Callable[[], leader.Event]) -> None:
        """Deliver to the present daemon process."""
        box = self.leaders[name]
        generation = box.generation

        def deliver() -> None:
            if box.state is not None and box.generation == generation:
                self.leader_event(name, event())

        if box.state is not None:
            self.when_awake(name, deliver)

    def leader_event(self, name: str, event: leader.Event) -> None:
        """Do one step of a leader and carry out its commands."""
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
            case leader.PlacementRefused(job=job, reason=reason):
                self.tell(name, f"{job}. not placed: {reason}")
            case leader.PowerOff() if self.power_cycles:
                self.power_cycle(name, command)
            case leader.Contend() | leader.Confirm() | leader.Persist():
                self.ask_database(name, box, command)

    def power_cycle(self, name: str, asked: leader.PowerOff) -> None:
        """Switch a node off, and on again, and answer at some time after it was off."""
        node = self.nodes[asked.node]
        if asked.node in self.switching:
            return
        self.switching.add(asked.node)
        off = self.rng.uniform(0.5, 20.0)

        def answer() -> None:
            self.switching.discard(asked.node)
            event = lambda: leader.NodeOff(self.clock(name), asked.node, asked)  # noqa: E731
            self.to_leader(name, event)

        self.after(off, node.power_off)
        self.after(off + self.rng.uniform(0.5, 30.0), node.power_on)
        self.after(off + self.rng.uniform(0.0, 60.0), answer)

    def ask_database(
        self, name: str, box: LeaderBox, command: leader.Contend | leader.Confirm | leader.Persist
    ) -> None:
        """Send a request to the database; its answers arrive in order."""
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

    def database_does(  # one answer a case
        self,
        name: str,
        session: str,
        command: leader.Contend | leader.Confirm | leader.Persist,
    ) -> Callable[[], leader.Event] | None:
        """Carry out a request in the database; returns the answer's event, None without one."""
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
                    self.checker.database_changed(command.writes)
                if when is not None:
                    self.kill_leader(name)
                    self.after(7.0, lambda: self.start_leader(name))
                    return None
                if done:
                    return lambda: leader.Persisted(self.clock(name), number_)
                return lambda: leader.Deposed(self.clock(name))

    def persist_point(self, label: str) -> CrashWhen | None:
        """Count a durable write; whether its party crashes before or after it."""
        self.persists += 1
        self.points.append(label)
        if self.crash is not None and self.crash[0] == self.persists:
            self.tell("fault", f"crash {self.crash[1]} persist {self.persists} ({label})")
            return self.crash[1]
        return None

    # -- clients ----------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Submit a job, and again under the same request id until there is an answer."""
        if request.request_id in self.answers:
            return
        self.tokens += 1
        token = self.tokens
        self.asked[token] = request
        rows = self.database.ledger
        known = rows.requests.get((request.user, request.request_id))
        if known is not None and rows.jobs[known].status.is_terminal and self.database.available:
            self.answer(leader.Answer(token, job=known))  # a daemon looks for what has left memory
            return
        for name in self.leaders:
            if not self.is_cut(CLIENT, name):
                self.to_leader(name, partial(self.submit_event, name, token, request))
        self.after(6.0, lambda: self.submit(request))

    def submit_event(self, name: str, token: int, request: Request) -> leader.Event:
        """The event of a submission; every second one is a batch."""
        if token % 2:
            return leader.BatchAsked(self.clock(name), token, (request,))
        return leader.SubmitAsked(self.clock(name), token, request)

    def sync_event(self, name: str, sync: m.Sync) -> leader.Event:
        """The event of a sync, with the rows of runs that have left the leader's memory."""
        box, rows = self.leaders[name], self.database.ledger
        named = [*(held.key for held in sync.held or ()), *(end.key for end in sync.ended)]
        known = box.state.reserved.runs if box.state is not None else {}
        recalled = [rows.runs[k.run_id] for k in named if k.run_id in rows.runs]
        self.run_ids += 1
        return leader.SyncArrived(
            self.clock(name),
            sync,
            tuple((rows.jobs[r.key.job], r) for r in recalled if r.key.run_id not in known),
            {e.key.job: m.RunId(f"{e.key.job}-next{self.run_ids}") for e in sync.ended},
        )

    def requeue_event(self, name: str, job: m.JobId) -> leader.Event:
        """The event of a request to queue a job again, which may have ended long ago."""
        ledger = self.database.ledger
        row, runs = ledger.jobs.get(job), ledger.runs_of_job(job)
        ended = row is not None and row.status.is_terminal
        recalled = (row, runs[-1] if runs else None) if row is not None and ended else None
        self.checker.requeue_asked(job)
        return leader.RequeueAsked(self.clock(name), -1, job, recalled)

    def forget_event(self, name: str) -> leader.Event:
        """The event that drops ended and answered jobs from a daemon's memory."""
        state = self.leaders[name].state
        jobs = state.committed.jobs if state is not None else {}
        answered = set(self.answers.values())
        over = [job for job, row in jobs.items() if row.status.is_terminal and job in answered]
        return leader.ForgetAsked(self.clock(name), tuple(over))

    def answer(self, answer: leader.Answer) -> None:
        """Note the answer to a client."""
        request = self.asked.get(answer.token)
        if request is None or answer.unknown or answer.job is None:
            return
        self.answers.setdefault(request.request_id, answer.job)
        self.checker.answered_job(answer.job, request)

    def behaviour(self, job: m.JobId) -> Behaviour:
        """How a job behaves."""
        row = self.database.ledger.jobs.get(job)
        if row is not None:
            self.by_job[job] = self.behaviours[row.request.request_id]
        return self.by_job.get(job, Behaviour())

    def rendezvous(self, run_id: m.RunId) -> None:
        """Let ranks work if all of them are present and none is frozen."""
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
        """Let every process that believes to lead make its decisions."""
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
        self, name: str, job: m.JobId, run_id: m.RunId, shares: tuple[m.Share, ...]
    ) -> leader.Event:
        """The event of a placement.

        Args:
            name: of the daemon.
            job: the job.
            run_id: of its next run.
            shares: the GPUs.
        """
        return leader.PlaceAsked(self.clock(name), job, run_id, shares)

    def suspend_event(
        self, name: str, job: m.JobId, suspended: bool, gives_way: bool = False
    ) -> leader.Event:
        """The event of a suspension or resumption.

        Args:
            name: of the daemon.
            job: the job.
            suspended: suspend it; else resume it.
            gives_way: other runs may use its GPUs meanwhile.
        """
        return leader.SuspendAsked(self.clock(name), job, suspended, gives_way)

    def down_event(self, name: str, node: m.NodeName) -> leader.Event:
        """The event of an operator's confirmation that a node is down."""
        return leader.DownConfirmed(self.clock(name), node)

    def look_after_doubts(self) -> None:
        """As an operator: end what is left of the runs that are in doubt, then confirm that.

        What a node cannot kill is left alone until it is gone.
        """
        for name, box in self.leaders.items():
            if box.state is None or box.state.role is not leader.Role.LEADING:
                continue
            for node, run_id in sorted(box.state.in_doubt):
                run = box.state.reserved.runs.get(run_id)
                if run is not None:
                    self.nodes[node].end_escaped()
                    looked_at = {
                        each for each in box.state.unsettled(run.key.job) if each[0] == node
                    }
                    self.to_leader(name, partial(self.over_event, name, frozenset(looked_at)))
        self.after(self.rng.uniform(10.0, 40.0), self.look_after_doubts)

    def over_event(self, name: str, places: frozenset[tuple[m.NodeName, m.RunId]]) -> leader.Event:
        """The event of an operator's confirmation that no process is left at some places."""
        return leader.OverConfirmed(self.clock(name), places)

    def decide(self, name: str, state: leader.LeaderState) -> None:
        """Place jobs that fit; sometimes preempt, suspend or resume one."""
        ledger, taken = state.reserved, set[tuple[m.NodeName, str]]()
        for job in sorted(ledger.jobs):
            row = ledger.jobs[job]
            if row.status is JobStatus.PENDING:
                shares = self.first_fit(state, row.request, taken)
                if shares:
                    run_id = m.RunId(f"{job}-{self.rng.getrandbits(32):08x}")
                    self.to_leader(name, partial(self.place_event, name, job, run_id, shares))
            elif row.status is JobStatus.RUNNING and self.rng.random() < self.unrest:
                self.disturb(name, job)
            elif row.status is JobStatus.SUSPENDED and self.resumes and self.rng.random() < 0.2:
                self.to_leader(name, partial(self.suspend_event, name, job, False))

    def disturb(self, name: str, job: m.JobId) -> None:
        """Suspend or stop a running job."""
        kind = self.rng.choice([*m.StopReason][1:3])
        if self.rng.random() < 0.5:
            gives_way = self.gives_way and self.rng.random() < self.gives_way
            self.to_leader(name, partial(self.suspend_event, name, job, True, bool(gives_way)))
        else:
            self.to_leader(name, lambda: leader.StopAsked(self.clock(name), job, kind))

    def first_fit(
        self, state: leader.LeaderState, request: Request, taken: set[tuple[m.NodeName, str]]
    ) -> tuple[m.Share, ...]:
        """GPUs for a gang on distinct nodes; empty when it does not fit."""
        shares: list[m.Share] = []
        names = sorted(state.reserved.nodes)
        self.rng.shuffle(names)
        for need in request.gang:
            for name in names:
                node = state.reserved.nodes[name]
                if node.status is not NodeStatus.UP or any(s.node == name for s in shares):
                    continue
                busy = state.reserved.busy(name, share=request.gpu_share)
                if self.whole_runs:
                    live = (run for run in state.reserved.runs.values() if not run.is_over)
                    busy |= {g for r in live if name in r.members for g in r.members[name].gpus}
                free = [g for g in node.gpus if g not in busy and (name, g) not in taken]
                if len(free) >= need:
                    shares.append(m.Share(node=name, gpus=tuple(free[:need])))
                    break
            else:
                return ()
        taken.update((share.node, gpu) for share in shares for gpu in share.gpus)
        return tuple(shares)

    # -- faults -----------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:  # one case a kind
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
                node = self.nodes[m.NodeName(fault.target)]
                node.kill_agent()
                self.at(end, node.start_agent)
            case "copy records":
                node = self.nodes[m.NodeName(fault.target)]
                node.copy = Disk(record=node.disk.record, runs=dict(node.disk.runs))
            case "lose records" | "old records":
                node = self.nodes[m.NodeName(fault.target)]
                node.kill_agent()
                node.lose_records(node.copy if fault.kind == "old records" else Disk())
                self.at(end, node.start_agent)
            case "crash keeper":
                node = self.nodes[m.NodeName(fault.target)]
                for run_id in list(node.keepers)[:1]:
                    node.kill_keeper(run_id)
            case "pause keeper":
                node = self.nodes[m.NodeName(fault.target)]
                for run_id in list(node.keepers)[:1]:
                    self.asleep[node.keeper_name(run_id)] = end
            case "reboot":
                node = self.nodes[m.NodeName(fault.target)]
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
                self.confirm_down(m.NodeName(fault.target))
            case "cancel" | "preempt" | "suspend" | "resume" | "give way" | "requeue":
                self.ask(fault)
            case _:
                raise ValueError(fault.kind)

    def restore(self) -> None:
        """Stop the daemons, replace the database by its backup, and start the daemons."""
        for name in self.leaders:
            self.kill_leader(name)
        self.database.restore()
        self.checker.restored()
        for name in self.leaders:
            self.after(3.0, partial(self.start_leader, name))

    def confirm_down(self, node: m.NodeName) -> None:
        """Let an operator confirm that a node is down; the checker notes when that is wrong."""
        if any(process.node == node for process in self.processes):
            self.checker.lied.add(node)
        for name in self.leaders:
            self.to_leader(name, partial(self.down_event, name, node))

    def ask(self, fault: Fault) -> None:
        """Let a user or the round make a request."""
        job = m.JobId(int(fault.target))
        for name in self.leaders:

            def event(n: str = name) -> leader.Event:
                now = self.clock(n)
                match fault.kind:
                    case "cancel":
                        return leader.CancelAsked(now, -1, job)
                    case "preempt":
                        return leader.StopAsked(now, job, m.StopReason.PREEMPT)
                    case "requeue":
                        return self.requeue_event(n, job)
                    case _:
                        gives_way = fault.kind == "give way"
                        suspended = gives_way or fault.kind == "suspend"
                        return leader.SuspendAsked(now, job, suspended, gives_way)

            self.to_leader(name, event)
