"""The connection to the leader: sends the newest sync, and tries again for ever.

Daemons are tried in turn; between failures the wait grows to a bound and differs from node to node.
A sync that waits too long is not sent at all: a new one is built when the daemon is back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio

from dlsched.core.errors import BadInput, DlschedError
from dlsched.protocol.messages import Epoch, NodeName, Reply, RunKey, Sync
from dlsched.protocol.timing import Timing
from dlsched.rpc.call_failures import ChannelClosed, answer, tls_trouble
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2, node_pb2_grpc
from dlsched.system import clock

log = logging.getLogger(__name__)
AT_ONCE, PATIENCE_S = 3, 0.5  # syncs under way; how long a new one waits for an answer to the last
_leader: Callable[[aio.Channel], Any] = node_pb2_grpc.LeaderStub
_runs: Callable[[aio.Channel], Any] = control_pb2_grpc.RunsStub
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 10.0
_LATER = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class NotLaunched(DlschedError):
    """A run is not launched, with the reason."""


@dataclass(eq=False, slots=True)
class LeaderLink:
    """One agent's calls to the daemon that leads."""

    node: NodeName  # this agent's
    targets: tuple[str, ...]  # addresses of the daemons
    trust: ClientTrust
    timing: Timing
    on_reply: Callable[[Reply], None]
    on_ready: Callable[[], None]  # called when a new sync is wanted after a failure
    connected: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    answered: int = field(default=0, init=False)  # syncs, since this process began
    failures: int = field(default=0, init=False)  # to reach a daemon, likewise
    # the answers come from another term than before
    new_leader: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _at: int = field(default=0, init=False)
    _failures: int = field(default=0, init=False)  # since the last answer
    _failure: str = field(default="", init=False)  # the newest, unless a sync was answered since
    _channel: aio.Channel | None = field(default=None, init=False)
    # of the channel, by what makes them
    _stubs: dict[Callable[[aio.Channel], Any], Any] = field(default_factory=dict, init=False)
    _next: Sync | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _later: asyncio.TimerHandle | None = field(default=None, init=False)
    _logged: str = field(default="", init=False)  # the newest failure in the log
    _epoch: Epoch | None = field(default=None, init=False)
    # runs that are about to be asked for, together
    _launching: dict[RunKey, asyncio.Future[control_pb2.LaunchSpec | None]] = field(
        default_factory=dict, init=False
    )

    def send(self, sync: Sync) -> None:
        """Send a sync soon; it takes the place of an older one that still waits."""
        self._next = sync
        self._wake.set()

    def later(self, at: float, call: Callable[[], None]) -> None:
        """Make a call at a time of the node's clock, in place of one that was planned before."""
        if self._later is not None:
            self._later.cancel()
        wait = max(at - clock.boottime(), 0.0)
        self._later = asyncio.get_running_loop().call_later(wait, call)

    async def run(self) -> None:
        """Send syncs, for ever; a few at once, so that one without an answer delays no other."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._failure:
                    why, self._failure = self._failure, ""
                    self.connected.clear()
                    await self._back_off(why)
                    self._next = None  # too old; a new one follows
                    self.on_ready()
                while len(under_way) >= AT_ONCE:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                sync, self._next = self._next, None
                if sync is None:
                    continue
                task = asyncio.get_running_loop().create_task(self._exchange(sync))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                task.add_done_callback(lambda _task: self._wake.set())
                # usually answered at once; all changes until then go in one sync
                await asyncio.wait({task}, timeout=PATIENCE_S)
        finally:
            for task in under_way:
                task.cancel()

    async def _exchange(self, sync: Sync) -> None:
        """Send one sync and pass its reply on, or note why there is none."""
        before = self.answered
        try:
            stub = self._stub(_leader)
            answered = await answer(stub.Sync(to_wire(sync), timeout=self.timing.reply_age_s))
            reply = from_wire(Reply, answered)
        except aio.AioRpcError as error:
            if before == self.answered:
                self._failure = self._words(error)
            return
        except ChannelClosed:  # `_back_off` has closed the channel
            return
        except DlschedError as error:
            self._failure = str(error)
            return
        if self._failures or not self.connected.is_set():
            log.info("daemon-reached daemon=%s", self.targets[self._at])
        self._failures, self._logged = 0, ""
        self.answered += 1
        self.connected.set()
        if reply.term.epoch != self._epoch:
            self._epoch = reply.term.epoch
            self.new_leader.set()
        self.on_reply(reply)

    def _words(self, error: aio.AioRpcError) -> str:
        details, target = error.details() or "", self.targets[self._at]
        if error.code() is grpc.StatusCode.UNAVAILABLE and self.trust.files is not None:
            trouble = tls_trouble(details, target, self.trust, answered=self.answered > 0)
            if trouble is not None:
                return trouble
        return f"{error.code().name.lower()}: {details}"

    def _stub(self, kind: Callable[[aio.Channel], Any]) -> Any:
        """Return what calls one service of the daemon; it opens a channel, if there is none."""
        if self._channel is None:
            self._channel = open_channel(self.targets[self._at], self.trust)
        if kind not in self._stubs:
            self._stubs[kind] = kind(self._channel)
        return self._stubs[kind]

    async def _back_off(self, why: str) -> None:
        if why != self._logged:
            log.warning("daemon-not-reached daemon=%s why=%s", self.targets[self._at], why)
            self._logged = why
        self._failures += 1
        self.failures += 1
        await self.close()
        self._at = (self._at + 1) % len(self.targets)
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._failures - 1, 16))
        await asyncio.sleep(random.uniform(0.5, 1.0) * longest)

    async def close(self) -> None:
        """Close the channel; the next call opens one."""
        channel, self._channel = self._channel, None
        self._stubs.clear()
        if channel is not None:
            await channel.close()

    # -- beside the syncs ----------------------------------------------------------------------

    async def launch(self, key: RunKey) -> control_pb2.LaunchSpec:
        """Return how to launch a run; ask again while no daemon answers.

        Raises:
            NotLaunched: when the daemon refuses.
        """
        return await self._launch_with_others(key) or await self._launch_alone(key)

    async def _launch_with_others(self, key: RunKey) -> control_pb2.LaunchSpec | None:
        """Ask once for all runs that one reply lets the node launch; None: this one is missing."""
        found: asyncio.Future[control_pb2.LaunchSpec | None]
        found = asyncio.get_running_loop().create_future()
        self._launching[key] = found
        await asyncio.sleep(0)  # until all of them are in the table
        if key not in self._launching:
            return await found  # another one has asked for this one, too
        asked, self._launching = self._launching, {}
        if len(asked) == 1:
            return None
        specs: dict[str, control_pb2.LaunchSpec] = {}
        try:
            keys = [to_wire(each) for each in asked]
            request = control_pb2.LaunchRequest(node=self.node, key=keys[0], more=keys[1:])
            stub = self._stub(_runs)
            first = await answer(stub.Launch(request, timeout=self.timing.reply_age_s))
            specs = {each.key.run_id: each for each in (first, *first.more)}
        except (aio.AioRpcError, DlschedError):
            pass  # each is asked for alone, and may be refused
        finally:
            for each, waiting in asked.items():
                if not waiting.done():
                    waiting.set_result(specs.get(each.run_id))
        return found.result()

    async def _launch_alone(self, key: RunKey) -> control_pb2.LaunchSpec:
        request = control_pb2.LaunchRequest(node=self.node, key=to_wire(key))
        while True:
            try:
                stub = self._stub(_runs)
                call = stub.Launch(request, timeout=self.timing.reply_age_s)
                found: control_pb2.LaunchSpec = await answer(call)
                return found
            except aio.AioRpcError as error:
                if error.code() not in _LATER:
                    raise NotLaunched(error.details() or error.code().name.lower()) from None
            except BadInput as error:
                raise NotLaunched(str(error)) from None
            except DlschedError:
                pass
            await asyncio.sleep(random.uniform(0.2, 0.4))
            await self.connected.wait()

    async def describe(
        self, description: node_pb2.NodeDescription
    ) -> node_pb2.DescribeReply | None:
        """Send a description of this node; return None when no daemon answers."""
        reply: node_pb2.DescribeReply | None = await self._once(_leader, "Describe", description)
        return reply

    async def report(self, report: control_pb2.RunReport) -> control_pb2.ReportReply | None:
        """Send a rank's report; return None when no daemon answers."""
        reply: control_pb2.ReportReply | None = await self._once(_runs, "Report", report)
        return reply

    async def commit_checkpoint(
        self, commit: control_pb2.CheckpointCommit
    ) -> control_pb2.CheckpointReply:
        """Ask for a checkpoint's commit until a daemon answers: accepted or not, and why."""
        try:
            reply: control_pb2.CheckpointReply = await self._until_answered(
                "CommitCheckpoint", commit
            )
        except aio.AioRpcError as error:
            return control_pb2.CheckpointReply(accepted=False, why=error.details())
        return reply

    async def exchange_tasks(self, told: control_pb2.TaskExchange) -> control_pb2.TaskBundle:
        """Tell which short tasks have ended, until a daemon answers; a refused run gets no more."""
        try:
            bundle: control_pb2.TaskBundle = await self._until_answered("ExchangeTasks", told)
        except aio.AioRpcError as error:
            log.warning("exchangetasks-refused why=%s", error.details())
            return control_pb2.TaskBundle(over=True)
        return bundle

    async def _until_answered(self, method: str, message: Any) -> Any:
        """Ask for a run until a daemon answers.

        Raises:
            AioRpcError: it refuses.
        """
        while True:
            await self.connected.wait()
            stub = self._stub(_runs)
            try:
                return await answer(getattr(stub, method)(message, timeout=self.timing.reply_age_s))
            except aio.AioRpcError as error:
                if error.code() not in _LATER:
                    raise
            except ChannelClosed:
                pass
            await asyncio.sleep(random.uniform(0.2, 0.6))

    async def _once(self, kind: Any, method: str, message: Any) -> Any:
        if not self.connected.is_set():
            return None
        try:
            stub = self._stub(kind)
            return await answer(getattr(stub, method)(message, timeout=self.timing.reply_age_s))
        except (aio.AioRpcError, DlschedError) as error:
            if isinstance(error, aio.AioRpcError) and error.code() not in _LATER:
                log.warning("%s-refused why=%s", method.lower(), error.details())
            return None
