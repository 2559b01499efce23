"""The Control service: each RPC identifies its caller and hands over to one module."""
# ruff: noqa: D102, N802  # methods are named and described in control.proto

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

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
from dlsched.daemon.control.submission.site_filter import SiteFilter
from dlsched.daemon.control.submission.storage_bounds import StorageBounds, require_disk
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
from dlsched.rpc.v1 import attach_pb2, control_pb2, control_pb2_grpc


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
        self._storage = StorageBounds(cluster)
        self.site_filter = SiteFilter(cluster)
        self._submissions = Submissions(cluster, predictions, self._storage)
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
    async def Submit(
        self, request: control_pb2.SubmitRequest, context: object
    ) -> control_pb2.SubmitReply:
        caller = identity_of(context)
        asked, notes = await self.site_filter.submission(request, caller)
        reply = await self._submissions.submit(asked, caller)
        reply.warnings.extend(notes)
        return reply

    @streamed
    async def Queue(
        self, request: control_pb2.QueueRequest, context: object
    ) -> AsyncGenerator[control_pb2.QueuePage]:
        self._require_state()
        caller = identity_of(context)
        async for page in self._lists.queue(request, caller):
            yield page

    @answered
    async def Show(
        self, request: control_pb2.ShowRequest, context: object
    ) -> control_pb2.ShowReply:
        self._require_state()
        return await self._details.show(request, identity_of(context))

    @answered
    async def Metrics(
        self, request: control_pb2.MetricsRequest, context: object
    ) -> control_pb2.MetricsReply:
        self._require_state()
        return await job_metrics(self._cluster, request, identity_of(context))

    @answered
    async def Sweep(
        self, request: control_pb2.SweepRequest, context: object
    ) -> control_pb2.SweepReply:
        self._require_state()
        return await sweep(self._cluster, request, identity_of(context))

    @answered
    async def Tasks(
        self, request: control_pb2.TasksRequest, context: object
    ) -> control_pb2.TasksReply:
        self._require_state()
        return await short_tasks(self._cluster, request, identity_of(context))

    @streamed
    async def History(
        self, request: control_pb2.HistoryRequest, context: object
    ) -> AsyncGenerator[control_pb2.HistoryPage]:
        caller = identity_of(context)
        async for page in self._lists.history(request, caller):
            yield page

    @answered
    async def Act(self, request: control_pb2.ActRequest, context: object) -> control_pb2.ActReply:
        return await job_actions.act(self._cluster, request, identity_of(context), self._storage)

    @answered
    async def Update(
        self, request: control_pb2.UpdateRequest, context: object
    ) -> control_pb2.ActReply:
        require_disk(self._cluster)
        caller = identity_of(context)
        asked, notes = await self.site_filter.update(request, caller)
        reply = await updating.update(self._cluster, asked, caller, self._storage)
        reply.lines.extend(notes)
        return reply

    @streamed
    async def Wait(
        self, request: control_pb2.WaitRequest, context: object
    ) -> AsyncGenerator[control_pb2.WaitReply]:
        caller = identity_of(context)
        async for reply in self._ends.wait(request, caller):
            yield reply

    @streamed
    async def Logs(
        self, request: control_pb2.LogsRequest, context: object
    ) -> AsyncGenerator[control_pb2.LogChunk]:
        self._require_state()
        async for chunk in logs.logs(self._cluster, request, identity_of(context)):
            yield chunk

    @streamed
    async def Attach(
        self, request: AsyncIterator[attach_pb2.AttachInput], context: object
    ) -> AsyncGenerator[attach_pb2.AttachOutput]:
        self._require_state()
        outputs = self._attachments.attach(request, identity_of(context))
        async with aclosing(outputs):
            async for output in outputs:
                yield output

    @streamed
    async def Forward(
        self, request: AsyncIterator[attach_pb2.AttachInput], context: object
    ) -> AsyncGenerator[attach_pb2.AttachOutput]:
        self._require_state()
        outputs = self._attachments.forward(request, identity_of(context))
        async with aclosing(outputs):
            async for output in outputs:
                yield output

    @answered
    async def Nodes(
        self, request: control_pb2.NodesRequest, context: object
    ) -> control_pb2.NodesReply:
        self._require_state()
        return nodes.nodes(self._cluster, request)

    @answered
    async def SetNodes(
        self, request: control_pb2.SetNodesRequest, context: object
    ) -> control_pb2.ActReply:
        return await nodes.set_nodes(self._cluster, request, identity_of(context))

    @answered
    async def Status(
        self, request: control_pb2.StatusRequest, context: object
    ) -> control_pb2.StatusReply:
        return await self._admin.status()

    @answered
    async def Usage(
        self, request: control_pb2.UsageRequest, context: object
    ) -> control_pb2.UsageReply:
        self._require_state()
        return await self._admin.usage(request, identity_of(context))

    @answered
    async def Checkpoints(
        self, request: control_pb2.CheckpointsRequest, context: object
    ) -> control_pb2.CheckpointsReply:
        self._require_state()
        return await checkpoints(self._cluster, request, identity_of(context))

    @answered
    async def WhatIf(
        self, request: control_pb2.WhatIfRequest, context: object
    ) -> control_pb2.WhatIfReply:
        self._require_state()
        return await self._alternatives.answer(request, identity_of(context))

    @answered
    async def SetShadow(
        self, request: control_pb2.SetShadowRequest, context: object
    ) -> control_pb2.ShadowReply:
        return await self._shadow.set(request, identity_of(context))

    @answered
    async def Shadow(
        self, request: control_pb2.ShadowRequest, context: object
    ) -> control_pb2.ShadowReply:
        self._require_state()
        return await self._shadow.show()

    @answered
    async def Calibration(
        self, request: control_pb2.CalibrationRequest, context: object
    ) -> control_pb2.CalibrationReply:
        return await self._admin.calibration(request)

    @answered
    async def Orphans(
        self, request: control_pb2.OrphansRequest, context: object
    ) -> control_pb2.OrphansReply:
        return await nodes.orphans(self._cluster, request, identity_of(context))

    @answered
    async def ConfirmOver(
        self, request: control_pb2.ConfirmOverRequest, context: object
    ) -> control_pb2.ActReply:
        return await nodes.confirm_over(self._cluster, request, identity_of(context))

    @streamed
    async def Audit(
        self, request: control_pb2.AuditRequest, context: object
    ) -> AsyncGenerator[control_pb2.AuditPage]:
        async for page in audit.pages(self._cluster, request):
            yield page

    @answered
    async def Tenants(
        self, request: control_pb2.TenantsRequest, context: object
    ) -> control_pb2.TenantsReply:
        self._require_state()
        return await tenants.tenants(self._cluster, request)

    @answered
    async def SetTenant(
        self, request: control_pb2.SetTenantRequest, context: object
    ) -> control_pb2.TenantReply:
        return await tenants.set_tenant(self._cluster, request, identity_of(context))

    @answered
    async def RemoveTenant(
        self, request: control_pb2.RemoveTenantRequest, context: object
    ) -> control_pb2.TenantReply:
        return await tenants.remove_tenant(self._cluster, request, identity_of(context))

    @answered
    async def Speeds(
        self, request: control_pb2.SpeedsRequest, context: object
    ) -> control_pb2.SpeedsReply:
        self._require_state()
        return await speeds.speeds(self._cluster, request)

    @answered
    async def SetSpeeds(
        self, request: control_pb2.SetSpeedsRequest, context: object
    ) -> control_pb2.SpeedsChanged:
        return await speeds.set_speeds(self._cluster, request, identity_of(context))

    @answered
    async def ForgetSpeeds(
        self, request: control_pb2.SpeedsRequest, context: object
    ) -> control_pb2.SpeedsChanged:
        return await speeds.forget_speeds(self._cluster, request, identity_of(context))

    @answered
    async def SetPolicy(
        self, request: control_pb2.SetPolicyRequest, context: object
    ) -> control_pb2.SetPolicyReply:
        return await self._admin.set_policy(request, identity_of(context))

    @answered
    async def Reload(
        self, request: control_pb2.ReloadRequest, context: object
    ) -> control_pb2.ReloadReply:
        # a standby has a file of its own, which its own signal has it read again
        self._cluster.driver.require_lead()
        return await self._admin.reload(str(identity_of(context)))

    @streamed
    async def Snapshot(
        self, request: control_pb2.SnapshotRequest, context: object
    ) -> AsyncGenerator[control_pb2.SnapshotChunk]:
        async for chunk in self._admin.snapshot():
            yield chunk
