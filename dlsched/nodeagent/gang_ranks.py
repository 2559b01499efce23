"""Ranks of `dlsched run` over several nodes: between keepers, their agents and other agents.

The first node's agent opens one stream a node and call; the other agent passes it on to its keeper.
Hanging up ends the ranks. Output moves only as fast as the caller takes it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from grpc import aio

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.local_ranks import WINDOW
from dlsched.protocol.messages import NodeName, RunId
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.hanging_up import answer
from dlsched.rpc.v1 import node_pb2

if TYPE_CHECKING:
    from dlsched.nodeagent.held_runs import HeldRuns

log = logging.getLogger(__name__)


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


class GangRanks:
    """One agent's part in all such calls."""

    def __init__(self, shell: HeldRuns) -> None:
        self._shell = shell
        self._out: dict[tuple[RunId, int, str], tuple[asyncio.Task[None], _Window]] = {}
        self._in: dict[tuple[RunId, int], asyncio.Queue[dict[str, Any]]] = {}

    # -- towards other nodes: our keeper has the caller --------------------------------------------

    def keeper_said(self, run_id: RunId, message: dict[str, Any]) -> None:
        """A keeper asks for ranks elsewhere, or tells of ranks here."""
        if "ranks" in message:
            asked = message["ranks"]
            key = (run_id, int(asked["call"]), str(asked["node"]))
            window = _Window()
            self._out[key] = (self._shell.task(self._ask(run_id, asked, window)), window)
        elif "ranks_received" in message:
            told = message["ranks_received"]
            found = self._out.get((run_id, int(told["call"]), str(told["node"])))
            if found is not None:
                found[1].take(int(told["bytes"]))
        elif "ranks_stop" in message:
            for key, (task, _) in list(self._out.items()):
                if key[:2] == (run_id, int(message["ranks_stop"])):
                    task.cancel()
        elif "ranks_signal" in message:
            asked = message["ranks_signal"]
            for key in list(self._out):
                if key[:2] == (run_id, int(asked["call"])):
                    self._shell.task(self._signal(run_id, key[2], asked))
        elif "rank_event" in message:
            event = message["rank_event"]
            queue = self._in.get((run_id, int(event["call"])))
            if queue is not None:
                queue.put_nowait(event)

    async def _ask(self, run_id: RunId, asked: dict[str, Any], window: _Window) -> None:
        node, call = str(asked["node"]), int(asked["call"])
        left = {int(each["rank"]) for each in asked["ranks"]}
        why = ""
        try:
            request = self._request(run_id, asked)
            stub = self._shell.peers.stub(NodeName(node), str(asked["address"]))
            async for event in stub.StartRanks(request):
                if event.refused:
                    why = event.refused
                    break
                if event.exited:
                    left.discard(event.rank)
                self._to_keeper(run_id, call, event)
                if event.data:
                    window.add(len(event.data))
                    await window.room()
            why = why or ("" if not left else "its ranks were lost")
        except asyncio.CancelledError:
            why = "ended with the others"
        except aio.AioRpcError as error:
            why = error.details() or error.code().name.lower()
        except DlschedError as error:
            why = str(error)
        finally:
            self._out.pop((run_id, call, node), None)
        if why:
            told = {"call": call, "node": node, "refused": why}
            self._shell.tell_keeper(run_id, {"ranks_event": told})

    def _request(self, run_id: RunId, asked: dict[str, Any]) -> Any:
        key = self._shell.key(run_id)
        if key is None:
            raise DlschedError("the run is over")
        return node_pb2.RanksRequest(
            asker=self._shell.state.node,
            key=to_wire(key),
            call=int(asked["call"]),
            argv=asked["argv"],
            environment=asked["environment"],
            working_directory=asked["working_directory"],
            ranks=[
                node_pb2.RankPlace(
                    rank=each["rank"], local_rank=each["local_rank"], gpus=each["gpus"]
                )
                for each in asked["ranks"]
            ],
            world=asked["world"],
            master_port=asked["master_port"],
            tasks_per_node=asked["tasks_per_node"],
        )

    def _to_keeper(self, run_id: RunId, call: int, event: Any) -> None:
        told: dict[str, Any] = {"call": call, "rank": event.rank}
        if event.exited:
            told |= {"exited": True, "code": event.code, "signal": event.signal}
        else:
            told |= {"stream": event.stream, "data": base64.b64encode(event.data).decode()}
        self._shell.tell_keeper(run_id, {"ranks_event": told})

    async def _signal(self, run_id: RunId, node: str, asked: dict[str, Any]) -> None:
        key = self._shell.key(run_id)
        if key is None:
            return
        request = node_pb2.RanksSignal(
            asker=self._shell.state.node,
            key=to_wire(key),
            call=int(asked["call"]),
            number=int(asked["number"]),
        )
        with contextlib.suppress(aio.AioRpcError, DlschedError):
            await answer(self._shell.peers.stub(NodeName(node)).SignalRanks(request, timeout=5))

    # -- from other nodes: the caller is elsewhere -------------------------------------------------

    def may_ask(self, asker: str, run_id: RunId) -> str:
        """Why another node may not start ranks in a run; empty when it may."""
        held = self._shell.state.held.get(run_id)
        if held is None or run_id in self._shell.state.ended:
            return f"node {self._shell.state.node} holds no such run"
        layout = held.desired.layout
        if not layout or layout[0].node != asker:
            return f"node {asker} is not the first of run {held.desired.key}"
        return ""

    async def serve(self, request: Any) -> AsyncIterator[Any]:
        """Have our keeper start ranks; what becomes of them."""
        run_id, call = RunId(request.key.run_id), int(request.call)
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._in[run_id, call] = queue
        left = {each.rank for each in request.ranks}
        asked = {
            "call": call,
            "argv": list(request.argv),
            "environment": dict(request.environment),
            "working_directory": request.working_directory,
            "ranks": [
                {"rank": each.rank, "local_rank": each.local_rank, "gpus": list(each.gpus)}
                for each in request.ranks
            ],
            "world": request.world,
            "master_port": request.master_port,
            "tasks_per_node": request.tasks_per_node,
        }
        try:
            if not self._shell.tell_keeper(run_id, {"start_ranks": asked}):
                yield node_pb2.RankEvent(refused="its keeper is gone")
                return
            while left:
                event = await self._next(run_id, queue)
                if event is None or "refused" in event:
                    why = event["refused"] if event else "its keeper is gone"
                    yield node_pb2.RankEvent(refused=why)
                    return
                if event.get("exited"):
                    left.discard(event["rank"])
                    yield node_pb2.RankEvent(
                        rank=event["rank"],
                        exited=True,
                        code=event["code"],
                        signal=event["signal"],
                    )
                    continue
                data = base64.b64decode(event["data"])
                yield node_pb2.RankEvent(rank=event["rank"], stream=event["stream"], data=data)
                taken = {"call": call, "bytes": len(data)}
                self._shell.tell_keeper(run_id, {"ranks_taken": taken})
        finally:
            self._in.pop((run_id, call), None)
            if left:
                self._shell.tell_keeper(run_id, {"stop_ranks": call})

    async def _next(
        self, run_id: RunId, queue: asyncio.Queue[dict[str, Any]]
    ) -> dict[str, Any] | None:
        while True:
            try:
                return await asyncio.wait_for(queue.get(), 1.0)
            except TimeoutError:
                if not self._shell.has_keeper(run_id):
                    return None
