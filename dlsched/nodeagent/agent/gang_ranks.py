"""Ranks of `dlsched run` over several nodes: between keepers, their agents and other agents.

The agent of the first node opens one stream for each call and node; the other agent passes it on to
its keeper. What the two keepers send each other outlives both agents: they number it and keep it
until it has arrived, and the caller's keeper asks for another stream when one has broken. Agents
keep nothing. Output moves only as fast as the caller takes it, and input only as fast as the ranks
take it: the keepers count what is on its way.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from grpc import StatusCode, aio

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.agent.keepers.all_keepers import Keepers, Message
from dlsched.nodeagent.agent.other_agents import OtherAgents
from dlsched.nodeagent.agent.tasks import AgentTasks
from dlsched.protocol.messages import DesiredRun, NodeName, RunId
from dlsched.rpc.call_failures import answer
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import node_pb2

_KEEPER_LOST_S = 1.0  # between two looks whether a keeper is still there
_KEEPER_GONE = "its keeper is gone"
_BROKEN = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)  # not an answer
_Signal = tuple[RunId, int, str, int]  # to the ranks of a call on a node
_TOO_MUCH = (StatusCode.RESOURCE_EXHAUSTED, StatusCode.DEADLINE_EXCEEDED)


@dataclass(eq=False, slots=True)
class _Stream:
    """One call's ranks on another node."""

    attempt: int  # counts the streams for these ranks, from 1
    left: set[int]  # ranks whose end has not come over it
    ends: bool  # the ranks are to end
    # to be sent; None: nothing more is
    later: asyncio.Queue[node_pb2.RanksRequest | None] = field(default_factory=asyncio.Queue)
    task: asyncio.Task[None] | None = None
    outlived: bool = False  # the ranks outlive the stream
    is_over: bool = False  # the caller has all
    is_replaced: bool = False  # the keeper has asked for another one

    async def requests(self, first: node_pb2.RanksRequest) -> AsyncIterator[node_pb2.RanksRequest]:
        """What is sent, for as long as the stream lasts."""
        yield first
        while (request := await self.later.get()) is not None:
            yield request

    def end(self) -> None:
        """Ask the other node to end the ranks."""
        self.ends = True
        self.later.put_nowait(node_pb2.RanksRequest(stop=True))

    def take(self, event: node_pb2.RankEvent) -> None:
        """Note what an event says of the stream.

        Raises:
            DlschedError: the ranks are refused.
        """
        if event.refused:
            raise DlschedError(event.refused)
        self.outlived = self.outlived or event.started
        if event.exited:
            self.left.discard(event.rank)

    @property
    def has_all(self) -> bool:
        """Whether all that the ranks have to tell has come."""
        return self.is_over or (not self.left and not self.outlived)

    def told_at_end(self, broke: str, why: str) -> Message:
        """What the keeper is told of the end of the stream; nothing when it knows.

        Args:
            broke: why it has broken, or empty.
            why: the ranks are lost, or empty.
        """
        if why:
            return {"refused": why}
        if broke:
            return {"broke": broke}
        return {"ended": True} if self.ends or not self.outlived else {}

    def cancel(self) -> None:
        """Close the stream."""
        if self.task is not None:
            self.task.cancel()


@dataclass(eq=False, slots=True)
class _Served:
    """The stream of a call whose caller is elsewhere."""

    attempt: int
    events: asyncio.Queue[Message | None] = field(default_factory=asyncio.Queue)  # None: the end


