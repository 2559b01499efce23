"""Ranks of `dlsched run` over several nodes: between keepers, their agents and other agents.

The agent of the first node opens one stream for each call and node; the other agent passes it on to
its keeper. Closing the stream ends the ranks. Output moves only as fast as the caller takes it, and
input, which moves the other way, only as fast as the ranks take it: the caller counts what is on
its way.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from grpc import StatusCode, aio

from dlsched.core.errors import DlschedError
from dlsched.job.messages import EVERY_RANK
from dlsched.nodeagent.agent.keepers.all_keepers import Keepers, Message
from dlsched.nodeagent.agent.other_agents import OtherAgents
from dlsched.nodeagent.agent.tasks import AgentTasks
from dlsched.nodeagent.ranks.local_ranks import WINDOW
from dlsched.protocol.messages import DesiredRun, NodeName, RunId
from dlsched.rpc.call_failures import answer
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import node_pb2

log = logging.getLogger(__name__)
_KEEPER_LOST_S = 1.0  # between two looks whether a keeper is still there


class _Window:
    """How much output of one node is on its way to the caller."""

    def __init__(self) -> None:
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def add(self, count: int) -> None:
        self._bytes += count
        if self._bytes >= WINDOW:
            self._room.clear()

    def take(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < WINDOW:
            self._room.set()

    async def room(self) -> None:
        await self._room.wait()


@dataclass(frozen=True, slots=True)
class _Stream:
    """One call's ranks on another node."""

    task: asyncio.Task[None]
    window: _Window
    input: asyncio.Queue[node_pb2.RanksRequest]  # to be sent


