"""`dlsched run`: ranks inside an allocation, for a caller on the first node.

The keeper of the first node plans them, starts its own share and asks the keepers of the other
nodes for theirs, through the agents. Each of those answers with what its ranks write and how they
end.
"""

from __future__ import annotations

import base64
import os
import signal
from collections import deque
from typing import TYPE_CHECKING, Any

from dlsched.job import messages as words
from dlsched.nodeagent.environment import folded
from dlsched.nodeagent.local_ranks import LocalRanks
from dlsched.nodeagent.plainjson import plain, value_of
from dlsched.nodeagent.rank_plan import CannotPlace, Place, plan
from dlsched.nodeagent.rendezvous import derived

if TYPE_CHECKING:
    from dlsched.nodeagent.job_socket import Peer
    from dlsched.nodeagent.kept_run import KeptRun


class RankCalls:
    """All calls of one run on one node: a caller's own, and shares of callers elsewhere."""

    def __init__(self, keeper: KeptRun) -> None:
        self._keeper = keeper
        self._count = 0
        self._calls: dict[int, Call] = {}
        self._shares: dict[int, LocalRanks] = {}

    @property
    def deadline(self) -> float | None:
        """When something here is due."""
        ranks = [*(call.ranks for call in self._calls.values()), *self._shares.values()]
        return min((each.kill_at for each in ranks if each.kill_at is not None), default=None)

    def wake(self, now: float) -> None:
        """A deadline has passed."""
        for each in [*(call.ranks for call in self._calls.values()), *self._shares.values()]:
            each.wake(now)

    # -- callers here --------------------------------------------------------------------------

    def heard(self, peer: Peer, message: words.FromJob) -> None:
        """A caller has spoken."""
        if isinstance(message, words.RunRanks):
            if any(call.peer is peer for call in self._calls.values()):
                return
            if self._keeper.spec.rank != 0:
                peer.say(words.Refused(why="only the first node of an allocation starts ranks"))
                return
            self._count += 1
            call = Call(self._keeper, peer, message, self._count)
            try:
                call.begin()
            except CannotPlace as error:
                peer.say(words.Refused(why=str(error)))
                return
            self._calls[self._count] = call
        elif isinstance(message, words.SignalRanks):
            for call in self._calls.values():
                if call.peer is peer and 0 < message.number < signal.NSIG:
                    call.send(message.number)

    def hung_up(self, peer: Peer) -> None:
        """A caller has gone: its ranks go too."""
        for call in self._calls.values():
            if call.peer is peer:
                call.abandon()
        self._tidy()

    def flush(self, peer: Peer) -> None:
        """A caller reads again."""
        for call in list(self._calls.values()):
            if call.peer is peer:
                call.flush()
        self._tidy()

    def ended(self, pid: int, code: int, number: int, detail: str) -> bool:
        """Whether a process that ended was somebody's rank."""
        ranks = [*(call.ranks for call in self._calls.values()), *self._shares.values()]
        found = any(each.ended(pid, code, number, detail) for each in ranks)
        self._tidy()
        return found

    def _tidy(self) -> None:
        for key in [key for key, call in self._calls.items() if call.over]:
            del self._calls[key]
        for key in [key for key, share in self._shares.items() if not share.running]:
            del self._shares[key]

    # -- the agent -----------------------------------------------------------------------------

    def agent_said(self, message: dict[str, Any]) -> None:
        """Something of another node's."""
        if "ranks_event" in message:
            event = message["ranks_event"]
            call = self._calls.get(int(event["call"]))
            if call is not None:
                call.remote(event)
        elif "start_ranks" in message:
            self._start_share(message["start_ranks"])
        elif "stop_ranks" in message:
            share = self._shares.get(int(message["stop_ranks"]))
            if share is not None:
                share.stop()
        elif "signal_ranks" in message:
            asked = message["signal_ranks"]
            share = self._shares.get(int(asked["call"]))
            if share is not None and 0 < int(asked["number"]) < signal.NSIG:
                share.send(int(asked["number"]))
        elif "ranks_taken" in message:
            taken = message["ranks_taken"]
            share = self._shares.get(int(taken["call"]))
            if share is not None:
                share.taken(int(taken["bytes"]))
        self._tidy()

    def _start_share(self, asked: dict[str, Any]) -> None:
        number = int(asked["call"])
        keeper = self._keeper
        if keeper.state.stage.value != "running" or number in self._shares:
            keeper.tell({"rank_event": {"call": number, "refused": "the run does not run here"}})
            return

        def wrote(rank: int, stream: int, data: bytes) -> None:
            text = base64.b64encode(data).decode()
            keeper.tell(
                {"rank_event": {"call": number, "rank": rank, "stream": stream, "data": text}}
            )

        def exited(rank: int, code: int, ended_by: int) -> None:
            told = {"call": number, "rank": rank, "exited": True}
            keeper.tell({"rank_event": {**told, "code": code, "signal": ended_by}})

        share = LocalRanks(keeper, wrote=wrote, exited=exited)
        self._shares[number] = share
        share.start(
            [value_of(Place, each) for each in asked["ranks"]],
            argv=[str(each) for each in asked["argv"]],
            environment=dict(asked["environment"]),
            working_directory=str(asked["working_directory"]),
            world=int(asked["world"]),
            master_port=int(asked["master_port"]),
            tasks_per_node=str(asked["tasks_per_node"]),
            streams=None,
        )


