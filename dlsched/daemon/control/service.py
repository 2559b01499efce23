"""The Control service: each RPC checks who asks and hands over to the module that knows."""
# ruff: noqa: D102, N802  # methods are named and described in control.proto

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from dlsched.core.errors import Unavailable
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import (
    acting,
    calibrating,
    governing,
    listing,
    logs,
    machines,
    measuring,
    showing,
    tenancy,
    updating,
    waiting,
)
from dlsched.daemon.control import submit as submission
from dlsched.daemon.control.token_desk import TokenDesk
from dlsched.daemon.control.views import Views
from dlsched.daemon.refusals import answered, streamed
from dlsched.db.tokens import StoredTokens
from dlsched.rpc.identity import identity_of
from dlsched.rpc.v1 import control_pb2_grpc

__all__ = ["ControlService"]


class ControlService(TokenDesk, control_pb2_grpc.ControlServicer):
    """What users and operators ask. Method names are the wire's."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.tokens = StoredTokens(cluster.shell.store.engine)
        self._views = Views(cluster)
        self._ends = waiting.Ends(cluster)

    def _require_state(self) -> None:
        """A standby has no jobs in memory: who asks tries the leader.

        Raises:
            Unavailable: this process does not lead.
        """
        if not self._cluster.shell.leading:
            down = self._cluster.shell.store_down
            raise Unavailable(
                f"the database is away: {down}" if down else "this daemon does not lead"
            )

    @answered
    async def Submit(self, request: Any, context: Any) -> Any:
        return await submission.submit(self._cluster, request, identity_of(context))

    @streamed
    async def Queue(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self._require_state()
        caller = identity_of(context)
        async for page in listing.queue(self._cluster, self._views, request, caller):
            yield page

    @answered
    async def Show(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await showing.show(self._cluster, self._views, request, identity_of(context))

    @streamed
    async def History(self, request: Any, context: Any) -> AsyncIterator[Any]:
        caller = identity_of(context)
        async for page in listing.history(self._cluster, self._views, request, caller):
            yield page

    @answered
    async def Act(self, request: Any, context: Any) -> Any:
        return await acting.act(self._cluster, request, identity_of(context))

    @answered
    async def Update(self, request: Any, context: Any) -> Any:
        return await updating.update(self._cluster, request, identity_of(context))

    @streamed
    async def Wait(self, request: Any, context: Any) -> AsyncIterator[Any]:
        caller = identity_of(context)
        async for reply in waiting.wait(self._cluster, self._views, self._ends, request, caller):
            yield reply

    @streamed
    async def Logs(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self._require_state()
        async for chunk in logs.logs(self._cluster, request, identity_of(context)):
            yield chunk

    @answered
    async def Nodes(self, request: Any, context: Any) -> Any:
        self._require_state()
        return machines.nodes(self._cluster, request)

    @answered
    async def SetNodes(self, request: Any, context: Any) -> Any:
        return await machines.set_nodes(self._cluster, request, identity_of(context))

    @answered
    async def Status(self, request: Any, context: Any) -> Any:
        return governing.status(self._cluster)

    @answered
    async def Usage(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await governing.usage(self._cluster, request, identity_of(context))

    @answered
    async def Calibration(self, request: Any, context: Any) -> Any:
        return await calibrating.calibration(self._cluster, request)

    @answered
    async def Tenants(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await tenancy.tenants(self._cluster, request)

    @answered
    async def SetTenant(self, request: Any, context: Any) -> Any:
        return await tenancy.set_tenant(self._cluster, request, identity_of(context))

    @answered
    async def RemoveTenant(self, request: Any, context: Any) -> Any:
        return await tenancy.remove_tenant(self._cluster, request, identity_of(context))

    @answered
    async def Speeds(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await measuring.speeds(self._cluster, request)

    @answered
    async def SetSpeeds(self, request: Any, context: Any) -> Any:
        return await measuring.set_speeds(self._cluster, request, identity_of(context))

    @answered
    async def ForgetSpeeds(self, request: Any, context: Any) -> Any:
        return await measuring.forget_speeds(self._cluster, request, identity_of(context))

    @answered
    async def SetPolicy(self, request: Any, context: Any) -> Any:
        return await governing.set_policy(self._cluster, request, identity_of(context))

    @answered
    async def Reload(self, request: Any, context: Any) -> Any:
        return await governing.reload(self._cluster, str(identity_of(context)))

    @streamed
    async def Snapshot(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for chunk in governing.snapshot(self._cluster):
            yield chunk