@dataclass(eq=False, slots=True)
class GangRanks:
    """One agent's part in all such calls."""

    node: NodeName  # this agent's
    tasks: AgentTasks
    keepers: Keepers
    other_agents: OtherAgents  # of the nodes that the ranks are on
    running: Callable[[RunId], DesiredRun | None]  # a run that the agent holds and has not ended
    _streams: dict[tuple[RunId, int, str], _Stream] = field(default_factory=dict, init=False)
    _events: dict[tuple[RunId, int], asyncio.Queue[Message]] = field(
        default_factory=dict, init=False
    )

    # -- to other nodes: the caller is at our keeper -----------------------------------------------

    def from_keeper(self, run_id: RunId, message: Message) -> None:
        """Take a keeper's request for ranks on other nodes, or an event of a rank on this node."""
        if "ranks" in message:
            request = message["ranks"]
            key = (run_id, int(request["call"]), str(request["node"]))
            window, given = _Window(), asyncio.Queue[node_pb2.RanksRequest]()
            task = self.tasks.of_job(self._start_elsewhere(run_id, request, window, given))
            self._streams[key] = _Stream(task, window, given)
        elif "ranks_received" in message:
            taken = message["ranks_received"]
            stream = self._streams.get((run_id, int(taken["call"]), str(taken["node"])))
            if stream is not None:
                stream.window.take(int(taken["bytes"]))
        elif "ranks_input" in message:
            self._send_input(run_id, message["ranks_input"])
        elif "ranks_stop" in message:
            for key, stream in list(self._streams.items()):
                if key[:2] == (run_id, int(message["ranks_stop"])):
                    stream.task.cancel()
        elif "ranks_signal" in message:
            request = message["ranks_signal"]
            for key in list(self._streams):
                if key[:2] == (run_id, int(request["call"])):
                    self.tasks.of_job(self._signal_elsewhere(run_id, key[2], request))
        elif "rank_event" in message:
            event = message["rank_event"]
            queue = self._events.get((run_id, int(event["call"])))
            if queue is not None:
                queue.put_nowait(event)

    def _send_input(self, run_id: RunId, given: Message) -> None:
        stream = self._streams.get((run_id, int(given["call"]), str(given["node"])))
        if stream is not None:
            data = base64.b64decode(given["data"])
            stream.input.put_nowait(node_pb2.RanksRequest(input=data))

    async def _start_elsewhere(
        self,
        run_id: RunId,
        request: Message,
        window: _Window,
        given: asyncio.Queue[node_pb2.RanksRequest],
    ) -> None:
        node, call = str(request["node"]), int(request["call"])
        left = {int(each["rank"]) for each in request["ranks"]}
        why = ""
        try:
            message = self._ranks_request(run_id, request)
            stub = self.other_agents.stub(NodeName(node), str(request["address"]))
            if _reads(message):
                events = stub.StartReadingRanks(_first_then(message, given))
            else:
                events = stub.StartRanks(message)
            async for event in events:
                if event.refused:
                    why = event.refused
                    break
                if event.exited:
                    left.discard(event.rank)
                self._to_keeper(run_id, call, node, event)
                if event.data:
                    window.add(len(event.data))
                    await window.room()
            why = why or ("" if not left else "its ranks were lost")
        except asyncio.CancelledError:
            why = "ended with the others"
        except aio.AioRpcError as error:
            why = _failed(error)
        except DlschedError as error:
            why = str(error)
        except ParseError as error:  # its program or environment is not UTF-8
            why = f"ranks on other nodes: {error}"
        finally:
            self._streams.pop((run_id, call, node), None)
        if why:
            refusal = {"call": call, "node": node, "refused": why}
            self.keepers.send(run_id, {"ranks_event": refusal})

    def _ranks_request(self, run_id: RunId, request: Message) -> node_pb2.RanksRequest:
        desired = self.running(run_id)
        if desired is None:
            raise DlschedError("the run is over")
        message = node_pb2.RanksRequest(asker=self.node, key=to_wire(desired.key))
        ParseDict(request, message, ignore_unknown_fields=True)
        return message

    def _to_keeper(self, run_id: RunId, call: int, node: str, event: node_pb2.RankEvent) -> None:
        message: Message = {"call": call, "rank": event.rank}
        if event.exited:
            message |= {"exited": True, "code": event.code, "signal": event.signal}
            message |= {"cpu_s": event.cpu_s, "peak_memory_bytes": event.peak_memory_bytes}
        elif event.input_taken:
            message |= {"node": node, "input_taken": event.input_taken}
        else:
            text = base64.b64encode(event.data).decode()
            message |= {"stream": event.stream, "data": text}
        self.keepers.send(run_id, {"ranks_event": message})

    async def _signal_elsewhere(self, run_id: RunId, node: str, request: Message) -> None:
        desired = self.running(run_id)
        if desired is None:
            return
        message = node_pb2.RanksSignal(
            asker=self.node,
            key=to_wire(desired.key),
            call=int(request["call"]),
            number=int(request["number"]),
        )
        with contextlib.suppress(aio.AioRpcError, DlschedError):
            stub = self.other_agents.stub(NodeName(node))
            await answer(stub.SignalRanks(message, timeout=5))

    # -- from other nodes: the caller is elsewhere -------------------------------------------------

    def refusal(self, asker: str, run_id: RunId) -> str:
        """Return why the agent of `asker` may not start ranks in a run; empty when it may."""
        desired = self.running(run_id)
        if desired is None:
            return f"node {self.node} holds no such run"
        if not desired.layout or desired.layout[0].node != asker:
            return f"node {asker} is not the first of run {desired.key}"
        return ""

    async def serve(
        self, request: node_pb2.RanksRequest, inputs: AsyncIterator[node_pb2.RanksRequest] | None
    ) -> AsyncIterator[node_pb2.RankEvent]:
        """Have our keeper start ranks; give what they write and how they end.

        Args:
            request: the ranks.
            inputs: further requests, with what they read; None: they read nothing.
        """
        run_id, call = RunId(request.key.run_id), int(request.call)
        queue: asyncio.Queue[Message] = asyncio.Queue()
        self._events[run_id, call] = queue
        left = {each.rank for each in request.ranks}
        reading: asyncio.Task[None] | None = None
        message = MessageToDict(
            request, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        try:
            if not self.keepers.send(run_id, {"start_ranks": message}):
                yield node_pb2.RankEvent(refused="its keeper is gone")
                return
            if inputs is not None:
                reading = self.tasks.of_job(self._pass_on_input(run_id, call, inputs))
            while left:
                event = await self._next_event(run_id, queue)
                if event is None or "refused" in event:
                    why = event["refused"] if event else "its keeper is gone"
                    yield node_pb2.RankEvent(refused=why)
                    return
                found = ParseDict(event, node_pb2.RankEvent(), ignore_unknown_fields=True)
                yield found
                if found.exited:
                    left.discard(found.rank)
                    continue
                if found.data:
                    taken = {"call": call, "bytes": len(found.data)}
                    self.keepers.send(run_id, {"ranks_taken": taken})
        finally:
            if reading is not None:
                reading.cancel()
            self._events.pop((run_id, call), None)
            if left:
                self.keepers.send(run_id, {"stop_ranks": call})

    async def _pass_on_input(
        self, run_id: RunId, call: int, requests: AsyncIterator[node_pb2.RanksRequest]
    ) -> None:
        async for request in requests:
            text = base64.b64encode(request.input).decode()
            self.keepers.send(run_id, {"rank_input": {"call": call, "data": text}})

    async def _next_event(self, run_id: RunId, queue: asyncio.Queue[Message]) -> Message | None:
        """Return the next event of a rank; None when the run's keeper is gone."""
        while True:
            try:
                return await asyncio.wait_for(queue.get(), _KEEPER_LOST_S)
            except TimeoutError:
                if not self.keepers.has(run_id):
                    return None


def _reads(request: node_pb2.RanksRequest) -> bool:
    """Whether a rank of a request reads a file, or the input of its caller."""
    readers = (EVERY_RANK, *(place.rank for place in request.ranks))
    return bool(request.input_file) or (
        request.HasField("input_to") and request.input_to in readers
    )


def _failed(error: aio.AioRpcError) -> str:
    """Why the call of another agent has ended, in one line."""
    if error.code() is StatusCode.UNIMPLEMENTED:
        return "its agent is of an older version, which passes no input on (--input=none)"
    why = " ".join((error.details() or error.code().name.lower()).split())
    if error.code() is StatusCode.UNAVAILABLE:
        return f"its ranks end, because its agent has stopped or been restarted ({why})"
    return why


async def _first_then(
    first: node_pb2.RanksRequest, later: asyncio.Queue[node_pb2.RanksRequest]
) -> AsyncIterator[node_pb2.RanksRequest]:
    """The requests of one call, for as long as it lasts."""
    yield first
    while True:
        yield await later.get()