class Call:
    """One caller's ranks on all nodes."""

    def __init__(self, keeper: KeptRun, peer: Peer, asked: words.RunRanks, number: int) -> None:
        self._keeper, self.peer, self._asked, self._number = keeper, peer, asked, number
        self._left: set[int] = set()  # ranks
        self._where: dict[int, str] = {}  # node of a rank
        self._outgoing: deque[tuple[bytes, int, str]] = deque()  # packet, bytes, node
        self._failed = False
        self._abandoned = False
        self._done = False
        self.ranks = LocalRanks(keeper, wrote=self._wrote, exited=self._exited)

    @property
    def over(self) -> bool:
        """Whether nothing is left of it."""
        told = self._done and not self._outgoing
        return (told or self._abandoned) and not self.ranks.running

    def begin(self) -> None:
        """Start all ranks.

        Raises:
            CannotPlace: when they do not fit; nothing was started then.
        """
        asked, spec = self._asked, self._keeper.spec
        layout = spec.desired.layout
        plans = plan(layout, asked.ntasks, asked.per_node, asked.gpus_per_task)
        world = sum(len(each) for each in plans)
        for share, places in zip(layout, plans, strict=True):
            self._where.update({place.rank: share.node for place in places})
        self._left = set(self._where)
        common = {
            "argv": list(asked.argv),
            "environment": dict(asked.environment),
            "working_directory": asked.working_directory,
            "world": world,
            "master_port": derived(spec.desired.key.run_id, self._number - 1),
            "tasks_per_node": folded([len(each) for each in plans if each]),
        }
        streams = None
        if len(self.peer.streams) >= 2 and not asked.label:
            streams = (self.peer.streams[0], self.peer.streams[1])
        self._say(words.Started(ranks=world))
        self.ranks.start(plans[0], **common, streams=streams)  # type: ignore[arg-type]  # as named
        for fd in self.peer.streams:
            os.close(fd)
        self.peer.streams.clear()
        for place, (share, places) in enumerate(zip(layout, plans, strict=True)):
            if place and places:
                address = spec.launch.addresses[place] if spec.launch.addresses else ""
                request = {
                    **common,
                    "call": self._number,
                    "node": share.node,
                    "address": address,
                    "ranks": [plain(each) for each in places],
                }
                if not self._keeper.tell({"ranks": request}):
                    self._refuse_node(share.node, "the agent of the first node is away")

    # -- what comes of them --------------------------------------------------------------------

    def _wrote(self, rank: int, stream: int, data: bytes) -> None:
        self._say(words.Output(rank=rank, stream=stream, data=data), len(data), rank)

    def _exited(self, rank: int, code: int, number: int) -> None:
        if rank not in self._left:
            return
        self._left.discard(rank)
        self._say(words.Exited(rank=rank, code=code, signal=number, node=self._where[rank]))
        if (code or number) and self._asked.kill_on_bad_exit and not self._failed:
            self._failed = True
            self._end_all()
        if not self._left:
            self._say(words.Done())
            self._done = True

    def remote(self, event: dict[str, Any]) -> None:
        """Something of a rank on another node."""
        if "refused" in event:
            self._refuse_node(str(event["node"]), str(event["refused"]))
        elif event.get("exited"):
            self._exited(int(event["rank"]), int(event["code"]), int(event["signal"]))
        else:
            self._wrote(int(event["rank"]), int(event["stream"]), base64.b64decode(event["data"]))

    def _refuse_node(self, node: str, why: str) -> None:
        mine = [rank for rank in sorted(self._left) if self._where[rank] == node]
        if mine:
            text = f"dlsched: run: node {node}: {why}\n".encode()
            self._wrote(mine[0], 2, text)
        for rank in mine:
            self._exited(rank, 1, 0)

    def send(self, number: int) -> None:
        """One signal to all ranks."""
        self.ranks.send(number)
        self._keeper.tell({"ranks_signal": {"call": self._number, "number": number}})

    def _end_all(self) -> None:
        self._keeper.tell({"ranks_stop": self._number})
        self.ranks.send(signal.SIGTERM)
        self.ranks.end_soon()

    def abandon(self) -> None:
        """The caller is gone."""
        self._abandoned = True
        self._outgoing.clear()
        self._keeper.tell({"ranks_stop": self._number})
        self.ranks.stop()

    # -- to the caller -------------------------------------------------------------------------

    def _say(self, message: words.Message, size: int = 0, rank: int = -1) -> None:
        if not self._abandoned:
            self._outgoing.append((words.encode(message), size, self._where.get(rank, "")))
            self.flush()

    def flush(self) -> None:
        """Send what the caller takes."""
        while self._outgoing:
            packet, size, node = self._outgoing[0]
            if not self.peer.send(packet):
                self._keeper.wait_to_write(self.peer)
                return
            self._outgoing.popleft()
            if size and node == self._keeper.spec.node:
                self.ranks.taken(size)
            elif size:
                told = {"call": self._number, "node": node, "bytes": size}
                self._keeper.tell({"ranks_received": told})
