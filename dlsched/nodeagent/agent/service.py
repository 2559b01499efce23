"""The gRPC service of an agent: for the daemon, and for the agents of other nodes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from dlsched.core.errors import BadInput, DlschedError, Unavailable
from dlsched.nodeagent.agent import accounts
from dlsched.nodeagent.agent.agent_driver import AgentDriver
from dlsched.nodeagent.agent.checkpoint_deletion import delete_checkpoints
from dlsched.nodeagent.agent.clients import Connect, Inputs, Outputs
from dlsched.nodeagent.agent.job_output import read_output
from dlsched.nodeagent.agent.user_files import UserFiles
from dlsched.nodeagent.ranks.launch_spec import RunFacts
from dlsched.protocol import agent
from dlsched.protocol.messages import Nudge, RunId, RunKey, Signal, WitnessQuery
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.v1 import node_pb2, node_pb2_grpc
from dlsched.system import clock

_LAST_SIGNAL = 64


class AgentService(node_pb2_grpc.AgentServicer):
    """The service of one agent; its methods are described in the proto."""

    def __init__(self, driver: AgentDriver, files: UserFiles) -> None:
        """Answer for this agent, which asks for paths of users at `files`."""
        self._driver = driver
        self._files = files

    async def Nudge(self, request: Any, context: Any) -> Any:  # noqa: N802  # the proto's name
        """Sync with the leader now."""
        try:
            nudge = from_wire(Nudge, request)
        except BadInput as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._driver.handle(agent.Nudged(clock.boottime(), nudge))
        return node_pb2.NudgeReply()

    async def Witness(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return when a leader last renewed this agent's lease."""
        del context
        return to_wire(self._driver.witness(from_wire(WitnessQuery, request)))

    async def SendSignal(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Send one signal to one run, and do nothing else."""
        key, step = from_wire(RunKey, request.key), request.HasField("step")
        if not 0 < request.number <= _LAST_SIGNAL:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{request.number} is no signal")
        if key.run_id not in self._driver.state.held:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"node {self._driver.state.node} holds no run {key}"
            )
        if step or request.to:
            part = {"number": request.number, "to": request.to}
            part |= {"step": request.step} if step else {}
            self._driver.keepers.send(key.run_id, {"signal_part": part})
        else:
            self._driver.keepers.order(key.run_id, Signal(request.number))
        return node_pb2.SignalReply()

    async def DeleteCheckpoints(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Delete folders of checkpoints with the rights of their user."""
        driver = self._driver
        try:
            account, groups = await driver.tasks.in_thread(
                accounts.account_and_groups, driver.settings, request.user, request.uid
            )
            gone = await delete_checkpoints(
                self._files, request.paths, uid=account.pw_uid, gid=account.pw_gid, groups=groups
            )
        except DlschedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            return None
        return node_pb2.DeleteCheckpointsReply(gone=gone)

    async def HoldRanks(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Start ranks of a `dlsched run` from a caller on the run's first node, or go on with them.

        They outlive the call.
        """
        request, ranks = await anext(requests), self._driver.ranks
        why = ranks.refusal(request.asker, RunId(request.key.run_id))
        if why:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        async for event in ranks.serve(request, requests):
            yield event

    async def SignalRanks(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Send one signal to those ranks."""
        run_id = RunId(request.key.run_id)
        why = self._driver.ranks.refusal(request.asker, run_id)
        if why:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        message = {"call": request.call, "number": request.number}
        self._driver.keepers.send(run_id, {"signal_ranks": message})
        return node_pb2.SignalReply()

    def Attach(self, inputs: Any, context: Any) -> Any:  # noqa: N802
        """Connect a client to a shell, or another process beside the run's own."""
        return self._connected(inputs, context, self._driver.clients.attach)

    def Forward(self, inputs: Any, context: Any) -> Any:  # noqa: N802
        """Connect a client to a port at which a process of the run listens."""
        return self._connected(inputs, context, self._driver.clients.forward)

    async def _connected(self, inputs: Inputs, context: Any, connect: Connect) -> Outputs:
        first = await anext(inputs)
        try:
            async with contextlib.aclosing(connect(first.target, inputs)) as outputs:
                async for output in outputs:
                    yield output
        except Unavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except DlschedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    async def Output(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Give a run's output, read with the rights of its user."""
        key = from_wire(RunKey, request.key)
        driver = self._driver
        facts = driver.keepers.facts.get(key.run_id)
        if facts is None and request.path:
            try:
                account, groups = await driver.tasks.in_thread(
                    accounts.account_and_groups, driver.settings, request.user, request.uid
                )
            except DlschedError as error:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
                return
            facts = RunFacts(
                user=request.user,
                uid=request.uid,
                gid=account.pw_gid,
                groups=tuple(groups),
                output=request.path,
                working_directory=request.working_directory,
            )
        if facts is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"node {driver.state.node} knows nothing of run {key}"
            )
            return

        chunks = read_output(
            self._files,
            facts,
            node=driver.settings.name,
            node_rank=driver.node_rank(key.run_id),
            rank=request.rank,
            only_rank=request.only_rank,
            error=request.error,
            tail_lines=request.tail_lines,
            follow=request.follow,
            is_running=lambda: driver.running_run(key.run_id) is not None,
            keeper=lambda: driver.keepers.process_of(key.run_id),
        )
        try:
            with self._files.one(facts.uid, facts.user):
                async with contextlib.aclosing(chunks):
                    async for data in chunks:
                        yield node_pb2.OutputChunk(data=data)
        except DlschedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
