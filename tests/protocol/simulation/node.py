"""One simulated node: a disk, an agent, keepers and the jobs' processes.

The disk survives every fault. A reboot ends the lease file and all processes. The agent and each
keeper can also die alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, Protocol

from dlsched.protocol import agent, keeper
from dlsched.protocol import messages as m
from dlsched.protocol.agent import AgentRecord, RunRecord
from dlsched.protocol.timing import Timing
from tests.protocol.simulation.invariants import Checker
from tests.protocol.simulation.scenario import COOPERATIVE, Behaviour
from tests.protocol.simulation.truth import Process

CrashWhen = Literal["before", "after"]
FSYNC_S = 0.01
LOCAL_S = 0.002
HOOK_S = 4.0  # how long a hook of the site may take
FAILING_HOOKS = 0.1
TERM_S = 1.0  # from TERM to exit, for a job that obeys
CODES = {"leave": 143, "wrapper": 1}  # with which a job exits then, if not with 0


@dataclass(slots=True, kw_only=True)
class KeeperBox:
    """A live keeper."""

    state: keeper.KeeperState
    process: Process | None = None
    wake: float | None = None
    alive: bool = True
    lost: RunRecord | None = None  # its file, which has vanished
    hook: int = 0  # counts the site's hooks that were started or killed


@dataclass(slots=True, kw_only=True)
class Disk:
    """The files that survive a power cut."""

    record: AgentRecord = AgentRecord()
    runs: dict[m.RunId, RunRecord] = field(default_factory=dict)
    epilogs: set[m.RunId] = field(default_factory=set)  # runs whose epilog has ended


class NodeWorld(Protocol):
    """The parts of the world that a node uses."""

    now: float
    rng: Random
    timing: Timing
    checker: Checker
    processes: list[Process]
    executions: list[tuple[m.NodeName, m.RunId]]
    ever_reserved: dict[m.NodeName, set[m.RunId]]

    def after(self, wait: float, what: Callable[[], None]) -> None:
        """Call a function after a true duration."""

    def after_local(self, machine: str, wait: float, what: Callable[[], None]) -> None:
        """Call a function after a duration on one machine's clock."""

    def clock(self, machine: str) -> float:
        """A machine's own clock."""
        ...

    def when_awake(self, party: str, what: Callable[[], None]) -> None:
        """Call a function now, or when the party's paused process continues."""

    def tell(self, party: str, text: str, job: m.JobId | None = None) -> None:
        """Add one line to the log."""

    def send(self, source: str, target: str, message: object) -> None:
        """Send a message between machines."""

    def send_to_leaders(self, source: str, sync: m.Sync) -> None:
        """Send a sync to all daemons."""

    def persist_point(self, label: str) -> CrashWhen | None:
        """Whether the party crashes before or after this write; None: it does not crash."""
        ...

    def behaviour(self, job: m.JobId) -> Behaviour:
        """How a job behaves."""
        ...

    def rendezvous(self, run_id: m.RunId) -> None:
        """Let the ranks of a run work when all of them are present."""


