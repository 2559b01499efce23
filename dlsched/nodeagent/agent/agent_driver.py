"""The driver of the agent: carries out the commands of `dlsched.protocol.agent`.

One event at a time goes through the pure step; everything that takes time is a task that ends in
another event. One thread writes files, in the order of the commands. The agent may be killed at any
time: what it knows is on disk or in keepers, and `begin` reads both.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dlsched.core.errors import BadInput
from dlsched.nodeagent.agent.clients import Clients
from dlsched.nodeagent.agent.gang_ranks import GangRanks
from dlsched.nodeagent.agent.gpu_turns import GpuTurns
from dlsched.nodeagent.agent.health_check import HealthCheck
from dlsched.nodeagent.agent.keepers.all_keepers import Keepers, Message
from dlsched.nodeagent.agent.keepers.start import KeeperStart
from dlsched.nodeagent.agent.leader_link import LeaderLink
from dlsched.nodeagent.agent.other_agents import OtherAgents
from dlsched.nodeagent.agent.rank_reports import RankReports
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.agent.start_check import StartCheck
from dlsched.nodeagent.agent.tasks import AgentTasks, NewestOfRun
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.nodeagent.keeper import run_files
from dlsched.protocol import agent
from dlsched.protocol import messages as m
from dlsched.protocol.event_queue import EventQueue
from dlsched.rpc.channels import ClientTrust
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2
from dlsched.system import clock

if TYPE_CHECKING:  # few agents have a node policy, and it loads numpy
    from dlsched.nodeagent.agent.gpu_limits import GpuLimits, Send

log = logging.getLogger(__name__)
TASKS_S = 0.1  # a run tells of its short tasks at most once in so long
MOST_BEFORE_START = 10_000  # messages of jobs that wait until all runs are known


class AgentDriver:
    """The agent of one node."""

    def __init__(
        self,
        settings: Settings,
        *,
        starter: KeeperStart,
        gpus: GpuWatch,
        inventory: m.Inventory,
        trust: ClientTrust,
        limits: Callable[[Send], GpuLimits] | None = None,
    ) -> None:
        """Connect the parts of an agent; `begin` starts it.

        Args:
            settings: of the agent.
            starter: starts keepers.
            gpus: watches this node's GPUs.
            inventory: what the agent tells the leader of its node.
            trust: how the agent and the leader prove themselves to each other.
            limits: makes what divides the GPUs among jobs; it gets what sends to keepers. None:
                nothing does.
        """
        self.settings, self.gpus = settings, gpus
        self.state = agent.AgentState(
            node=m.NodeName(settings.name),
            inventory=inventory,
            timing=settings.timing,
            epilog_s=settings.hooks.epilog_limit_s if settings.hooks.epilog else 0.0,
        )
        self.tasks = AgentTasks()
        self.leader = LeaderLink(
            self.state.node,
            settings.daemon,
            trust,
            settings.timing,
            on_reply=self._on_reply,
            on_ready=lambda: self.handle(agent.Tick(clock.boottime())),
        )
        self.keepers = Keepers(
            settings,
            self.tasks,
            starter,
            self.leader,
            gpus,
            handle=self.handle,
            held=self.held_run,
            forward=self._from_job,
        )
        self.reports = RankReports(self.state.node, self.leader, self.keepers.send)
        self._checkpoints = NewestOfRun(self.tasks, self._commit)
        self._exchanges = NewestOfRun(self.tasks, self._exchange_tasks)
        self.other_agents = OtherAgents(settings)
        self.ranks = GangRanks(
            self.state.node, self.tasks, self.keepers, self.other_agents, self.running_run
        )
        self.turns = GpuTurns(settings.turns, gpus.inventory, self.running_run, self.keepers.send)
        self.limits = None if limits is None else limits(self.keepers.send)
        self._heard: tuple[m.Epoch, int] | None = None  # daemon, and failures to reach one by then
        self.starts = 0  # of keepers, since this process began
        self.ends: Counter[m.ExitReason] = Counter()  # of runs, likewise
        self.clients = Clients(self.state.node, self.tasks, self.keepers, self.running_run)
        self._events = EventQueue(self._step)
        # what arrives before `begin` knows all runs; None once it does
        self._before_start: list[Callable[[], None]] | None = []
        # by run and kind, of messages of jobs that are too many
        self._newest_before_start: dict[tuple[m.RunId, str], Callable[[], None]] = {}
        self.news = asyncio.Event()  # the node's description has changed
        self.health = HealthCheck(settings, self.news.set)
        self._start_check = StartCheck(settings, starter, self.health, self.news.set)
        self.take_start_check = self._start_check.take_result

    # -- events --------------------------------------------------------------------------------

    def handle(self, event: agent.Event) -> None:
        """Take one step, after those that are under way; the first step is the start."""
        if self._before_start is not None:
            self._before_start.append(partial(self.handle, event))
            return
        try:
            self._events.take(event)
        except Exception as error:
            log.exception("step-failed")
            self.tasks.fail(error)

    def _step(self, event: agent.Event) -> None:
        before = self.state
        self.state, commands = agent.step(before, event)
        if self.state.ended is not before.ended and before.started:
            fresh = self.state.ended.keys() - before.ended.keys()
            self.ends.update(self.state.ended[run_id].reason for run_id in fresh)
            for run_id in fresh:
                self.turns.gone(run_id)
        for command in commands:
            self._do(command)

    async def begin(self) -> None:
        """Read the disk, find the keepers, and go on from there.

        Raises:
            BadInput: when a record cannot be read; nothing is guessed.
        """
        settings = self.settings
        known = run_files.read_agent(settings.state_dir)
        if known is not None and known.node != self.state.node:
            raise BadInput(
                f"{settings.state_dir} belongs to node {known.node}, this is {self.state.node}"
            )
        record = agent.AgentRecord()
        if known is not None:
            record = agent.AgentRecord(
                term=known.term,
                incarnation=m.Incarnation(known.incarnation),
                starts=known.starts,
            )
        await self.tasks.on_disk(self._start_check.clear)
        runs, keepers = await self.keepers.find()
        lease = run_files.read_lease(settings.run_dir)
        log.info("agent-started node=%s runs=%d keepers=%d", settings.name, len(runs), len(keepers))
        arrived, self._before_start = self._before_start or [], None
        self.handle(
            agent.Started(
                now=clock.boottime(),
                boot_id=m.BootId(clock.boot_id()),
                start=secrets.token_hex(8),
                record=record,
                runs=tuple(runs),
                keepers=tuple(keepers),
                lease_until=lease.until if lease is not None else None,
            )
        )
        for take in (*arrived, *self._newest_before_start.values()):
            take()
        self._newest_before_start.clear()
        self.tasks.start(self.leader.run())
        self.tasks.start(self._beat())
        self.tasks.start(self.keepers.watch_standstill())
        self.tasks.start(self.health.watch_for_ever())
        if self.limits is not None:
            self.limits.restore()
            self.tasks.start(self.limits.run(lambda: self.state.held))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.settings.timing.beat_s * random.uniform(0.9, 1.0))
            self.handle(agent.Tick(clock.boottime()))

    def _on_reply(self, reply: m.Reply) -> None:
        heard = (reply.term.epoch, self.leader.failures)
        if heard != self._heard:  # another daemon, or the same one after messages were lost
            self._heard = heard
            self.reports.tell_again()
        self.handle(agent.ReplyArrived(clock.boottime(), reply))

    def _from_job(self, run_id: m.RunId, message: Message) -> None:
        """Take a keeper's message that is about its job, not about its run."""
        if self._before_start is not None:
            take = partial(self._from_job, run_id, message)
            if len(self._before_start) < MOST_BEFORE_START:
                self._before_start.append(take)
            else:  # what waits for an answer is the newest of a run
                self._newest_before_start[run_id, next(iter(message), "")] = take
            return
        if "report" in message:
            self.reports.add(self.key(run_id), message["report"])
            self._limit(lambda each: each.reported(self.key(run_id), message["report"]))
        elif "obeys_limits" in message:
            self._limit(lambda each: each.obeys(self.key(run_id)))
        elif "checkpoint" in message:
            key = self.key(run_id)  # now: the run may end before its last checkpoint is committed
            if key is not None:
                self._checkpoints.take(key, message)
        elif "want_tasks" in message:
            key = self.key(run_id)
            if key is not None:
                self._exchanges.take(key, message)
        elif "turn" in message:
            self.turns.from_keeper(run_id, message["turn"])
        else:
            self.ranks.from_keeper(run_id, message)

    def _limit(self, call: Callable[[GpuLimits], None]) -> None:
        limits = self.limits
        if limits is not None:
            limits.guard(lambda: call(limits))

    async def _commit(self, key: m.RunKey, message: Message) -> None:
        checkpoint = message["checkpoint"]
        answer = await self.reports.commit(key, checkpoint)
        result = {"path": checkpoint["path"], "accepted": answer.accepted, "why": answer.why}
        result["held"] = list(answer.held)
        self.keepers.send(key.run_id, {"committed": result, "number": message.get("number")})

    async def _exchange_tasks(self, key: m.RunKey, message: Message) -> None:
        """Pass on which short tasks of a run have ended; give it those that it gets."""
        told: dict[str, Any] = message["want_tasks"]
        until = clock.boottime() + TASKS_S
        try:
            request = control_pb2.TaskExchange(node=self.state.node, key=to_wire(key), **told)
            found = await self.leader.exchange_tasks(request)
        except (ValueError, TypeError):  # a number that no message can hold
            found = control_pb2.TaskBundle(over=True)
        await asyncio.sleep(max(until - clock.boottime(), 0.0))
        given = {"numbers": list(found.numbers), "lines": list(found.lines), "over": found.over}
        self.keepers.send(key.run_id, {"tasks": given, "number": message.get("number")})

    def check_starts(self) -> None:
        """Begin to check whether this node can start jobs."""
        self.tasks.of_job(self._start_check.check())

    # -- commands ------------------------------------------------------------------------------

    def _do(self, command: agent.Command) -> None:  # noqa: PLR0912  # one case a command
        keepers, start = self.keepers, self.tasks.start
        match command:
            case agent.SendSync(sync=sync):
                self.leader.send(sync)
            case agent.SyncLater(at=at):
                self.leader.later(at, lambda: self.handle(agent.SyncDue(clock.boottime())))
            case agent.Persist(record=record):
                start(self._persist(record))
            case agent.WriteEnd(exit=record):
                start(keepers.write_end(record))
            case agent.DropRecord(run_id=run_id, exit=record):
                self.reports.forget(run_id)
                start(keepers.forget(run_id, record))
            case agent.Spawn(desired=desired, covered_until=until):
                self.starts += 1
                keepers.start(desired, until)
            case agent.OrderKeeper(run_id=run_id, order=order):
                keepers.order(run_id, order)
            case agent.KillKeeper(run_id=run_id):
                keepers.kill(run_id)
            case agent.KillLeftovers(run_id=run_id):
                start(keepers.kill_leftovers(run_id))
            case agent.WriteLease(until=until, covers=covers, by_leader=by_leader):
                lease = run_files.LeaseFile(until=until, covers=covers, by_leader=by_leader)
                start(self.tasks.on_disk(self._write_lease, lease))
            case agent.QueryWitness(query=query):
                start(self._ask_witness(query))
            case agent.AnswerWitness():
                pass  # `witness` has answered
            case agent.LogLine(text=text):
                log.warning("%s", text)

    async def _persist(self, record: agent.AgentRecord) -> None:
        file = run_files.AgentFile(
            node=self.state.node,
            term=record.term,
            incarnation=record.incarnation,
            starts=record.starts,
        )
        while True:
            try:
                await self.tasks.on_disk(run_files.write_agent, self.settings.state_dir, file)
                break
            except OSError as error:  # the disk is full: jobs go on, nothing new is started
                log.error("cannot-store why=%s", error.strerror)
                self.gpus.node_problem("disk", f"cannot store: {error.strerror}")
                await asyncio.sleep(1.0)
        self.gpus.node_problem("disk", "")
        self.handle(agent.Persisted(clock.boottime(), record))

    def note_zygote(self, why: str) -> None:
        """Note why there is no zygote, so that the node gets no new work; empty: there is one."""
        self.gpus.node_problem("zygote", why)
        self.news.set()

    def _write_lease(self, lease: run_files.LeaseFile) -> None:
        try:
            run_files.write_lease(self.settings.run_dir, lease)
        except OSError as error:  # keepers then see an older lease, which is safe
            log.error("cannot-store-lease why=%s", error.strerror)

    async def _ask_witness(self, query: m.WitnessQuery) -> None:
        answer = await self.other_agents.ask_witness(query)
        if answer is not None:
            self.handle(agent.WitnessAnswered(clock.boottime(), answer))

    def witness(self, query: m.WitnessQuery) -> m.WitnessAnswer:
        """Answer another agent's question when a leader last renewed this agent's lease."""
        _, commands = agent.step(self.state, agent.WitnessAsked(clock.boottime(), query))
        return next(c.answer for c in commands if isinstance(c, agent.AnswerWitness))

    # -- runs ----------------------------------------------------------------------------------

    def held_run(self, run_id: m.RunId) -> m.DesiredRun | None:
        """Return a run that this agent holds; None for any other."""
        held = self.state.held.get(run_id)
        return held.desired if held is not None else None

    def key(self, run_id: m.RunId) -> m.RunKey | None:
        """Return the key of a run that this agent holds; None for any other."""
        desired = self.held_run(run_id)
        return desired.key if desired is not None else None

    def node_rank(self, run_id: m.RunId) -> int:
        """Return this node's place among the nodes of a run; 0 when the run is not held."""
        desired = self.held_run(run_id)
        nodes = [share.node for share in desired.layout] if desired is not None else []
        return nodes.index(self.state.node) if self.state.node in nodes else 0

    def running_run(self, run_id: m.RunId) -> m.DesiredRun | None:
        """Return a run that this agent holds if it has not ended; None for others."""
        return None if run_id in self.state.ended else self.held_run(run_id)

    async def close(self) -> None:
        """Close everything; keepers go on."""
        await self.tasks.close()
        self.keepers.close()
        await self.leader.close()
        await self.other_agents.close()