@dataclass(eq=False, slots=True)
class GangRanks:
    """One agent's part in all such calls."""

    node: NodeName  # this agent's
    tasks: AgentTasks
    keepers: Keepers
    other_agents: OtherAgents  # of the nodes that the ranks are on
    running: Callable[[RunId], DesiredRun | None]  # a run that the agent holds and has not ended
    _streams: dict[tuple[RunId, int, str], _Stream] = field(default_factory=dict, init=False)
    _served: dict[tuple[RunId, int], _Served] = field(default_factory=dict, init=False)
    _signals: set[_Signal] = field(default_factory=set, init=False)  # on their way

    # -- to other nodes: the caller is at our keeper -----------------------------------------------

    def from_keeper(self, run_id: RunId, message: Message) -> None:
        """Take a keeper's request for ranks on other nodes, or an event of a rank on this node."""
        take: dict[str, Callable[[RunId, Any], None]] = {
            "ranks": self._open,
            "ranks_received": self._tell_taken,
            "ranks_input": self._send_input,
            "ranks_signal": self._signal,
            "ranks_end": self._end,
            "rank_event": self._take_event,
        }
        for name in take.keys() & message.keys():
            take[name](run_id, message[name])

    def _stream(self, run_id: RunId, message: Message) -> _Stream | None:
        return self._streams.get((run_id, int(message["call"]), str(message["node"])))

    def _open(self, run_id: RunId, request: Message) -> None:
        key = (run_id, int(request["call"]), str(request["node"]))
        older = self._streams.pop(key, None)
        if older is not None:
            older.is_replaced = True
            older.cancel()
        left = {int(each["rank"]) for each in request["ranks"]}
        stream = self._streams[key] = _Stream(int(request["attempt"]), left, bool(request["stop"]))
        stream.task = self.tasks.of_job(self._keep_stream(run_id, request, stream))

    def _tell_taken(self, run_id: RunId, taken: Message) -> None:
        stream = self._stream(run_id, taken)
        if stream is not None:
            stream.later.put_nowait(node_pb2.RanksRequest(taken=int(taken["number"])))
            if taken["last"]:
                stream.is_over = True
                stream.later.put_nowait(None)

    def _send_input(self, run_id: RunId, given: Message) -> None:
        stream = self._stream(run_id, given)
        if stream is not None:
            data = base64.b64decode(given["data"])
            request = node_pb2.RanksRequest(input=data, input_at=int(given["at"]))
            stream.later.put_nowait(request)

    def _end(self, run_id: RunId, asked: Message) -> None:
        stream = self._stream(run_id, asked)
        if stream is not None:
            stream.end()

    def _signal(self, run_id: RunId, request: Message) -> None:
        node = str(request["node"])
        signal = (run_id, int(request["call"]), node, int(request["number"]))
        # a process has each signal waiting once at most
        if signal[:3] in self._streams and signal not in self._signals:
            self._signals.add(signal)
            task = self.tasks.of_job(self._signal_elsewhere(run_id, node, request))
            task.add_done_callback(partial(self._signalled, signal))

    def _take_event(self, run_id: RunId, event: Message) -> None:
        served = self._served.get((run_id, int(event["call"])))
        if served is not None and event["attempt"] == served.attempt:
            served.events.put_nowait(event)

    async def _keep_stream(self, run_id: RunId, request: Message, stream: _Stream) -> None:
        """Open a stream, pass on what comes over it, and tell the keeper how it ends."""
        node, call = str(request["node"]), int(request["call"])
        known = {"call": call, "node": node, "attempt": stream.attempt}
        broke = why = ""
        try:
            async for event in self._events(run_id, request, stream):
                self.keepers.send(run_id, {"ranks_event": known | _for_keeper(event)})
            if not stream.has_all and not stream.ends:
                broke = "its ranks were lost"
        except asyncio.CancelledError:
            pass
        except aio.AioRpcError as error:
            said = " ".join((error.details() or error.code().name.lower()).split())
            is_broken = error.code() in _BROKEN or (
                stream.attempt > 1 and error.code() in _TOO_MUCH
            )
            broke, why = (said, "") if is_broken else ("", said)
        except DlschedError as error:
            why = str(error)
        except ParseError as error:  # its program or environment is not UTF-8
            why = f"ranks on other nodes: {error}"
        if stream.is_replaced:
            return
        self._streams.pop((run_id, call, node), None)
        end = stream.told_at_end(broke, why)
        if end:
            self.keepers.send(run_id, {"ranks_event": known | end})

    async def _events(
        self, run_id: RunId, request: Message, stream: _Stream
    ) -> AsyncIterator[node_pb2.RankEvent]:
        """What comes over a stream.

        Raises:
            DlschedError: when the other agent does not take it.
            AioRpcError: when it has broken.
        """
        message = self._ranks_request(run_id, request)
        stub = self.other_agents.stub(NodeName(str(request["node"])), str(request["address"]))
        async for event in stub.HoldRanks(stream.requests(message)):
            stream.take(event)
            yield event

    def _ranks_request(self, run_id: RunId, request: Message) -> node_pb2.RanksRequest:
        desired = self.running(run_id)
        if desired is None:
            raise DlschedError("the run is over")
        message = node_pb2.RanksRequest(asker=self.node, key=to_wire(desired.key))
        ParseDict(request, message, ignore_unknown_fields=True)
        return message

    def _signalled(self, signal: _Signal, _task: object) -> None:
        self._signals.discard(signal)

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
        self, request: node_pb2.RanksRequest, later: AsyncIterator[node_pb2.RanksRequest]
    ) -> AsyncIterator[node_pb2.RankEvent]:
        """Have our keeper start ranks, or go on with them; give what they write and how they end.

        Args:
            request: the ranks.
            later: further requests, with what they read and what the caller has taken.
        """
        run_id, call, attempt = RunId(request.key.run_id), int(request.call), int(request.attempt)
        if request.stop:
            self.keepers.send(run_id, {"stop_ranks": call})
            return
        served = _Served(attempt)
        newest = self._served.get((run_id, call))
        if newest is not None and attempt <= newest.attempt:
            yield node_pb2.RankEvent(refused="there is a later stream")
            return
        self._served[run_id, call] = served
        left = {each.rank for each in request.ranks}
        outlived = False  # by the ranks
        message = MessageToDict(
            request, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        order = "resume_ranks" if attempt > 1 else "start_ranks"
        reading = self.tasks.of_job(self._take_later(run_id, call, later, served))
        try:
            if not self.keepers.send(run_id, {order: message}):
                yield node_pb2.RankEvent(refused=_KEEPER_GONE)
                return
            while left or outlived:
                event = await self._next_event(run_id, served)
                if event is None:
                    return
                found = ParseDict(event, node_pb2.RankEvent(), ignore_unknown_fields=True)
                yield found
                if found.refused:
                    return
                outlived = outlived or found.started
                left -= {found.rank} if found.exited else set()
        finally:
            reading.cancel()
            if self._served.get((run_id, call)) is served:
                del self._served[run_id, call]
            if left or outlived:
                self.keepers.send(run_id, {"stop_ranks": call, "attempt": attempt})

    async def _take_later(
        self,
        run_id: RunId,
        call: int,
        requests: AsyncIterator[node_pb2.RanksRequest],
        served: _Served,
    ) -> None:
        """Pass on to the keeper what comes over a stream after its first request."""
        async for request in requests:
            if request.stop:
                self.keepers.send(run_id, {"stop_ranks": call})
                break
            if request.taken:
                taken = {"call": call, "number": request.taken}
                self.keepers.send(run_id, {"ranks_taken": taken})
                continue
            text = base64.b64encode(request.input).decode()
            given = {"call": call, "data": text, "at": request.input_at}
            self.keepers.send(run_id, {"rank_input": given})
        served.events.put_nowait(None)

    async def _next_event(self, run_id: RunId, served: _Served) -> Message | None:
        """Return the next event of a rank; None when the other side has closed the stream."""
        while True:
            try:
                return await asyncio.wait_for(served.events.get(), _KEEPER_LOST_S)
            except TimeoutError:
                if not self.keepers.has(run_id):
                    return {"refused": _KEEPER_GONE}


def _for_keeper(event: node_pb2.RankEvent) -> Message:
    """An event of a rank as the caller's keeper takes it."""
    if event.started:
        return {"started": True, "input_taken": event.input_taken}
    if event.input_taken:
        return {"input_taken": event.input_taken}
    message: Message = {"rank": event.rank, "number": event.number}
    if event.exited:
        message |= {"exited": True, "code": event.code, "signal": event.signal}
        return message | {"cpu_s": event.cpu_s, "peak_memory_bytes": event.peak_memory_bytes}
    text = base64.b64encode(event.data).decode()
    return message | {"stream": event.stream, "data": text}
