"""The Control service: each RPC identifies its caller and hands over to one module."""
# ruff: noqa: D102, N802  # methods are named and described in control.proto

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import audit, job_actions, logs, nodes, speeds, tenants
from dlsched.daemon.control.attachments import Attachments
from dlsched.daemon.control.checkpoint_lists import checkpoints
from dlsched.daemon.control.cluster_admin import ClusterAdmin
from dlsched.daemon.control.job_details import JobDetails
from dlsched.daemon.control.job_ends import JobEnds
from dlsched.daemon.control.job_lists import JobLists
from dlsched.daemon.control.job_metrics import job_metrics
from dlsched.daemon.control.predicting.alternatives import Alternatives
from dlsched.daemon.control.predicting.shadow import ShadowService
from dlsched.daemon.control.short_tasks import short_tasks
from dlsched.daemon.control.submission import updating
from dlsched.daemon.control.submission.submit import Submissions
from dlsched.daemon.control.submission.types_of_waiting_jobs import TypesOfWaitingJobs
from dlsched.daemon.control.sweeps import sweep
from dlsched.daemon.control.tokens import TokenService
from dlsched.daemon.control.views import LiveViews
from dlsched.daemon.predictions import Predictions
from dlsched.daemon.rounds import Rounds
from dlsched.daemon.rpc_errors import NotTaken, answered, streamed
from dlsched.daemon.supposing.shadow import Shadow
from dlsched.daemon.supposing.what_if import WhatIf
from dlsched.db.tokens import StoredTokens
from dlsched.rpc.identity import identity_of
from dlsched.rpc.v1 import control_pb2_grpc


class ControlService(TokenService, control_pb2_grpc.ControlServicer):
    """What users and operators ask. Method names are the wire's."""

    def __init__(
        self,
        cluster: Cluster,
        rounds: Rounds,
        predictions: Predictions,
        what_if: WhatIf,
        shadow: Shadow,
        admin: ClusterAdmin,
    ) -> None:
        """Make the service.

        Args:
            cluster: the state in memory.
            rounds: the round loop.
            predictions: of starts and ends.
            what_if: answers questions about alternatives.
            shadow: a policy that decides without acting.
            admin: for what is about the whole cluster.
        """
        self._cluster = cluster
        self.tokens = StoredTokens(cluster.driver.store.engine)
        views = LiveViews(cluster)
        self._submissions = Submissions(cluster, predictions)
        self._lists = JobLists(cluster, views, predictions, rounds)
        self._details = JobDetails(cluster, views, predictions)
        self._ends = JobEnds(cluster, views)
        TypesOfWaitingJobs(cluster)  # the driver has it
        self._attachments = Attachments(cluster)
        self._alternatives = Alternatives(cluster, what_if)
        self._shadow = ShadowService(cluster, shadow)
        self._admin = admin

    def _require_state(self) -> None:
        """Refuse on a standby, which has no jobs in memory: clients ask the leader.

        Raises:
            NotTaken: this process does not lead.
        """
        if not self._cluster.driver.leading:
            down = self._cluster.driver.store_down
            raise NotTaken(f"the database is away: {down}" if down else "this daemon does not lead")

    @answered
    async def Submit(self, request: Any, context: Any) -> Any:
        return await self._submissions.submit(request, identity_of(context))

    @streamed
    async def Queue(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        self._require_state()
        caller = identity_of(context)
        async for page in self._lists.queue(request, caller):
            yield page

    @answered
    async def Show(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await self._details.show(request, identity_of(context))

    @answered
    async def Metrics(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await job_metrics(self._cluster, request, identity_of(context))

    @answered
    async def Sweep(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await sweep(self._cluster, request, identity_of(context))

    @answered
    async def Tasks(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await short_tasks(self._cluster, request, identity_of(context))

    @streamed
    async def History(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        caller = identity_of(context)
        async for page in self._lists.history(request, caller):
            yield page

    @answered
    async def Act(self, request: Any, context: Any) -> Any:
        return await job_actions.act(self._cluster, request, identity_of(context))

    @answered
    async def Update(self, request: Any, context: Any) -> Any:
        return await updating.update(self._cluster, request, identity_of(context))

    @streamed
    async def Wait(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        caller = identity_of(context)
        async for reply in self._ends.wait(request, caller):
            yield reply

    @streamed
    async def Logs(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        self._require_state()
        async for chunk in logs.logs(self._cluster, request, identity_of(context)):
            yield chunk

    @streamed
    async def Attach(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        self._require_state()
        outputs = self._attachments.attach(request, identity_of(context))
        async with aclosing(outputs):
            async for output in outputs:
                yield output

    @streamed
    async def Forward(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        self._require_state()
        outputs = self._attachments.forward(request, identity_of(context))
        async with aclosing(outputs):
            async for output in outputs:
                yield output

    @answered
    async def Nodes(self, request: Any, context: Any) -> Any:
        self._require_state()
        return nodes.nodes(self._cluster, request)

    @answered
    async def SetNodes(self, request: Any, context: Any) -> Any:
        return await nodes.set_nodes(self._cluster, request, identity_of(context))

    @answered
    async def Status(self, request: Any, context: Any) -> Any:
        return await self._admin.status()

    @answered
    async def Usage(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await self._admin.usage(request, identity_of(context))

    @answered
    async def Checkpoints(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await checkpoints(self._cluster, request, identity_of(context))

    @answered
    async def WhatIf(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await self._alternatives.answer(request, identity_of(context))

    @answered
    async def SetShadow(self, request: Any, context: Any) -> Any:
        return await self._shadow.set(request, identity_of(context))

    @answered
    async def Shadow(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await self._shadow.show()

    @answered
    async def Calibration(self, request: Any, context: Any) -> Any:
        return await self._admin.calibration(request)

    @answered
    async def Orphans(self, request: Any, context: Any) -> Any:
        return await nodes.orphans(self._cluster, request, identity_of(context))

    @answered
    async def ConfirmOver(self, request: Any, context: Any) -> Any:
        return await nodes.confirm_over(self._cluster, request, identity_of(context))

    @streamed
    async def Audit(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        async for page in audit.pages(self._cluster, request):
            yield page

    @answered
    async def Tenants(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await tenants.tenants(self._cluster, request)

    @answered
    async def SetTenant(self, request: Any, context: Any) -> Any:
        return await tenants.set_tenant(self._cluster, request, identity_of(context))

    @answered
    async def RemoveTenant(self, request: Any, context: Any) -> Any:
        return await tenants.remove_tenant(self._cluster, request, identity_of(context))

    @answered
    async def Speeds(self, request: Any, context: Any) -> Any:
        self._require_state()
        return await speeds.speeds(self._cluster, request)

    @answered
    async def SetSpeeds(self, request: Any, context: Any) -> Any:
        return await speeds.set_speeds(self._cluster, request, identity_of(context))

    @answered
    async def ForgetSpeeds(self, request: Any, context: Any) -> Any:
        return await speeds.forget_speeds(self._cluster, request, identity_of(context))

    @answered
    async def SetPolicy(self, request: Any, context: Any) -> Any:
        return await self._admin.set_policy(request, identity_of(context))

    @answered
    async def Reload(self, request: Any, context: Any) -> Any:
        return await self._admin.reload(str(identity_of(context)))

    @streamed
    async def Snapshot(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        async for chunk in self._admin.snapshot():
            yield chunk
