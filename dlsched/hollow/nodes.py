"""The hollow nodes of one process: their server, their ports, their begin and end."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Sequence
from types import TracebackType

from dlsched.core.errors import plural
from dlsched.hollow.jobs import SimulatedJobs
from dlsched.hollow.node import HollowNode
from dlsched.hollow.service import HollowService
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.agent.trust import trust_of_callers
from dlsched.protocol.messages import BootId, NodeName
from dlsched.rpc.server import add_ports, new_server
from dlsched.rpc.v1 import node_pb2_grpc


class HollowNodes:
    """Some nodes of one process; entering registers them, leaving switches them off.

    Attributes:
        nodes: by name.
        failed: has the error of the first node of which a step failed.
    """

    def __init__(self, each: Sequence[Settings], jobs: SimulatedJobs) -> None:
        """Make nodes with these settings; an event loop must be running."""
        boot_id = BootId(f"hollow-{secrets.token_hex(8)}")
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.nodes = {NodeName(s.name): HollowNode(s, jobs, boot_id, self.failed) for s in each}
        self._server = new_server(trust_of_callers(each[0]))
        self._beginning: asyncio.Task[None] | None = None

    async def __aenter__(self) -> HollowNodes:
        """Listen, and begin to register.

        Raises:
            DlschedError: an address cannot be used, or a certificate is not valid.
        """
        node_pb2_grpc.add_AgentServicer_to_server(  # type: ignore[no-untyped-call]  # generated
            HollowService(self.nodes), self._server
        )
        addresses = [self._listen(node.settings) for node in self.nodes.values()]
        await self._server.start()
        self._beginning = asyncio.create_task(self._begin(addresses))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave; runs that are held are lost, as when machines are switched off."""
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)
        await asyncio.gather(*(node.close() for node in self.nodes.values()))
        await self._server.stop(0.2)

    def _listen(self, settings: Settings) -> str:
        """Open a node's own port, so that the daemon has as many connections as with real nodes."""
        port = add_ports(self._server, [settings.listen], trust_of_callers(settings))[0]
        return f"{settings.listen.rpartition(':')[0]}:{port}"

    async def _begin(self, addresses: Sequence[str]) -> None:
        """Begin over one beat, so that syncs are spread as those of machines are."""
        for node, address in zip(self.nodes.values(), addresses, strict=True):
            node.begin(address)
            pause = node.settings.timing.beat_s / len(self.nodes)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))

    async def all_joined(self) -> None:
        """Wait until the daemon has answered each node."""
        for node in self.nodes.values():
            await node.leader.connected.wait()

    def summary(self) -> str:
        """Return one line on what has happened so far."""
        each = self.nodes.values()
        executed, over = sum(n.executed for n in each), sum(n.over for n in each)
        held = sum(len(n.keepers) for n in each)
        return (
            f"{plural(len(each), 'node')}; {plural(executed, 'run')} executed, {over} over, "
            f"{held} held"
        )
