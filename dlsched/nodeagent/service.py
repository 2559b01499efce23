"""What others ask an agent: the daemon's nudges, logs and signals; other agents' questions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from dlsched.core.errors import BadInput, DlschedError
from dlsched.nodeagent import accounts, clock
from dlsched.nodeagent.output import read_output
from dlsched.nodeagent.runfiles import Facts
from dlsched.nodeagent.shell import AgentShell
from dlsched.protocol import agent
from dlsched.protocol.messages import Nudge, RunId, RunKey, Signal, WitnessQuery
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.v1 import node_pb2, node_pb2_grpc

log = logging.getLogger(__name__)
_LAST_SIGNAL = 64


class AgentService(node_pb2_grpc.AgentServicer):
    """One agent's."""

    def __init__(self, shell: AgentShell) -> None:
        """Answer for this agent."""
        self._shell = shell

    async def Nudge(self, request: Any, context: Any) -> Any:  # noqa: N802  # the proto's name
        """Sync now."""
        try:
            nudge = from_wire(Nudge, request)
        except BadInput as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._shell.handle(agent.Nudged(clock.now(), nudge))
        return node_pb2.NudgeReply()

    async def Witness(self, request: Any, context: Any) -> Any:  # noqa: N802
        """When a leader last renewed this agent."""
        del context
        return to_wire(self._shell.witness(from_wire(WitnessQuery, request)))

    async def SendSignal(self, request: Any, context: Any) -> Any:  # noqa: N802
        """One signal to one run, and nothing else."""
        key = from_wire(RunKey, request.key)
        if not 0 < request.number <= _LAST_SIGNAL:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{request.number} is no signal")
        if key.run_id not in self._shell.state.held:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"node {self._shell.state.node} holds no run {key}"
            )
        self._shell.signal(key.run_id, Signal(request.number))
        return node_pb2.SignalReply()

    async def StartRanks(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Ranks of a `dlsched run` whose caller is on the run's first node."""
        ranks = self._shell.ranks
        why = ranks.may_ask(request.asker, RunId(request.key.run_id))
        if why:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        async for event in ranks.serve(request):
            yield event

    async def SignalRanks(self, request: Any, context: Any) -> Any:  # noqa: N802
        """One signal to those ranks."""
        run_id = RunId(request.key.run_id)
        why = self._shell.ranks.may_ask(request.asker, run_id)
        if why:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        asked = {"call": request.call, "number": request.number}
        self._shell.tell_keeper(run_id, {"signal_ranks": asked})
        return node_pb2.SignalReply()

    async def Output(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """A run's output, read as its user."""
        key = from_wire(RunKey, request.key)
        shell = self._shell
        facts = shell.facts.get(key.run_id)
        if facts is None and request.path:
            try:
                account = await shell.in_thread(
                    accounts.resolve, shell.settings, request.user, request.uid
                )
            except DlschedError as error:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
                return
            facts = Facts(
                user=request.user,
                uid=request.uid,
                gid=account.pw_gid,
                output=request.path,
                working_directory=request.working_directory,
            )
        if facts is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"node {shell.state.node} knows nothing of run {key}"
            )
            return

        def live() -> bool:
            return key.run_id in shell.state.held and key.run_id not in shell.state.ended

        chunks = read_output(
            facts,
            node=shell.settings.name,
            node_rank=shell.node_rank(key.run_id),
            rank=request.rank,
            error=request.error,
            tail_lines=request.tail_lines,
            follow=request.follow,
            live=live,
        )
        try:
            async with contextlib.aclosing(chunks):
                async for data in chunks:
                    yield node_pb2.OutputChunk(data=data)
        except DlschedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
