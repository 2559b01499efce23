"""What the daemon and other agents ask of hollow nodes: one service for all nodes of a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc

from dlsched.hollow.node import HollowNode
from dlsched.protocol import agent
from dlsched.protocol import messages as m
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.v1 import node_pb2, node_pb2_grpc
from dlsched.system import clock

OUTPUT = b"a hollow node executes nothing: this job has no output\n"


class HollowService(node_pb2_grpc.AgentServicer):
    """Answers for each of some nodes; its methods are described in the proto."""

    def __init__(self, nodes: Mapping[m.NodeName, HollowNode]) -> None:
        """Answer for these nodes."""
        self._nodes = nodes

    async def _node(self, name: m.NodeName, context: Any) -> HollowNode:
        node = self._nodes.get(name)
        if node is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"node {name} is not here")
            raise AssertionError  # `abort` has raised
        return node

    async def Nudge(self, request: Any, context: Any) -> Any:  # noqa: N802  # the proto's name
        """Make a node sync now."""
        nudge = from_wire(m.Nudge, request)
        node = await self._node(nudge.node, context)
        node.handle(agent.Nudged(clock.boottime(), nudge))
        return node_pb2.NudgeReply()

    async def Witness(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return when a leader last renewed a node's lease."""
        query = from_wire(m.WitnessQuery, request)
        node = await self._node(query.witness, context)
        _, commands = agent.step(node.state, agent.WitnessAsked(clock.boottime(), query))
        return to_wire(next(c.answer for c in commands if isinstance(c, agent.AnswerWitness)))

    async def SendSignal(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Send one signal to one run."""
        key = from_wire(m.RunKey, request.key)
        holding = [node for node in self._nodes.values() if key.run_id in node.keepers]
        if not holding:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no node here holds run {key}")
        for node in holding:
            node.keepers[key.run_id].order(m.Signal(request.number))
        return node_pb2.SignalReply()

    async def DeleteCheckpoints(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Report all folders as deleted: hollow nodes write none."""
        del context
        return node_pb2.DeleteCheckpointsReply(gone=request.paths)

    async def Output(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Say that there is no output."""
        del request, context
        yield node_pb2.OutputChunk(data=OUTPUT)
