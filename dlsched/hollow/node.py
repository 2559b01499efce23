"""One hollow node: the agent's step and its links to the daemon, over simulated runs.

Everything that the daemon sees is the real agent's: the step of `dlsched.protocol.agent`, the link
to the leader, the descriptions, the keeper's step for each run. Only files, processes and GPUs are
missing. What would be on a disk is kept in memory.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from dlsched import __version__
from dlsched.core.errors import BadInput
from dlsched.hollow.jobs import SimulatedJobs
from dlsched.hollow.keeper import HollowKeeper
from dlsched.nodeagent.agent.health_check import HealthCheck
from dlsched.nodeagent.agent.leader_link import LeaderLink, NotLaunched
from dlsched.nodeagent.agent.node_description import node_facts, send_descriptions
from dlsched.nodeagent.agent.other_agents import OtherAgents
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.agent.trust import trust_of_daemon
from dlsched.nodeagent.gpus.fake import FakeGpus
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.protocol import agent
from dlsched.protocol import messages as m
from dlsched.protocol.event_queue import EventQueue
from dlsched.system import clock

LAUNCHER = "hollow"
CPUS_PER_GPU, BYTES_PER_GPU = 16, 128 * 1024**3


class HollowNode:
    """One node.

    Attributes:
        settings: of its agent.
        gpus: pretended ones.
        leader: calls the daemon.
        other_agents: the witnesses of this node.
        news: set when its description has changed: never.
        state: of the protocol's agent.
        keepers: of the runs that it holds.
        executed: how many runs have begun to execute here.
        over: how many of the held runs have ended, and the daemon knows it.
    """

    def __init__(
        self,
        settings: Settings,
        jobs: SimulatedJobs,
        boot_id: m.BootId,
        failed: asyncio.Future[None],
    ) -> None:
        """Make a node that talks to no daemon yet.

        Args:
            settings: as of an agent; those of files and processes mean nothing here.
            jobs: how long jobs execute.
            boot_id: the same for all nodes of a process: its end is their switching off.
            failed: gets the error when a step of this node, or a task of it, fails.
        """
        self.settings, self._jobs, self._boot_id = settings, jobs, boot_id
        backend = FakeGpus(settings.name, settings.fake_gpus)
        found = backend.inventory()
        self.gpus = GpuWatch(backend, found)
        types = list(dict.fromkeys(gpu.type for gpu in found.gpus))
        self.state = agent.AgentState(
            node=m.NodeName(settings.name),
            inventory=m.Inventory(
                gpus=tuple(gpu.uuid for gpu in found.gpus),
                gpu_type=types[0] if len(types) == 1 else "",
                agent_version=__version__,
                machine=f"hollow/{settings.name}",
            ),
            timing=settings.timing,
        )
        self.leader = LeaderLink(
            self.state.node,
            settings.daemon,
            trust_of_daemon(settings),
            settings.timing,
            on_reply=lambda reply: self.handle(agent.ReplyArrived(clock.boottime(), reply)),
            on_ready=lambda: self.handle(agent.Tick(clock.boottime())),
        )
        self.other_agents = OtherAgents(settings)
        self.news = asyncio.Event()
        self.health = HealthCheck(settings, self.news.set)
        self.keepers: dict[m.RunId, HollowKeeper] = {}
        self.executed = self.over = 0
        self._records: dict[m.RunId, agent.RunRecord] = {}
        self._events = EventQueue(self._step)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed = failed

    def begin(self, address: str) -> None:
        """Register with the daemon, and sync from now on; the agent is reached at `address`."""
        self.handle(
            agent.Started(
                now=clock.boottime(),
                boot_id=self._boot_id,
                start=secrets.token_hex(8),
                record=agent.AgentRecord(),
                runs=(),
                keepers=(),
            )
        )
        gpus = len(self.state.inventory.gpus)
        facts = node_facts(
            self.gpus.inventory,
            address,
            machine={
                "cpus": max(1, gpus) * CPUS_PER_GPU,
                "memory_bytes": max(1, gpus) * BYTES_PER_GPU,
            },
            launcher=LAUNCHER,
            capabilities=("supervise", "signal", "freeze", "kill-tree", "fence"),
        )
        self._start(self.leader.run())
        self._start(self._beat())
        self._start(send_descriptions(self, facts))

    def check_starts(self) -> None:
        """Check nothing: what a hollow node starts is made up."""

    def take_start_check(self) -> str | None:
        """That it can start jobs."""
        return ""

    async def close(self) -> None:
        """Stop as a node does that is switched off."""
        for kept in self.keepers.values():
            kept.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.leader.close()
        await self.other_agents.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.settings.timing.beat_s * random.uniform(0.9, 1.0))
            self.handle(agent.Tick(clock.boottime()))

    # -- the agent's step ------------------------------------------------------------------------

    def handle(self, event: agent.Event) -> None:
        """Take one step, after those that are under way."""
        try:
            self._events.take(event)
        except Exception as error:  # a timer or a call has brought it: no task would tell
            self._fail(error)

    def _step(self, event: agent.Event) -> None:
        self.state, commands = agent.step(self.state, event)
        for command in commands:
            self._do(command)

    def _do(self, command: agent.Command) -> None:
        now = clock.boottime()
        match command:
            case agent.SendSync(sync=sync):
                self.leader.send(sync)
            case agent.SyncLater(at=at):
                self.leader.later(at, lambda: self.handle(agent.SyncDue(clock.boottime())))
            case agent.Persist(record=record):
                self._events.take(agent.Persisted(now, record))
            case agent.WriteEnd(exit=record):
                self._events.take(agent.EndWritten(now, record))
            case agent.DropRecord(run_id=run_id):
                self._records.pop(run_id, None)
            case agent.Spawn(desired=desired, covered_until=until):
                self._start(self._spawn(desired, until))
            case agent.OrderKeeper(run_id=run_id, order=order) if run_id in self.keepers:
                self.keepers[run_id].order(order)
            case agent.KillLeftovers(run_id=run_id):
                self._events.take(agent.LeftoversGone(now, run_id, self._records.get(run_id)))
            case agent.WriteLease(until=until, covers=covers, by_leader=by_leader):
                for kept in list(self.keepers.values()):
                    kept.lease(until, covers, by_leader=by_leader)
            case agent.QueryWitness(query=query):
                self._start(self._ask_witness(query))

    async def _ask_witness(self, query: m.WitnessQuery) -> None:
        answer = await self.other_agents.ask_witness(query)
        if answer is not None:
            self.handle(agent.WitnessAnswered(clock.boottime(), answer))

    # -- runs ------------------------------------------------------------------------------------

    async def _spawn(self, desired: m.DesiredRun, until: float | None) -> None:
        key = desired.key
        try:
            spec = await self.leader.launch(key)
            environment = {each.name: each.value for each in spec.environment}
            end = self._jobs.end_of(key.job, environment)
        except (NotLaunched, BadInput) as error:
            self.handle(agent.KeeperGone(clock.boottime(), key.run_id, why=str(error)))
            return
        self._records[key.run_id] = agent.RunRecord(desired=desired, boot_id=self._boot_id)
        self.keepers[key.run_id] = HollowKeeper(
            self.state.node,
            desired,
            self.settings.timing,
            end,
            executed_s=spec.executed_s,
            report=self._reported,
            leave=lambda: self._left(key.run_id),
        )
        self.keepers[key.run_id].begin(until)

    def _reported(self, status: m.KeeperStatus) -> None:
        run_id = status.desired.key.run_id
        record, kept = self._records.get(run_id), self.keepers[run_id]
        if record is not None:
            if kept.executed and not record.released:
                self.executed += 1
            self._records[run_id] = replace(record, released=kept.executed, exit=status.exit)
        self.handle(agent.KeeperReported(clock.boottime(), status))

    def _left(self, run_id: m.RunId) -> None:
        if self.keepers.pop(run_id, None) is not None:
            self.over += 1
            self.handle(agent.KeeperGone(clock.boottime(), run_id))
