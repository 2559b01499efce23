"""The daemon's channels to the agents of the nodes: addresses, nudges, output, signals.

A nudge says only "sync now" and may be lost: the next beat does the same. So only one nudge is on
its way to a node at a time, and the next one carries the newest term.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable

import grpc

from dlsched.core.sums import ordered_sum
from dlsched.protocol.messages import NodeName, Nudge
from dlsched.rpc.call_failures import ChannelClosed, answer
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import node_pb2, node_pb2_grpc
from dlsched.system.clock import boottime
from dlsched.system.fault_points import fault_point

log = logging.getLogger("dlsched.daemon.nodes.agents")
NUDGE_S = 3.0


class Described:
    """What one node has reported about itself."""

    def __init__(self, facts: node_pb2.NodeFacts, *, recalled: bool = False) -> None:
        self.facts = facts
        self.recalled = recalled  # from the database: the node has not reported it to this process
        self.start = ""  # of the agent that has reported it; empty: not known
        self.uses: dict[str, node_pb2.GpuUse] = {}
        self.faults: tuple[str, ...] = ()  # why it is drained at every report
        self.problems: tuple[str, ...] = ()  # why it starts nothing now
        self.heard_at = boottime()
        self.utilization = math.nan  # 0..1, the mean of the GPUs that tell it
        self.memory_used_bytes = math.nan  # the sum, likewise

    def take_uses(self, uses: Iterable[node_pb2.GpuUse]) -> None:
        """Take in what some GPUs do now."""
        for use in uses:
            self.uses[use.uuid] = use
        every = self.uses.values()
        busy = [each.utilization for each in every if each.HasField("utilization")]
        used = [each.memory_used_bytes for each in every if each.HasField("memory_used_bytes")]
        self.utilization = ordered_sum(busy) / len(busy) if busy else math.nan
        self.memory_used_bytes = float(sum(used)) if used else math.nan


class Agents:
    """Channels to agents, made when they are needed.

    Attributes:
        described: what each node has reported about itself.
        lost_nudges: how many nudges did not reach their node.
    """

    def __init__(
        self,
        open_channel: Callable[[str, str], grpc.aio.Channel],
        stamp: Callable[[], object] = lambda: None,
    ) -> None:
        """Make it without any channel.

        `open_channel` opens one to an address, where a node of that name must answer; when the
        value of `stamp` changes, channels are opened anew, for a new certificate.
        """
        self._open = open_channel
        self._stamp = stamp
        self._channels: dict[NodeName, tuple[object, grpc.aio.Channel]] = {}
        self.described: dict[NodeName, Described] = {}
        self._nudging: dict[NodeName, asyncio.Task[None]] = {}
        self._next: dict[NodeName, Nudge] = {}
        self.lost_nudges = 0

    def recall(self, node: NodeName, facts: node_pb2.NodeFacts) -> None:
        """Take in what the database has of a node, until the node reports."""
        if node not in self.described:
            self.described[node] = Described(facts, recalled=True)

    def wants_facts(self, node: NodeName, starts: Collection[str]) -> bool:
        """Whether a node has not reported its facts to this process.

        Args:
            node: its name.
            starts: of the agent that asks; the facts of another agent do not count.
        """
        known = self.described.get(node)
        if known is None or known.recalled:
            return True
        return bool(starts and known.start) and known.start not in starts

    def describe(self, message: node_pb2.NodeDescription) -> bool:
        """Take in a description; returns whether its facts are new."""
        name = NodeName(message.node)
        known = self.described.get(name)
        news = False
        if message.HasField("facts"):
            news = known is None or known.facts != message.facts
            if known is None:
                known = self.described[name] = Described(message.facts)
            known.facts, known.recalled = message.facts, False
            known.start = message.starts[-1] if message.starts else ""
        if known is not None:
            known.heard_at, known.faults = boottime(), tuple(message.faults)
            known.problems = tuple(message.problems)
            known.take_uses(message.uses)
        return news

    def stub(self, node: NodeName) -> node_pb2_grpc.AgentStub | None:
        """A client of a node's agent; None when its address is not known."""
        known = self.described.get(node)
        if known is None or not known.facts.address:
            return None
        held, wanted = self._channels.get(node), (known.facts.address, self._stamp())
        if held is None or held[0] != wanted:
            if held is not None:
                self._close(held[1])
            channel = self._open(known.facts.address, node)
            held = self._channels[node] = (wanted, channel)
        return node_pb2_grpc.AgentStub(held[1])  # type: ignore[no-untyped-call]  # generated

    def nudge(self, nudge: Nudge) -> None:
        """Ask a node's agent to sync soon."""
        fault_point("between-nudges")
        self._next[nudge.node] = nudge
        if nudge.node not in self._nudging:
            task = asyncio.get_running_loop().create_task(self._nudge(nudge.node))
            self._nudging[nudge.node] = task

    async def _nudge(self, node: NodeName) -> None:
        try:
            while (nudge := self._next.pop(node, None)) is not None:
                stub = self.stub(node)
                if stub is None:
                    return
                try:
                    await answer(stub.Nudge(to_wire(nudge), timeout=NUDGE_S))
                except (grpc.aio.AioRpcError, ChannelClosed) as error:
                    self.lost_nudges += 1
                    log.debug("event=nudge-lost node=%s why=%s", node, error)
        finally:
            self._nudging.pop(node, None)

    @staticmethod
    def _close(channel: grpc.aio.Channel) -> None:
        closing = asyncio.get_running_loop().create_task(channel.close())
        closing.add_done_callback(lambda task: task.exception())

    async def close(self) -> None:
        """Close every channel."""
        for task in list(self._nudging.values()):
            task.cancel()
        await asyncio.gather(*self._nudging.values(), return_exceptions=True)
        for _, channel in self._channels.values():
            await channel.close()
        self._channels.clear()
