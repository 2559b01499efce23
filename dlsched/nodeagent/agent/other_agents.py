"""The agents of other nodes: witnesses of this one, and members of the same gangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpc import aio

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.agent.trust import certificate_stamp, open_agent_channel
from dlsched.protocol.messages import NodeName, WitnessAnswer, WitnessQuery
from dlsched.rpc.call_failures import answer
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.v1 import node_pb2_grpc

_ANSWER_S = 3.0


class OtherAgents:
    """Channels to the agents of other nodes, opened when they are needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._addresses: dict[NodeName, str] = {}
        self._channels: dict[tuple[NodeName, str], aio.Channel] = {}
        self._stamp = certificate_stamp(settings)

    def set_addresses(self, addresses: Mapping[str, str]) -> None:
        """Note the addresses of agents, by node, that the daemon has sent."""
        self._addresses.update({NodeName(name): at for name, at in addresses.items() if at})

    def stub(self, node: NodeName, address: str = "") -> Any:
        """Return the gRPC stub of another node's agent, at `address` when one is given.

        Raises:
            DlschedError: when its address is not known.
        """
        if address:
            self._addresses[node] = address
        target = self._addresses.get(node, "")
        if not target:
            raise DlschedError(f"the address of node {node} is not known")
        stamp = certificate_stamp(self._settings)
        if stamp != self._stamp:  # renewed: calls that are under way keep their old channel
            self._stamp = stamp
            self._channels.clear()
        channel = self._channels.get((node, target))
        if channel is None:
            channel = self._channels[node, target] = open_agent_channel(
                self._settings, node, target
            )
        return node_pb2_grpc.AgentStub(channel)  # type: ignore[no-untyped-call]  # generated

    async def ask_witness(self, query: WitnessQuery) -> WitnessAnswer | None:
        """Ask a witness; return None when it does not answer."""
        try:
            call = self.stub(query.witness).Witness(to_wire(query), timeout=_ANSWER_S)
            return from_wire(WitnessAnswer, await answer(call))
        except (aio.AioRpcError, DlschedError):
            return None

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
