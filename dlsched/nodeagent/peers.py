"""The other agents of the cluster: witnesses, and members of the same gangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpc import aio

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.settings import Settings
from dlsched.nodeagent.trust import certificate_stamp, to_peer
from dlsched.protocol.messages import NodeName, WitnessAnswer, WitnessQuery
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.hanging_up import answer
from dlsched.rpc.v1 import node_pb2_grpc

_ANSWER_S = 3.0


class Peers:
    """Channels to other agents, made when needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._addresses: dict[NodeName, str] = {}
        self._channels: dict[tuple[NodeName, str], aio.Channel] = {}
        self._stamp = certificate_stamp(settings)

    def learn(self, addresses: Mapping[str, str]) -> None:
        """Where agents are, as the daemon says."""
        self._addresses.update({NodeName(name): at for name, at in addresses.items() if at})

    def stub(self, node: NodeName, address: str = "") -> Any:
        """Another agent's service.

        Raises:
            DlschedError: when it is not known where it is.
        """
        if address:
            self._addresses[node] = address
        target = self._addresses.get(node, "")
        if not target:
            raise DlschedError(f"the address of node {node} is not known")
        stamp = certificate_stamp(self._settings)
        if stamp != self._stamp:  # renewed: whoever still talks keeps the old channel until then
            self._stamp = stamp
            self._channels.clear()
        channel = self._channels.get((node, target))
        if channel is None:
            channel = self._channels[node, target] = to_peer(self._settings, node, target)
        return node_pb2_grpc.AgentStub(channel)  # type: ignore[no-untyped-call]  # generated

    async def ask(self, query: WitnessQuery) -> WitnessAnswer | None:
        """Ask a witness; None when it does not answer."""
        try:
            call = self.stub(query.witness).Witness(to_wire(query), timeout=_ANSWER_S)
            return from_wire(WitnessAnswer, await answer(call))
        except (aio.AioRpcError, DlschedError):
            return None

    async def close(self) -> None:
        """Hang up on all."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
