"""The services for agents: syncs, descriptions, launches, reports and checkpoints.

Invariant: a node can only report about its own runs, and safety rests on nothing but its syncs.
"""

from __future__ import annotations

import json
import math

from google.protobuf.json_format import MessageToDict

from dlsched.core.errors import DlschedError, Unavailable
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.launching import launch_spec
from dlsched.daemon.message_bounds import MOST, check_description, check_sync, clear_invalid
from dlsched.daemon.rpc_errors import NotFound, NotPossible, answered
from dlsched.daemon.training.current import note_failure, note_values, stacks_of
from dlsched.daemon.training.in_place import note_ready
from dlsched.daemon.training.run_reports import note_steps, note_training
from dlsched.daemon.training.saving_reports import note_saving, note_unsaved
from dlsched.db.records import NodeDescribed, Progress
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import Job, Run
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2, node_pb2_grpc, run_pb2
from dlsched.system.clock import boottime, wall
from dlsched.system.fault_points import fault_point

PROGRESS_EVERY_S = 30.0
LAUNCHED_BYTES = 1 << 20  # of the other runs in one answer


class LeaderService(node_pb2_grpc.LeaderServicer):
    """Syncs and descriptions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @answered
    async def Sync(self, request: node_pb2.SyncRequest, context: object) -> node_pb2.Reply:  # noqa: N802  # the wire's name
        """Take a node's full state; the reply says what it is to hold."""
        fault_point("after-sync-read")
        sync = from_wire(m.Sync, request)
        check_sync(sync, self._cluster.driver.reserved)
        if not self._cluster.may_join(sync.node):
            raise NotPossible(f"node {sync.node} is not one of this cluster's configured nodes")
        reply: node_pb2.Reply = to_wire(await self._cluster.driver.hear(sync))
        if sync.inventory is not None:
            fault_point("after-register")
        self._cluster.note_sync(sync)
        return reply

    @answered
    async def Describe(  # noqa: N802
        self, request: node_pb2.NodeDescription, context: object
    ) -> node_pb2.DescribeReply:
        """Take what a node is and does."""
        cluster = self._cluster
        name = m.NodeName(request.node)
        check_description(request)
        if not cluster.may_join(name):
            raise NotPossible(f"node {name} is not one of this cluster's configured nodes")
        row = cluster.driver.committed.nodes.get(name)
        if row is not None and row.start and request.starts and row.start not in request.starts:
            return node_pb2.DescribeReply()  # not of the registered agent; its syncs are refused
        if cluster.agents.describe(request):
            facts = json.dumps(
                MessageToDict(request.facts, preserving_proto_field_name=True), sort_keys=True
            )
            cluster.driver.note(NodeDescribed(node=name, facts=facts))
        cluster.note_gpu_uses(name)
        if request.HasField("facts"):
            cluster.note_facts(name)
        if request.faults:
            cluster.drain(name, "; ".join(request.faults))
        if request.HasField("start_check"):
            failed = request.start_check or "; ".join((*request.faults, *request.problems))
            cluster.failed_starts.checked(name, failed, cluster.now)
        return node_pb2.DescribeReply(
            check_starts=cluster.failed_starts.awaits_check(name),
            want_facts=cluster.agents.wants_facts(name, request.starts),
            peers=_witnesses(cluster, name),
        )


def _witnesses(cluster: Cluster, name: m.NodeName) -> dict[str, str]:
    """The addresses of the nodes that a node may ask as witnesses."""
    state = cluster.driver.state
    node = state.committed.nodes.get(name)
    sets = (state.witnesses, *(node.witnesses if node is not None else ()))
    found = {str(each): cluster.address(each) for each in sorted({n for s in sets for n in s})}
    return {each: address for each, address in found.items() if address}


