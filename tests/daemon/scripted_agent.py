"""An agent for tests: the protocol's own step over real gRPC, with jobs that are only told of.

A second implementation of the node's shell: nothing is executed, keepers are entries in a dict. A
job ends when the test says so.
"""
# ruff: noqa: N802  # methods are named by the wire

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import replace
from typing import Any

import grpc

from dlsched.protocol import agent
from dlsched.protocol import messages as m
from dlsched.protocol.timing import Timing
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.identity import node
from dlsched.rpc.server import ServerTrust, add_ports, new_server
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2, node_pb2_grpc, run_pb2

FAST = Timing(
    beat_s=0.4, reply_age_s=5.0, confirmed_s=4.0, lease_s=30.0, kill_s=15.0, margin_s=20.0,
    prepare_s=5.0,
)  # fmt: skip


class ScriptedAgent(node_pb2_grpc.AgentServicer):  # type: ignore[misc]
    """One node."""

    def __init__(
        self, name: str, daemon: str, gpus: int = 4, gpu_type: str = "v100", disk: Any = None
    ) -> None:
        self.name = m.NodeName(name)
        self.daemon = daemon
        self.gpus = tuple(m.GpuId(f"GPU-{name}-{k}") for k in range(gpus))
        self.gpu_type = gpu_type
        self.disk: dict[str, Any] = disk if disk is not None else {"record": None, "runs": {}}
        inventory = m.Inventory(gpus=self.gpus, gpu_type=gpu_type, agent_version="test")
        self.state = agent.AgentState(node=self.name, inventory=inventory, timing=FAST)
        self.keepers: dict[m.RunId, m.KeeperStatus] = {}
        self.executed: list[m.RunKey] = []
        self.refuse: set[m.JobId] = set()  # jobs that cannot start here
        self.obeys = True  # a stop request is followed at once
        self.changed = asyncio.Event()
        self.signals: list[tuple[m.RunKey, int]] = []
        self.launched: dict[m.RunId, control_pb2.LaunchSpec] = {}
        self.output = b"line\n"
        self.notes: list[str] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        self.server = new_server(ServerTrust(insecure_loopback=True))
        node_pb2_grpc.add_AgentServicer_to_server(self, self.server)
        [self.port] = add_ports(self.server, ["127.0.0.1:0"], ServerTrust(insecure_loopback=True))
        await self.server.start()
        self.channel = open_channel(self.daemon, ClientTrust.claimed_role(node(self.name)))
        self.leader = node_pb2_grpc.LeaderStub(self.channel)
        self.runs = control_pb2_grpc.RunsStub(self.channel)
        record = self.disk["record"] or agent.AgentRecord()
        self.take(
            agent.Started(
                now=time.monotonic(), boot_id=m.BootId("boot-1"), start=secrets.token_hex(4),
                record=record,
                runs=tuple(self.disk["runs"].values()), keepers=tuple(self.keepers.values()),
            )
        )  # fmt: skip
        self.later(self.ticks())

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.server.stop(None)
        await self.channel.close()

    async def __aenter__(self) -> ScriptedAgent:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def later(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ticks(self) -> None:
        await self.describe()
        beats = 0
        while True:
            self.take(agent.Tick(time.monotonic()))
            await asyncio.sleep(FAST.beat_s)
            beats += 1
            if beats % 5 == 0:
                await self.describe()

    async def describe(self) -> None:
        facts = node_pb2.NodeFacts(
            version="0.0.9",
            address=f"127.0.0.1:{self.port}", cpus=16, memory_bytes=64 << 30, launcher="scripted",
            gpus=[
                node_pb2.GpuFacts(uuid=gpu, index=k, type=self.gpu_type)
                for k, gpu in enumerate(self.gpus)
            ],
        )  # fmt: skip
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self.leader.Describe(
                node_pb2.NodeDescription(node=self.name, facts=facts), timeout=5
            )

    # -- the shell ------------------------------------------------------------------------------

    def take(self, event: agent.Event) -> None:
        self.state, commands = agent.step(self.state, event)
        for command in commands:
            self.do(command)

    def do(self, command: agent.Command) -> None:
        now = time.monotonic()
        match command:
            case agent.SendSync(sync=sync):
                self.later(self.sync(sync))
            case agent.SyncLater(at=at):
                self.later(self.rest(at))
            case agent.Persist(record=record):
                self.disk["record"] = record
                self.take(agent.Persisted(now, record))
            case agent.WriteEnd(exit=record):
                self.take(agent.EndWritten(now, record))
            case agent.DropRecord(run_id=run_id):
                self.disk["runs"].pop(run_id, None)
            case agent.Spawn(desired=desired):
                self.later(self.spawn(desired))
            case agent.OrderKeeper(run_id=run_id, order=order):
                self.order(run_id, order)
            case agent.KillLeftovers(run_id=run_id):
                self.take(agent.LeftoversGone(now, run_id, self.disk["runs"].get(run_id)))
            case agent.LogLine(text=text):
                self.notes.append(text)

    async def rest(self, until: float) -> None:
        await asyncio.sleep(max(until - time.monotonic(), 0.0))
        self.take(agent.SyncDue(time.monotonic()))

    async def sync(self, sync: m.Sync) -> None:
        try:
            reply = await self.leader.Sync(to_wire(sync), timeout=5)
        except grpc.aio.AioRpcError as error:
            self.notes.append(f"{error.code()}: {error.details()}")
            return
        self.take(agent.ReplyArrived(time.monotonic(), from_wire(m.Reply, reply)))

    async def spawn(self, desired: m.DesiredRun) -> None:
        key = desired.key
        message = control_pb2.LaunchRequest(
            node=self.name,
            key=run_pb2.RunKey(job=key.job, run=key.run, run_id=key.run_id),
        )
        try:
            self.launched[key.run_id] = await self.runs.Launch(message, timeout=5)
        except grpc.aio.AioRpcError as error:
            self.notes.append(f"launch: {error.details()}")
        record = agent.RunRecord(desired=desired, boot_id=self.state.boot_id)
        self.disk["runs"][key.run_id] = record
        if key.job in self.refuse:
            self.end(
                key.run_id, reason=m.ExitReason.NOT_STARTED, detail="no space", desired=desired
            )
            return
        if len(desired.layout) > 1 and desired.want is m.Want.PREPARED:
            self.say(m.KeeperStatus(desired=desired, phase=m.Phase.PREPARED))
        else:
            self.execute(desired)

    def execute(self, desired: m.DesiredRun) -> None:
        self.executed.append(desired.key)
        self.say(m.KeeperStatus(desired=desired, phase=m.Phase.RUNNING))

    def say(self, status: m.KeeperStatus) -> None:
        self.keepers[status.desired.key.run_id] = status
        if status.exit is not None:
            run_id = status.desired.key.run_id
            old = self.disk["runs"].get(run_id)
            if old is not None:
                self.disk["runs"][run_id] = replace(old, released=True, exit=status.exit)
        self.take(agent.KeeperReported(time.monotonic(), status))
        self.changed.set()

    def order(self, run_id: m.RunId, order: m.Order) -> None:
        status = self.keepers.get(run_id)
        if status is None:
            return
        match order:
            case m.Release() if status.phase is m.Phase.PREPARED:
                self.execute(status.desired)
            case m.Freeze():
                self.say(replace(status, phase=m.Phase.SUSPENDED))
            case m.Thaw() if self.obeys:
                self.say(replace(status, phase=m.Phase.RUNNING))
            case m.Adjust(limits=limits, grace_s=grace_s):
                desired = replace(status.desired, limits=limits, grace_s=grace_s)
                self.say(replace(status, desired=desired))
            case m.Stop(reason=reason) if self.obeys and status.exit is None:
                if status.phase is m.Phase.PREPARED:
                    self.end(run_id, reason=m.ExitReason.NOT_STARTED, stop=reason)
                else:
                    self.end(run_id, reason=m.ExitReason.SIGNALLED, signal=15, stop=reason)
            case m.Kill(reason=reason) if status.exit is None:
                self.end(run_id, reason=m.ExitReason.SIGNALLED, signal=9, stop=reason)
            case m.Forget():
                self.keepers.pop(run_id, None)
                self.take(agent.KeeperGone(time.monotonic(), run_id))
            case _:
                pass

    def end(
        self,
        run_id: m.RunId,
        code: int = 0,
        *,
        reason: m.ExitReason = m.ExitReason.EXITED,
        desired: m.DesiredRun | None = None,
        ran_s: float = 0.01,
        **more: Any,
    ) -> None:
        """A job's end on this node."""
        if desired is None:
            desired = self.keepers[run_id].desired
        record = m.ExitRecord(
            key=desired.key, node=self.name, reason=reason, code=code, ran_s=ran_s,
            nodes=tuple(share.node for share in desired.layout), request_id=desired.request_id,
            **more,
        )  # fmt: skip
        self.say(m.KeeperStatus(desired=desired, phase=m.Phase.STOPPING, exit=record))

    def running(self) -> list[m.RunKey]:
        return [
            status.desired.key
            for status in self.keepers.values()
            if status.exit is None and status.phase is m.Phase.RUNNING
        ]

    def end_job(self, job: int, code: int = 0, *, ran_s: float = 0.01) -> None:
        [key] = [key for key in self.running() if key.job == job]
        self.end(key.run_id, code, ran_s=ran_s)

    # -- what the daemon asks ------------------------------------------------------------------

    async def Nudge(self, request: Any, context: Any) -> Any:
        self.take(agent.Nudged(time.monotonic(), from_wire(m.Nudge, request)))
        return node_pb2.NudgeReply()

    async def SendSignal(self, request: Any, context: Any) -> Any:
        self.signals.append((from_wire(m.RunKey, request.key), request.number))
        return node_pb2.SignalReply()

    async def Output(self, request: Any, context: Any) -> Any:
        yield node_pb2.OutputChunk(data=self.output)
