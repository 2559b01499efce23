"""The way to the daemon: newest sync first, one at a time, tried again for ever.

Daemons are tried in turn; between failures the wait grows to a bound and is never the same on two
nodes. What waits too long is not sent at all: a sync is built anew when the daemon is back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

from dlsched.core.errors import BadInput, DlschedError
from dlsched.protocol.messages import Epoch, NodeName, Reply, RunKey, Sync
from dlsched.protocol.timing import Timing
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.hanging_up import HungUp, answer
from dlsched.rpc.unreachable import tls_trouble
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2_grpc

log = logging.getLogger(__name__)
AT_ONCE, PATIENCE_S = 3, 0.5
_leader: Callable[[aio.Channel], Any] = node_pb2_grpc.LeaderStub
_runs: Callable[[aio.Channel], Any] = control_pb2_grpc.RunsStub
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 10.0
_LATER = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class NotLaunched(DlschedError):
    """The daemon will not say how to launch a run; why."""


class LeaderLink:
    """One agent's calls to whichever daemon leads."""

    def __init__(
        self,
        node: NodeName,
        targets: tuple[str, ...],
        trust: ClientTrust,
        timing: Timing,
        *,
        replied: Callable[[Reply], None],
        ready: Callable[[], None],
    ) -> None:
        self._node, self._targets, self._trust, self._timing = node, targets, trust, timing
        self._replied, self._ready = replied, ready
        self._at = 0
        self._failures = 0
        self._answered = 0  # syncs
        self._why = ""  # the newest failure that no answer has made up for
        self._channel: aio.Channel | None = None
        self._next: Sync | None = None
        self._wake = asyncio.Event()
        self._said = ""
        self._epoch: Epoch | None = None
        self.connected = asyncio.Event()
        self.another = asyncio.Event()  # a leader of another term answers than before

    def send(self, sync: Sync) -> None:
        """Send soon; a newer one takes the place of one that still waits."""
        self._next = sync
        self._wake.set()

    async def run(self) -> None:
        """Carry syncs, for ever; a few at once, so that one without an answer holds up none."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._why:
                    why, self._why = self._why, ""
                    self.connected.clear()
                    await self._back_off(why)
                    self._next = None  # told too late; a fresh one follows
                    self._ready()
                while len(under_way) >= AT_ONCE:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                sync, self._next = self._next, None
                if sync is None:
                    continue
                task = asyncio.get_running_loop().create_task(self._exchange(sync))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                task.add_done_callback(lambda _task: self._wake.set())
                # usually answered at once; what comes up meanwhile goes in one sync
                await asyncio.wait({task}, timeout=PATIENCE_S)
        finally:
            for task in under_way:
                task.cancel()

    async def _exchange(self, sync: Sync) -> None:
        """One sync and its reply, or why not."""
        before = self._answered
        try:
            channel = self._dialled()
            stub = _leader(channel)
            said = await answer(stub.Sync(to_wire(sync), timeout=self._timing.reply_age_s))
            reply = from_wire(Reply, said)
        except aio.AioRpcError as error:
            if before == self._answered:
                self._why = self._told(error)
            return
        except HungUp:  # by `_back_off`, which knows why: no word about the channel that came after
            return
        except DlschedError as error:
            self._why = str(error)
            return
        if self._failures or not self.connected.is_set():
            log.info("daemon-reached daemon=%s", self._targets[self._at])
        self._failures, self._said = 0, ""
        self._answered += 1
        self.connected.set()
        if reply.term.epoch != self._epoch:
            self._epoch = reply.term.epoch
            self.another.set()
        self._replied(reply)

    def _told(self, error: aio.AioRpcError) -> str:
        details, target = error.details() or "", self._targets[self._at]
        if error.code() is grpc.StatusCode.UNAVAILABLE and self._trust.files is not None:
            trouble = tls_trouble(details, target, self._trust, answered=self._answered > 0)
            if trouble is not None:
                return trouble
        return f"{error.code().name.lower()}: {details}"

    def _dialled(self) -> aio.Channel:
        if self._channel is None:
            self._channel = open_channel(self._targets[self._at], self._trust)
        return self._channel

    async def _back_off(self, why: str) -> None:
        if why != self._said:
            log.warning("daemon-not-reached daemon=%s why=%s", self._targets[self._at], why)
            self._said = why
        self._failures += 1
        await self.close()
        self._at = (self._at + 1) % len(self._targets)
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._failures - 1, 16))
        await asyncio.sleep(random.uniform(0.5, 1.0) * longest)

    async def close(self) -> None:
        """Hang up."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    # -- beside the syncs ----------------------------------------------------------------------

    async def launch(self, key: RunKey) -> Any:
        """How to launch a run; asks again while nobody answers.

        Raises:
            NotLaunched: when the daemon says no.
        """
        request = control_pb2.LaunchRequest(node=self._node, key=to_wire(key))
        while True:
            try:
                stub = _runs(self._dialled())
                return await answer(stub.Launch(request, timeout=self._timing.reply_age_s))
            except aio.AioRpcError as error:
                if error.code() not in _LATER:
                    raise NotLaunched(error.details() or error.code().name.lower()) from None
            except BadInput as error:
                raise NotLaunched(str(error)) from None
            except DlschedError:
                pass
            await asyncio.sleep(random.uniform(0.2, 0.4))
            await self.connected.wait()

    async def describe(self, description: Any) -> Any:
        """Tell what this node is; None when nobody listens."""
        return await self._once(_leader, "Describe", description)

    async def report(self, report: Any) -> Any:
        """Tell what a rank has told; None when nobody listens."""
        return await self._once(_runs, "Report", report)

    async def commit_checkpoint(self, commit: Any) -> Any:
        """Ask for a commit until somebody answers: accepted or not, and why."""
        while True:
            await self.connected.wait()
            stub = _runs(self._dialled())
            try:
                return await answer(stub.CommitCheckpoint(commit, timeout=self._timing.reply_age_s))
            except aio.AioRpcError as error:
                if error.code() not in _LATER:
                    return control_pb2.CheckpointReply(accepted=False, why=error.details())
            except HungUp:
                pass
            await asyncio.sleep(random.uniform(0.2, 0.6))

    async def _once(self, kind: Any, method: str, message: Any) -> Any:
        if not self.connected.is_set():
            return None
        try:
            stub = kind(self._dialled())
            return await answer(getattr(stub, method)(message, timeout=self._timing.reply_age_s))
        except (aio.AioRpcError, DlschedError) as error:
            if isinstance(error, aio.AioRpcError) and error.code() not in _LATER:
                log.warning("%s-refused why=%s", method.lower(), error.details())
            return None