class RunsService(control_pb2_grpc.RunsServicer):
    """What nodes ask for their runs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._written: dict[m.RunId, float] = {}

    def _run(self, node: str, message: run_pb2.RunKey) -> tuple[Job, Run]:
        """The run of a key, if it is on that node.

        Raises:
            NotFound: when there is none.
        """
        driver = self._cluster.driver
        if not driver.leading:
            raise Unavailable("this daemon does not lead")
        key = from_wire(m.RunKey, message)
        run = driver.committed.runs.get(key.run_id)
        if run is None or run.key != key or m.NodeName(node) not in run.members:
            raise NotFound(f"run {key} is not one of node {node}'s")
        return driver.committed.jobs[key.job], run

    @answered
    async def Launch(  # noqa: N802
        self, request: control_pb2.LaunchRequest, context: object
    ) -> control_pb2.LaunchSpec:
        """Return how to launch a run that the node is to hold, and others as far as they fit."""
        found = await self._launch(request.node, request.key)
        size = 0
        for key in request.more:
            try:
                other = await self._launch(request.node, key)
            except DlschedError:
                continue  # it is asked for alone, and refused with its reason
            size += other.ByteSize()
            if size > LAUNCHED_BYTES:
                break
            found.more.append(other)
        return found

    async def _launch(self, node: str, key: run_pb2.RunKey) -> control_pb2.LaunchSpec:
        """How to launch a run.

        Raises:
            DlschedError: why the node may not, or cannot learn it now.
        """
        job, run = self._run(node, key)
        if not run.is_over:
            content = await self._cluster.contents.of(job.job)
            job, run = self._run(node, key)  # as it is by now
        if run.is_over:
            raise NotPossible(f"run {run.key} is over")
        return launch_spec(self._cluster, job, run, content)

    @answered
    async def Report(  # noqa: N802
        self, request: control_pb2.RunReport, context: object
    ) -> control_pb2.ReportReply:
        """Take a rank's report: shown at once, stored every 30 seconds."""
        job, run = self._run(request.node, request.key)
        request.ignored = min(max(request.ignored, 0), MOST) + clear_invalid(request)
        note_failure(self._cluster, run, request, wall())
        note_unsaved(self._cluster, job, run, request)
        if run.is_over:  # only the last values of its last steps can still come
            if (
                self._cluster.driver.committed.is_newest(run)
                and job.job in self._cluster.curves.jobs
            ):
                executed_s = self._cluster.curves.of(job.job).executed_s
                note_values(self._cluster, run, request, wall(), executed_s)
            return control_pb2.ReportReply()
        if request.rank != 0:
            request.ClearField("restart_s")  # a run has one start, which rank 0 reports
            for name in ("saves", "save_bytes", "expected_save_s"):
                request.ClearField(name)
        driver, now = self._cluster.driver, boottime()
        facts = driver.table.of(job.job)
        if request.HasField("step"):
            facts.step = request.step
            if request.rank == 0:
                loss = request.loss if request.HasField("loss") else math.nan
                accuracy = request.metrics.get("accuracy", math.nan)
                note_steps(
                    self._cluster, run, request.step, facts.clock.seconds(now), loss, accuracy
                )
        if request.calls and request.node == next(iter(run.members)):
            calls = tuple(from_wire(m.StepRecord, each) for each in request.calls)
            facts.calls = run.key.run_id, calls
        executed_s, at = facts.clock.seconds(now), wall()
        events = note_values(self._cluster, run, request, at, executed_s)
        events += stacks_of(self._cluster, run, request, at)
        if request.ready_ports:
            note_ready(self._cluster, job, run, request)
        batch = note_training(self._cluster, run, request)
        events += note_saving(self._cluster, job, run, request, at)
        if events:
            driver.note(*events)
        due = now - self._written.get(run.key.run_id, float("-inf")) >= PROGRESS_EVERY_S
        if due or request.HasField("restart_s"):
            self._written[run.key.run_id] = now
            while len(self._written) > 4 * max(64, len(driver.committed.runs)):
                self._written.pop(next(iter(self._written)))
            driver.note(
                Progress(
                    run_id=run.key.run_id,
                    step=facts.step or 0,
                    executed_s=facts.clock.seconds(now),
                    restart_s=request.restart_s if request.HasField("restart_s") else None,
                    loss=request.loss if request.HasField("loss") else None,
                )
            )
        reply = control_pb2.ReportReply(stop_step=run.stop_step)
        if batch is not None:
            reply.batch.local, reply.batch.accumulation = batch
        return reply

    @answered
    async def CommitCheckpoint(  # noqa: N802
        self, request: control_pb2.CheckpointCommit, context: object
    ) -> control_pb2.CheckpointReply:
        """Commit a checkpoint; only the current run's count."""
        job, run = self._run(request.node, request.key)
        return await self._cluster.checkpoints.commit(job, run, request)

    @answered
    async def ExchangeTasks(  # noqa: N802
        self, request: control_pb2.TaskExchange, context: object
    ) -> control_pb2.TaskBundle:
        """Store which short tasks of a run have ended, and give it more."""
        job, run = self._run(request.node, request.key)
        return await self._cluster.task_lists.exchange(job, run, request)