class SimNode:
    """A node of the world."""

    def __init__(
        self,
        world: NodeWorld,
        name: m.NodeName,
        gpus: int,
        *,
        can_freeze: bool = True,
        can_fence: bool = True,
        hooks: bool = False,
    ) -> None:
        self.world, self.name, self.hooks = world, name, hooks
        self.inventory = m.Inventory(
            gpus=tuple(m.GpuId(f"{name}-g{k}") for k in range(gpus)),
            can_freeze=can_freeze,
            can_fence=can_fence,
        )
        self.disk = Disk()
        self.ended_here: dict[m.RunId, m.ExitRecord] = {}  # since the boot, and acknowledged
        self.copy = Disk()  # of an earlier time; empty while none was made
        self.boots = 1
        self.up = True
        self.agent: agent.AgentState | None = None
        self.keepers: dict[m.RunId, KeeperBox] = {}
        self.dying: list[Process] = []  # of keepers that have died, and cannot be killed
        self.lease_file: tuple[float, frozenset[m.RunId], bool] | None = None
        self.generation = 0  # of the agent process

    @property
    def boot_id(self) -> m.BootId:
        """Changes with each boot."""
        return m.BootId(f"{self.name}-boot{self.boots}")

    def clock(self) -> float:
        """Local time: counts sleep and pauses, at this machine's own rate."""
        return self.world.clock(self.name)

    # -- the agent ---------------------------------------------------------------------------------

    def start_agent(self) -> None:
        """Start the agent's process, unless it runs already or the node is off."""
        if self.agent is not None or not self.up:
            return
        self.generation += 1
        self.agent = agent.AgentState(
            node=self.name,
            inventory=self.inventory,
            timing=self.world.timing,
            epilog_s=HOOK_S if self.hooks else 0.0,
        )
        self.world.tell(self.name, "agent starts")
        self.keepers_write_again()
        self.agent_event(
            agent.Started(
                now=self.clock(),
                boot_id=self.boot_id,
                start=f"{self.name}-{self.generation}",
                record=self.disk.record,
                runs=tuple(
                    replace(record, exit=None) if self.is_epilog_due(record) else record
                    for record in self.disk.runs.values()
                ),
                keepers=tuple(box.state.status() for box in self.keepers.values()),
                lease_until=self.lease_file[0] if self.lease_file else None,
            )
        )
        self.beat(self.generation)

    def kill_agent(self) -> None:
        """End the agent's process; nothing else ends."""
        if self.agent is not None:
            self.world.tell(self.name, "agent dies")
        self.agent = None
        self.generation += 1

    def beat(self, generation: int) -> None:
        """The agent's timer."""
        if generation != self.generation or self.agent is None:
            return
        self.to_agent(lambda: agent.Tick(self.clock()))
        wait = self.world.timing.beat_s * self.world.rng.uniform(0.98, 1.02)
        self.world.after_local(self.name, wait, lambda: self.beat(generation))

    def to_agent(self, event: Callable[[], agent.Event]) -> None:
        """Deliver to the present agent process; a paused one gets the event when it continues."""
        generation = self.generation

        def deliver() -> None:
            if self.agent is not None and generation == self.generation:
                self.agent_event(event())

        if self.agent is not None:
            self.world.when_awake(self.name, deliver)

    def agent_event(self, event: agent.Event) -> None:
        """Do one step of the agent and carry out its commands."""
        assert self.agent is not None
        generation = self.generation
        self.agent, commands = agent.step(self.agent, event)
        for command in commands:
            if self.generation != generation:
                return  # a crash point has struck
            self.do_agent(command)

    def do_agent(  # one case a command
        self, command: agent.Command
    ) -> None:
        """Carry out one command of the agent."""
        world = self.world
        match command:
            case agent.SendSync(sync=sync):
                if self.hooks:
                    world.checker.ends_reported(self.name, sync.ended)
                world.send_to_leaders(self.name, sync)
            case agent.SyncLater(at=at):
                wait = max(at - self.clock(), 0.0) + 1e-6
                world.after_local(self.name, wait, self.sync_due(self.generation))
            case agent.Persist(record=record):
                self.durable("agent", lambda: self.write_record(record))
                self.soon(lambda: agent.Persisted(self.clock(), record))
            case agent.WriteEnd(exit=end):
                self.durable("agent", lambda: self.write_end(end))
                self.after_epilog(end.key.run_id, lambda: self.end_written(end))
            case agent.DropRecord(run_id=run_id, exit=end):
                self.durable("agent", lambda: self.drop(run_id, end))
            case agent.Spawn(desired=desired, covered_until=until):
                world.after(LOCAL_S, lambda: self.spawn(desired, until, self.boots))
            case agent.OrderKeeper(run_id=run_id, order=order):
                self.to_keeper(run_id, lambda: keeper.OrderArrived(self.clock(), order))
            case agent.KillKeeper(run_id=run_id):
                self.kill_keeper(run_id)
            case agent.KillLeftovers(run_id=run_id):
                self.kill_leftovers(run_id)
            case agent.WriteLease(until=until, covers=covers, by_leader=by_leader):
                self.lease_file = (until, covers, by_leader)
                for run_id in list(self.keepers):
                    self.to_keeper(run_id, lambda r=run_id: self.lease_event(r))  # type: ignore[misc]
            case agent.QueryWitness(query=query):
                world.send(query.asker, query.witness, query)
            case agent.AnswerWitness(answer=answer):
                world.send(answer.witness, answer.asker, answer)
            case agent.LogLine(text=text):
                world.tell(self.name, text)

    def sync_due(self, generation: int) -> Callable[[], None]:
        """What a planned sync of the present agent process does, unless that has ended."""
        due = lambda: agent.SyncDue(self.clock())  # noqa: E731
        return lambda: self.to_agent(due) if generation == self.generation else None

    def end_written(self, end: m.ExitRecord) -> agent.EndWritten:
        """The event for a lost keeper's record on disk."""
        found = self.disk.runs.get(end.key.run_id)
        known = found.exit if found is not None else None
        return agent.EndWritten(self.clock(), known or end)

    def leftovers_gone(self, run_id: m.RunId) -> agent.LeftoversGone:
        """The event for a run without processes, with what the disk has of it."""
        return agent.LeftoversGone(self.clock(), run_id, self.disk.runs.get(run_id))

    def is_epilog_due(self, record: RunRecord) -> bool:
        """Whether a recorded run has ended and its epilog has not."""
        run_id = record.desired.key.run_id
        return self.hooks and record.exit is not None and run_id not in self.disk.epilogs

    def after_epilog(
        self, run_id: m.RunId, event: Callable[[], agent.Event], wait: float = FSYNC_S
    ) -> None:
        """Run the epilog that a lost keeper's run still needs, then deliver an event."""
        found, generation = self.disk.runs.get(run_id), self.generation
        if self.agent is None:
            return
        if found is None or not self.is_epilog_due(found):
            self.to_agent_later(event, wait)
            return
        self.world.checker.hook_began(self.name, found.desired, "epilog")

        def ended() -> None:
            if generation == self.generation and self.agent is not None:
                self.durable("agent", lambda: self.write_epilog(run_id, ""))
                self.soon(event)

        self.world.after(self.world.rng.uniform(0.0, HOOK_S), ended)

    def soon(self, event: Callable[[], agent.Event]) -> None:
        """Deliver a completion, unless the write's crash point has killed the agent."""
        if self.agent is not None:
            self.to_agent_later(event, FSYNC_S)

    def to_agent_later(self, event: Callable[[], agent.Event], wait: float = LOCAL_S) -> None:
        """Deliver to the present agent process after a delay."""
        generation = self.generation
        self.world.after(
            wait, lambda: self.to_agent(event) if generation == self.generation else None
        )

    def lease_event(self, run_id: m.RunId) -> keeper.LeaseChanged:
        """The event for what a keeper reads in the lease file."""
        until, covers, by_leader = self.lease_file or (0.0, frozenset(), False)
        return keeper.LeaseChanged(self.clock(), until, run_id in covers, by_leader)

    # -- the disk ----------------------------------------------------------------------------------

    def durable(self, party: str, write: Callable[[], None], run_id: m.RunId | None = None) -> None:
        """Make a durable write; a planned crash happens before or after it."""
        when = self.world.persist_point(f"{self.name}/{party}")
        if when != "before":
            write()
        if when is None:
            return
        if party == "agent":
            self.kill_agent()
            self.world.after(7.0, self.start_agent)
        elif run_id is not None:
            self.kill_keeper(run_id)

    def lose_records(self, kept: Disk) -> None:
        """Replace the disk by an empty or an older one, under keepers that stay alive."""
        self.world.tell(self.name, "its records are lost")
        for run_id, record in self.disk.runs.items():
            if run_id in self.keepers:
                self.keepers[run_id].lost = record
        self.disk = Disk(record=kept.record, runs=dict(kept.runs))
        for process in [*self.dying]:
            self.remove(process)  # stuck, without a keeper and without a record: not promised
        self.world.checker.records_lost(self.name, self.disk.runs)

    def keepers_write_again(self) -> None:
        """Let the keepers that are alive write what the disk lacks, as an agent's start asks."""
        for run_id in self.keepers:
            self.write_again(run_id)

    def write_again(self, run_id: m.RunId) -> None:
        """Let a keeper write its run's file again if it has vanished."""
        box = self.keepers.get(run_id)
        if box is not None and box.lost is not None:
            self.disk.runs[run_id] = replace(box.lost, exit=box.state.status().exit)
            box.lost = None

    def write_record(self, record: AgentRecord) -> None:
        """Replace the agent's own file."""
        self.world.checker.agent_record_changed(self.name, self.disk.record, record)
        self.disk.record = record

    def write_end(self, record: m.ExitRecord) -> None:
        """Write a run's end; a second one is ignored."""
        self.write_again(record.key.run_id)
        found = self.disk.runs.get(record.key.run_id)
        if found is None or found.exit is not None:
            return
        self.disk.runs[record.key.run_id] = replace(found, exit=record)
        self.world.checker.exit_recorded(self.name, record)
        self.world.tell(self.name, f"{record.key}: record {record.reason.value} {record.code}")

    def write_epilog(self, run_id: m.RunId, failed: str) -> None:
        """Note that a run's epilog has ended, and how it failed."""
        self.write_again(run_id)
        found = self.disk.runs.get(run_id)
        if found is None or found.exit is None or run_id in self.disk.epilogs:
            return
        self.disk.epilogs.add(run_id)
        if failed:
            found = self.disk.runs[run_id] = replace(found, exit=replace(found.exit, hook=failed))
        self.world.checker.epilog_ended(self.name, found.exit)

    def drop(self, run_id: m.RunId, end: m.ExitRecord) -> None:
        """Delete a run's files, and remember how it ended."""
        self.ended_here[run_id] = end
        self.disk.epilogs.discard(run_id)
        if self.disk.runs.pop(run_id, None) is not None:
            self.world.checker.record_dropped(self.name, run_id)

    # -- keepers -----------------------------------------------------------------------------------

    def spawn(self, desired: m.DesiredRun, until: float | None, boot: int) -> None:
        """Start a keeper's process."""
        run_id = desired.key.run_id
        if not self.up or boot != self.boots or run_id in self.keepers:
            return
        end = self.ended_here.get(run_id)
        if end is not None:
            status = m.KeeperStatus(desired=desired, phase=m.Phase.STOPPING, exit=end)
            self.to_agent_later(lambda: agent.KeeperReported(self.clock(), status))
            return
        state = keeper.KeeperState(
            node=self.name,
            desired=desired,
            timing=self.world.timing,
            can_freeze=self.inventory.can_freeze,
            prolog_s=HOOK_S if self.hooks else None,
            epilog_s=HOOK_S if self.hooks else None,
        )
        self.keepers[run_id] = KeeperBox(state=state)
        self.keeper_event(run_id, keeper.Began(self.clock(), until))

    def to_keeper(self, run_id: m.RunId, event: Callable[[], keeper.Event]) -> None:
        """Deliver over the local socket, in order, if the keeper still lives by then."""
        box = self.keepers.get(run_id)

        if box is not None:
            self.world.after(LOCAL_S, lambda: self.when_it_runs(run_id, box, event))

    def keeper_name(self, run_id: m.RunId) -> str:
        """A keeper as a party that can be paused."""
        return f"{self.name}/{run_id}"

    def when_it_runs(
        self, run_id: m.RunId, box: KeeperBox, event: Callable[[], keeper.Event]
    ) -> None:
        """Deliver to a keeper that is alive, now or when its paused process continues."""

        def deliver() -> None:
            if box.alive and self.keepers.get(run_id) is box:
                self.keeper_event(run_id, event())

        self.world.when_awake(self.keeper_name(run_id), deliver)

    def keeper_event(self, run_id: m.RunId, event: keeper.Event) -> None:
        """Do one step of a keeper and carry out its commands."""
        box = self.keepers[run_id]
        box.state, commands = keeper.step(box.state, event)
        for command in commands:
            if not box.alive:
                return
            self.do_keeper(run_id, box, command)
        if box.alive:
            self.set_alarm(run_id, box)

    def set_alarm(self, run_id: m.RunId, box: KeeperBox) -> None:
        """Plan the keeper's next wake-up."""
        deadline = box.state.deadline()
        if deadline is None or deadline == box.wake:
            return
        box.wake = deadline
        self.world.after_local(
            self.name,
            max(deadline - self.clock(), 0.0) + 1e-6,
            lambda: self.ring(run_id, box, deadline),
        )

    def ring(self, run_id: m.RunId, box: KeeperBox, deadline: float) -> None:
        """The keeper's timer."""
        if box.wake == deadline:
            box.wake = None
            self.when_it_runs(run_id, box, lambda: keeper.DeadlinePassed(self.clock()))

    def do_keeper(  # one case a command
        self, run_id: m.RunId, box: KeeperBox, command: keeper.Command
    ) -> None:
        """Carry out one command of a keeper."""
        process = box.process
        match command:
            case keeper.Reserve(released=released):
                self.durable("keeper", lambda: self.reserve(run_id, box, released), run_id)
            case keeper.WriteReleased():
                self.durable("keeper", lambda: self.write_released(run_id), run_id)
                self.later(run_id, box, lambda: keeper.ReleaseWritten(self.clock()))
            case keeper.WriteExit(exit=record):
                self.durable("keeper", lambda: self.write_end(record), run_id)
                self.later(run_id, box, lambda: keeper.ExitWritten(self.clock()))
            case keeper.RunHook(name=name):
                self.run_hook(run_id, box, name)
            case keeper.KillHook():
                self.kill_hook(run_id, box)
            case keeper.WriteEpilog(failed=failed):
                self.durable("keeper", lambda: self.write_epilog(run_id, failed), run_id)
                self.later(run_id, box, lambda: keeper.EpilogWritten(self.clock()))
            case keeper.Execute():
                self.execute(box)
            case keeper.SendSignal(number=number):
                if process is not None:
                    self.signal(run_id, box, process, number)
            case keeper.FreezeJob():
                if process is not None:
                    self.set_frozen(box, process, frozen=True)
                    self.world.after(FSYNC_S, lambda: self.stand_still(run_id, box, process))
            case keeper.ThawJob():
                if process is not None:
                    self.set_frozen(box, process, frozen=False)
            case keeper.Report(status=status):
                self.to_agent_later(lambda: agent.KeeperReported(self.clock(), status))
            case keeper.Leave():
                box.alive = False
                if self.keepers.get(run_id) is box:
                    del self.keepers[run_id]
        if process is not None and box.alive:
            # frozen already (a suspended job): only the reason may have changed
            process.frozen_by_fence = process.frozen and box.state.fenced

    def stand_still(self, run_id: m.RunId, box: KeeperBox, process: Process) -> None:
        """Report that a frozen process is suspended, and whether it has left its GPUs."""
        if box.alive and box.process is process and process.frozen:
            process.let_go = process.behaviour.lets_go
            let_go = process.let_go
            self.when_it_runs(run_id, box, lambda: keeper.JobSuspended(self.clock(), let_go))

    def later(self, run_id: m.RunId, box: KeeperBox, event: Callable[[], keeper.Event]) -> None:
        """Deliver a completion to a keeper."""
        self.world.after(FSYNC_S, lambda: self.when_it_runs(run_id, box, event))

    def run_hook(self, run_id: m.RunId, box: KeeperBox, name: Literal["prolog", "epilog"]) -> None:
        """Start a hook of the site; it may fail, and it may take longer than it may."""
        rng, desired = self.world.rng, box.state.desired
        self.world.checker.hook_began(self.name, desired, name)
        self.world.tell(self.name, f"{desired.key} {name} begins", desired.key.job)
        box.hook += 1
        this, failed = box.hook, "ended with 1" if rng.random() < FAILING_HOOKS else ""

        def ended() -> None:
            if box.alive and box.hook == this:
                if name == "prolog" and not failed:
                    self.world.checker.prolog_ended(self.name, run_id)
                self.when_it_runs(run_id, box, lambda: keeper.HookEnded(self.clock(), failed))

        self.world.after(rng.uniform(0.0, 1.3 * HOOK_S), ended)

    def kill_hook(self, run_id: m.RunId, box: KeeperBox) -> None:
        """Kill the hook that runs; a few can't be killed."""
        box.hook += 1
        if self.world.rng.random() < 0.9:
            self.later(run_id, box, lambda: keeper.HookEnded(self.clock(), "killed"))

    def reserve(self, run_id: m.RunId, box: KeeperBox, released: bool) -> None:
        """Create the reserved-run file, exclusively."""
        mine = run_id not in self.disk.runs
        if mine:
            self.disk.runs[run_id] = RunRecord(
                desired=box.state.desired, boot_id=self.boot_id, released=released
            )
            self.world.ever_reserved.setdefault(self.name, set()).add(run_id)
        self.later(run_id, box, lambda: keeper.Reserved(self.clock(), mine))

    def write_released(self, run_id: m.RunId) -> None:
        """Note "released" in the run's file."""
        self.write_again(run_id)
        self.disk.runs[run_id] = replace(self.disk.runs[run_id], released=True)

    def kill_keeper(self, run_id: m.RunId) -> None:
        """Kill a keeper with -9; the job dies with it, as with the init of its namespace.

        Without a fence the job may live on, and no agent sees it.
        """
        box = self.keepers.pop(run_id, None)
        if box is None:
            return
        self.world.tell(self.name, f"keeper of {box.state.desired.key} dies")
        box.alive = False
        if box.lost is not None:
            self.world.checker.left_without_trace(self.name, run_id)
        if self.inventory.can_fence or self.world.rng.random() < 0.4:
            self.end_with_keeper(box)
        self.to_agent_later(lambda: agent.KeeperGone(self.clock(), run_id))

    # -- processes ---------------------------------------------------------------------------------

    def execute(self, box: KeeperBox) -> None:
        """Start the job's processes."""
        world, desired = self.world, box.state.desired
        behaviour = world.behaviour(desired.key.job)
        process = Process(
            desired=desired, node=self.name, behaviour=behaviour, left_s=behaviour.work_s
        )
        key = (self.name, desired.key.run_id)
        process.again = key in world.executions
        world.executions.append(key)
        box.process = process
        world.processes.append(process)
        world.tell(self.name, f"{desired.key} executes", desired.key.job)
        world.checker.executed(process)
        world.rendezvous(desired.key.run_id)

    def box_of(self, process: Process) -> KeeperBox | None:
        """The keeper of a process."""
        return self.keepers.get(process.desired.key.run_id)

    def count(self, process: Process) -> None:
        """Plan the end of a process that works from now on."""
        desired = process.desired
        if desired.mode is m.LaunchMode.BATCH and desired.layout[0].node != self.name:
            return  # only the first node has a script
        if process.killed or process.stopping:
            return  # it is leaving already
        process.counting_from = self.world.now
        process.ending += 1
        code = process.behaviour.code_of(desired.key.run)
        if not (code and process.behaviour.alone and desired.layout[0].node != self.name):
            self.plan_end(process, process.left_s, code, 0)

    def plan_end(self, process: Process, wait: float, code: int, signal: int) -> None:
        """Plan that a process ends by itself.

        Args:
            process: the process.
            wait: seconds until its end.
            code: its exit code.
            signal: the signal that ends it; 0: none.
        """
        ending = process.ending

        def end() -> None:
            box = self.box_of(process)
            if process.ending == ending and process in self.dying:
                self.remove(process)
            if process.ending != ending or box is None or box.process is not process:
                return
            run_id = process.desired.key.run_id
            self.end_process(box)
            self.world.tell(self.name, f"{process.desired.key} ends {code}:{signal}")
            self.world.checker.ended(process, succeeded=(code, signal) == (0, 0))
            exit_event = self.exit_event(process, code, signal)
            self.when_it_runs(run_id, box, lambda: replace(exit_event, now=self.clock()))

        self.world.after(wait, end)

    def exit_event(self, process: Process, code: int, signal: int) -> keeper.JobExited:
        """The end of a process as its keeper sees it, with what a cooperative job has told."""
        told, now = None, self.clock()
        if process.behaviour.on_term in COOPERATIVE and signal != keeper.SIGKILL:
            told = m.Told.STOPPED if process.stopping else m.Told.FINISHED
        return keeper.JobExited(
            now,
            code,
            signal,
            told=told,
            checkpoint=1 if told is m.Told.STOPPED else None,
            term_s=None if process.term_at is None else now - process.term_at,
        )

    def end_process(self, box: KeeperBox) -> None:
        """Remove the processes of a keeper."""
        if box.process is not None:
            process, box.process = box.process, None
            self.remove(process)

    def remove(self, process: Process) -> None:
        """A process has ended."""
        self.world.processes.remove(process)
        process.ending += 1
        if process in self.dying:
            self.dying.remove(process)
        self.world.checker.processes_changed()

    def note_kill(self, process: Process, box: KeeperBox) -> None:
        """Note that a process was sent SIGKILL, and whether a leader had asked for it."""
        process.ending, process.killed = process.ending + 1, True
        process.unasked = box.state.stop in (None, m.StopReason.TIME_LIMIT, m.StopReason.OVER)

    def end_with_keeper(self, box: KeeperBox) -> None:
        """End the processes of a keeper that has died; those that are stuck take their time."""
        process = box.process
        unknown = box.lost is not None  # its record is lost too, which is not promised
        if process is None or unknown or not process.behaviour.stuck_s:
            self.end_process(box)
            return
        if not process.killed:
            self.note_kill(process, box)
            self.plan_end(process, process.behaviour.stuck_s, 0, keeper.SIGKILL)
        self.dying.append(process)

    def kill_leftovers(self, run_id: m.RunId) -> None:
        """Report the end of a lost keeper's run when none of its processes is left."""
        generation = self.generation

        def look() -> None:
            if generation != self.generation:
                return
            if any(process.desired.key.run_id == run_id for process in self.dying):
                self.world.after(1.0, look)
            else:
                self.after_epilog(run_id, lambda: self.leftovers_gone(run_id), LOCAL_S)

        look()

    def set_frozen(self, box: KeeperBox, process: Process, *, frozen: bool) -> None:
        """Freeze or thaw a process."""
        if frozen:
            self.world.checker.interfered(process, box.state.stop, fenced=box.state.fenced)
            if process.counting_from is not None:
                process.left_s -= self.world.now - process.counting_from
                process.counting_from = None
            process.ending += 1
        process.frozen = frozen
        process.let_go = process.let_go and frozen
        process.frozen_by_fence = frozen and box.state.fenced
        self.world.tell(self.name, f"{process.desired.key} {'frozen' if frozen else 'thawed'}")
        self.world.checker.processes_changed()
        if not frozen:
            self.world.rendezvous(process.desired.key.run_id)

    def signal(self, run_id: m.RunId, box: KeeperBox, process: Process, number: int) -> None:
        """Deliver a signal to a process.

        Args:
            run_id: the run.
            box: its keeper.
            process: its process.
            number: of the signal.
        """
        behaviour = process.behaviour
        self.world.checker.interfered(process, box.state.stop, fenced=box.state.fenced)
        self.world.tell(self.name, f"{process.desired.key} gets signal {number}")
        if number == keeper.SIGKILL:
            self.note_kill(process, box)
            self.plan_end(process, behaviour.stuck_s or LOCAL_S, 0, keeper.SIGKILL)
        elif number == keeper.SIGTERM and not process.frozen:
            if behaviour.on_term not in COOPERATIVE:
                process.term_at = self.clock()
            if behaviour.on_term in ("ignore", "finish"):
                return
            process.ending += 1
            process.stopping = True
            if behaviour.on_term == "die":
                self.plan_end(process, LOCAL_S, 0, number)
            else:
                self.plan_end(process, TERM_S, CODES.get(behaviour.on_term, 0), 0)

    # -- the machine -------------------------------------------------------------------------------

    def power_off(self) -> None:
        """Switch the node off; only the disk survives."""
        self.world.tell(self.name, "power off")
        self.kill_agent()
        self.up = False
        for run_id in list(self.keepers):
            box = self.keepers.pop(run_id)
            box.alive = False
            self.end_process(box)
        self.end_escaped()
        self.lease_file = None
        self.ended_here.clear()

    def end_escaped(self) -> None:
        """End the processes that have lost their keeper."""
        kept = {id(box.process) for box in self.keepers.values()}
        for process in [*self.world.processes]:
            if process.node == self.name and id(process) not in kept:
                self.world.tell(self.name, f"escaped processes of {process.desired.key} end")
                self.remove(process)

    def power_on(self) -> None:
        """Boot the node again."""
        if self.up:
            return
        self.up = True
        self.boots += 1
        self.world.tell(self.name, "boots")
        self.start_agent()
