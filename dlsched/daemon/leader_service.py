"""What agents ask: syncs, descriptions, launches, reports and checkpoints.

Invariant: a node speaks of its own runs only; what it tells beside its syncs decides nothing that
safety rests on.
"""

from __future__ import annotations

import json
import math
from typing import Any

from google.protobuf.json_format import MessageToDict

from dlsched.core.errors import BadInput, Unavailable
from dlsched.daemon.believable import MOST, check_sync, take_out_nonsense
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.faultpoints import faultpoint
from dlsched.daemon.launching import launch_spec
from dlsched.daemon.refusals import NotFound, Refused, answered
from dlsched.db.records import CheckpointCommitted, NodeDescribed, Progress
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import Job, Run
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2, node_pb2_grpc

__all__ = ["LeaderService", "RunsService"]

PROGRESS_EVERY_S = 30.0


class LeaderService(node_pb2_grpc.LeaderServicer):
    """Syncs and descriptions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @answered
    async def Sync(self, request: Any, context: Any) -> Any:  # noqa: N802  # the wire's name
        """A node's whole truth, and what it is to hold."""
        faultpoint("after-sync-read")
        sync = from_wire(m.Sync, request)
        check_sync(sync, self._cluster.shell.reserved)
        if not self._cluster.may_join(sync.node):
            raise Refused(f"node {sync.node} is not one of this cluster's configured nodes")
        reply = await self._cluster.shell.hear(sync)
        if sync.inventory is not None:
            faultpoint("after-register")
        self._cluster.heard(sync)
        return to_wire(reply)

    @answered
    async def Describe(self, request: Any, context: Any) -> Any:  # noqa: N802
        """What a node is and does."""
        cluster = self._cluster
        name = m.NodeName(request.node)
        if not cluster.may_join(name):
            raise Refused(f"node {name} is not one of this cluster's configured nodes")
        if cluster.agents.describe(request):
            facts = json.dumps(
                MessageToDict(request.facts, preserving_proto_field_name=True), sort_keys=True
            )
            cluster.shell.note(NodeDescribed(node=name, facts=facts))
        cluster.observe_uses(name)
        return node_pb2.DescribeReply(want_facts=cluster.agents.wants_facts(name))


class RunsService(control_pb2_grpc.RunsServicer):
    """What nodes ask in the name of their runs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._written: dict[m.RunId, float] = {}

    def _run(self, node: str, message: Any) -> tuple[Job, Run]:
        """The run of a key, if it is that node's.

        Raises:
            NotFound: when there is none.
        """
        shell = self._cluster.shell
        if not shell.leading:
            raise Unavailable("this daemon does not lead")
        key = from_wire(m.RunKey, message)
        run = shell.committed.runs.get(key.run_id)
        if run is None or run.key != key or m.NodeName(node) not in run.members:
            raise NotFound(f"run {key} is not one of node {node}'s")
        return shell.committed.jobs[key.job], run

    @answered
    async def Launch(self, request: Any, context: Any) -> Any:  # noqa: N802
        """How to launch a run that the node is to hold."""
        job, run = self._run(request.node, request.key)
        if run.is_over:
            raise Refused(f"run {run.key} is over")
        return launch_spec(self._cluster, job, run)

    @answered
    async def Report(self, request: Any, context: Any) -> Any:  # noqa: N802
        """What a rank has told: shown at once, stored now and then."""
        job, run = self._run(request.node, request.key)
        if run.is_over:
            return control_pb2.ReportReply()
        request.ignored = min(max(request.ignored, 0), MOST) + take_out_nonsense(request)
        if request.rank != 0:
            request.ClearField("restart_s")  # its run has one start
        shell, now = self._cluster.shell, boottime()
        facts = shell.table.of(job.job)
        if request.HasField("step"):
            facts.step = request.step
            facts.version += 1
            if request.rank == 0:
                loss = request.loss if request.HasField("loss") else math.nan
                self._cluster.measure(job.job, run, request.step, facts.run_now(now), loss)
        batch = self._cluster.learn(job.job, run, request)
        due = now - self._written.get(run.key.run_id, float("-inf")) >= PROGRESS_EVERY_S
        if due or request.HasField("restart_s"):
            self._written[run.key.run_id] = now
            while len(self._written) > 4 * max(64, len(shell.committed.runs)):
                self._written.pop(next(iter(self._written)))
            shell.note(
                Progress(
                    run_id=run.key.run_id,
                    step=facts.step or 0,
                    executed_s=facts.run_now(now),
                    restart_s=request.restart_s if request.HasField("restart_s") else None,
                    loss=request.loss if request.HasField("loss") else None,
                )
            )
        reply = control_pb2.ReportReply(stop_step=run.stop_step)
        if batch is not None:
            reply.batch.local, reply.batch.accumulation = batch
        return reply

    @answered
    async def CommitCheckpoint(self, request: Any, context: Any) -> Any:  # noqa: N802
        """A checkpoint counts when this is committed, for the current run only."""
        job, run = self._run(request.node, request.key)
        if run.is_over or run.key.run != job.runs:
            return control_pb2.CheckpointReply(accepted=False, why=f"run {run.key} is over")
        if not request.path or len(request.path) > 4096 or "\0" in request.path:
            raise BadInput("checkpoint: not a path")
        if request.step < 0 or request.bytes < 0:
            raise BadInput("checkpoint: a number is negative")
        before = self._cluster.shell.table.of(job.job).checkpoint
        if before is not None and before.run_id == run.key.run_id and request.step < before.step:
            why = f"step {request.step} is before {before.step}, which is committed"
            return control_pb2.CheckpointReply(accepted=False, why=why)
        await self._cluster.shell.attach(
            CheckpointCommitted(
                job=job.job,
                run_id=run.key.run_id,
                at=wall(),
                path=request.path,
                step=request.step,
                size_bytes=request.bytes,
                sha256=request.sha256,
                executed_s=self._cluster.shell.table.of(job.job).run_now(boottime()),
            )
        )
        return control_pb2.CheckpointReply(accepted=True)
