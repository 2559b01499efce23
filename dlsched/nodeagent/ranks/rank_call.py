"""One `dlsched run`: its ranks on all nodes, and what its caller is told of them."""

from __future__ import annotations

import base64
import os
import signal
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlsched.job import messages as words
from dlsched.nodeagent.host.used import Used
from dlsched.nodeagent.json_values import plain
from dlsched.nodeagent.ranks.job_environment import address_of, compact_counts, compact_names
from dlsched.nodeagent.ranks.local_ranks import LocalRanks
from dlsched.nodeagent.ranks.master_port import port_of
from dlsched.nodeagent.ranks.rank_plan import RankCommand, check_count, part_of, plan_ranks
from dlsched.nodeagent.ranks.ranks_elsewhere import RanksElsewhere
from dlsched.nodeagent.ranks.shared_input import KeptBytes
from dlsched.protocol.messages import GpuId, StepRecord
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.job_socket import Peer
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

NAME, NODES = 32, 128  # characters that the exit record has room for
NOTHING = Used()


class Call:
    """One caller's ranks on all nodes.

    Attributes:
        peer: the caller.
        number: tells the calls of the run apart.
        abandoned: the caller is gone.
    """

    def __init__(
        self,
        keeper: KeeperInterface,
        peer: Peer,
        request: words.RunRanks,
        number: int,
        changed: tuple[str, ...] = (),
    ) -> None:
        """Start no rank yet.

        Args:
            keeper: of the run.
            peer: the caller.
            request: what the caller wants to run.
            number: of the call; it tells the calls of the run apart.
            changed: variables of the runtime whose values the caller has set.
        """
        self._keeper, self.peer, self._request, self.number = keeper, peer, request, number
        self._changed = changed
        self.begun = False
        self.gpus: frozenset[GpuId] = frozenset()  # that no other call gets meanwhile
        self._left: set[int] = set()  # ranks that have not ended
        self._node_of: dict[int, str] = {}  # by rank
        # packet, bytes of output in it, node of its rank, number of the event that it was there
        self._outgoing: deque[tuple[bytes, int, str, int]] = deque()
        self._elsewhere: dict[str, RanksElsewhere] = {}  # by node
        self._failed = False
        self._ended_with_others: set[int] = set()  # ranks here that got TERM since one has failed
        self._first_failure = (0, 0)  # code and signal of the first task that failed
        self._used_elsewhere = Used()  # by tasks on other nodes that have ended
        self._command: RankCommand | None = None
        self._began_at = self._ended_at = clock.wall()
        self.abandoned = False
        self._done = False
        self._input_sent, self._input_told = 0, 0  # bytes: from the caller, and taken by all ranks
        self._input_taken: dict[str, int] = {}  # bytes, by node with readers and live ranks
        self._input_kept = KeptBytes()  # not every reader elsewhere has taken it
        self._is_input_over = False
        self.ranks = LocalRanks(
            keeper,
            on_output=self._output,
            on_exit=self._exited,
            on_input_taken=lambda count: self._taken(keeper.spec.node, count),
        )

    @property
    def over(self) -> bool:
        """Whether no rank is left, and the caller knows or is gone."""
        knows = self._done and not self._outgoing
        is_left = self.ranks.running or not all(each.over for each in self._elsewhere.values())
        return (knows or self.abandoned) and not is_left

    def record(self, *, ends: bool = False) -> StepRecord:
        """Return the record of this call for accounting: its ranks, how it ended, what it used.

        Args:
            ends: for the exit record: it ends with its run, and other nodes say themselves what
                it has used there.
        """
        command = self._command
        assert command is not None, "it has begun"
        code, number = self._first_failure
        has_ended = ends or self.abandoned
        if has_ended and self._left and not (code or number):
            number = signal.SIGKILL
        used = self.ranks.used if ends else self.ranks.used + self._used_elsewhere
        return StepRecord(
            number=self.number - 1,
            name=self._request.name[:NAME]
            or (os.path.basename(command.argv[0])[:NAME] if command.argv else ""),
            nodes=compact_names(command.nodes)[:NODES],
            tasks=command.world,
            cpus=command.world * command.cpus_per_task,
            began_at=self._began_at,
            ran_s=max((clock.wall() if self._left else self._ended_at) - self._began_at, 0.0),
            code=code,
            signal=number,
            cpu_s=used.cpu_s,
            peak_memory_bytes=used.peak_memory_bytes,
            running=bool(self._left) and not has_ended,
        )

    def begin(self, taken: Collection[GpuId] = ()) -> None:
        """Start all ranks, unless their GPUs are among those `taken` by other calls.

        Raises:
            CannotPlace: when they do not fit; no rank was started then.
        """
        request, spec = self._request, self._keeper.spec
        taken = () if request.overlap else taken
        layout = part_of(
            spec.desired.layout, request.nodes, request.gpus, taken, alone=request.own_gpus
        )
        if layout is None:
            return
        check_count("processors of each rank", request.cpus_per_task)
        plans = plan_ranks(
            layout,
            request.ntasks,
            request.per_node,
            request.gpus_per_task,
            overcommit=request.overcommit,
            tasks_per_gpu=request.tasks_per_gpu,
            gpu_masks=request.gpu_masks,
            plane=request.plane,
        )
        self.begun = True
        if (request.gpus is not None or request.own_gpus) and not request.overlap:
            self.gpus = frozenset(gpu for share in layout for gpu in share.gpus)
        for share, places in zip(layout, plans, strict=True):
            self._node_of.update({place.rank: share.node for place in places})
        self._left = set(self._node_of)
        nodes = tuple(share.node for share, places in zip(layout, plans, strict=True) if places)
        command = RankCommand(
            call=self.number,
            argv=tuple(request.argv),
            environment=dict(request.environment),
            working_directory=request.working_directory,
            world=sum(len(each) for each in plans),
            nodes=nodes,
            master_address=address_of(spec, nodes[0]),
            master_port=port_of(spec.desired.key.run_id, self.number - 1),
            tasks_per_node=compact_counts([len(each) for each in plans if each]),
            cpus_per_task=request.cpus_per_task,
            changed=self._changed,
            input_file=request.input_file,
        )
        command, inputs = self._with_input(command)
        self._command, self._began_at = command, clock.wall()
        streams = None
        if len(self.peer.streams) >= 2 and not request.label:
            streams = (self.peer.streams[0], self.peer.streams[1])
        where = tuple(self._node_of[rank] for rank in range(command.world))
        sends = command.input_to is not None
        self._send(
            words.Started(ranks=command.world, call=self.number, nodes=where, sends_input=sends)
        )
        by_node = {share.node: places for share, places in zip(layout, plans, strict=True)}
        self.ranks.start(command, by_node.get(spec.node, ()), streams, inputs)
        for fd in self.peer.streams:
            os.close(fd)
        self.peer.streams.clear()
        names = (share.node for share in spec.desired.layout)
        addresses = dict(zip(names, spec.launch.addresses, strict=False))
        for node, places in by_node.items():
            if node != spec.node and places:
                address = addresses.get(node, "")
                message = {
                    **plain(command),
                    "node": node,
                    "address": address,
                    "ranks": [plain(each) for each in places],
                }
                self._elsewhere[node] = RanksElsewhere(
                    self._keeper.send_to_agent, message, spec.timing.away_s
                )
        for each in self._elsewhere.values():
            each.open(clock.boottime())

    # -- input ---------------------------------------------------------------------------------

    def _with_input(self, command: RankCommand) -> tuple[RankCommand, dict[int, int]]:
        """The command with the ranks that the caller's input is sent to.

        A rank that reads alone, on this node, reads itself: its descriptor comes with it.
        """
        if len(self.peer.streams) <= 2:
            return command, {}
        said = self._request.input_to
        command = replace(command, input_to=0 if said is None else said)
        readers = [rank for rank in self._node_of if command.reads(rank)]
        nodes = {self._node_of[rank] for rank in readers}
        if len(readers) == 1 and nodes == {self._keeper.spec.node}:
            return replace(command, input_to=None), {readers[0]: self.peer.streams[2]}
        if said is None or not readers:
            return replace(command, input_to=None), {}
        self._input_taken = dict.fromkeys(nodes, 0)
        return command, {}

    def take_input(self, data: bytes) -> None:
        """Give the ranks that read what the caller has read; nothing: it is over."""
        self._input_sent += len(data)
        if self._input_sent - self._input_told > words.INPUT_WINDOW + words.INPUT_CHUNK:
            self._send(words.Refused(why="more input than the ranks have room for"))
            self.abandon()
            return
        at, self._is_input_over = self._input_kept.end, self._is_input_over or not data
        self._input_kept.add(data)
        for node in self._input_taken:
            if node in self._elsewhere:
                self._elsewhere[node].give(data, at)
            else:
                self.ranks.input.give(data)
        self._tell_taken()

    def _taken(self, node: str, count: int) -> None:
        if node in self._input_taken:
            self._input_taken[node] = max(count, self._input_taken[node])
            self._tell_taken()

    def _tell_taken(self) -> None:
        """Tell the caller what all ranks that read and have not ended have taken."""
        elsewhere = (self._input_taken[each] for each in self._input_taken.keys() & self._elsewhere)
        self._input_kept.forget(min(elsewhere, default=self._input_sent))
        taken = min(self._input_taken.values(), default=self._input_sent)
        if taken > self._input_told:
            self._input_told = taken
            self._send(words.InputTaken(bytes=taken))

    # -- output and ends ------------------------------------------------------------------------

    def _output(self, rank: int, stream: int, data: bytes, event: int = 0) -> None:
        self._send(words.Output(rank=rank, stream=stream, data=data), len(data), rank, event)

    def _exited(
        self,
        rank: int,
        code: int,
        number: int,
        used: Used = NOTHING,
        *,
        with_others: bool = False,
        event: int = 0,
    ) -> None:
        if rank not in self._left:
            return
        node = self._node_of[rank]
        if node in self._elsewhere:
            self._used_elsewhere += used
            self._elsewhere[node].left -= 1
        self._left.discard(rank)
        with_others = with_others or rank in self._ended_with_others
        end = words.Exited(rank=rank, code=code, signal=number, node=node, with_others=with_others)
        self._send(end, 0, rank, event)
        if node in self._input_taken and all(self._node_of[each] != node for each in self._left):
            del self._input_taken[node]
            self._tell_taken()
        self._ended_at = clock.wall()
        if (code or number) and not any(self._first_failure):
            self._first_failure = (code, number)
        is_alone = self._request.kill_on_bad_exit and not self._failed
        # those of a run that stops have their own TERM, and its grace
        if (code or number) and is_alone and self._keeper.state.stop is None:
            self._failed = True
            self._end_all()
        if not self._left and not self._done:
            self._done = True
            self._send(words.Done())

    # -- ranks on other nodes ------------------------------------------------------------------

    def take_event(self, event: dict[str, Any]) -> None:
        """Take what a rank on another node has written, or its end, or that of its stream."""
        elsewhere = self._elsewhere.get(str(event["node"]))
        if elsewhere is None or not elsewhere.is_news(event):
            return
        number = int(event.get("number", 0))
        if "refused" in event:
            self._give_up(elsewhere, str(event["refused"]))
        elif "broke" in event:
            elsewhere.broke(clock.boottime(), str(event["broke"]))
        elif "ended" in event:
            elsewhere.finish()
        elif "started" in event:
            if elsewhere.opened():
                self._give_again(elsewhere, int(event["input_taken"]))
        elif event.get("exited"):
            cpu_s, peak = event.get("cpu_s", 0.0), event.get("peak_memory_bytes", 0)
            used = Used(float(cpu_s), int(peak))
            code, ended_by = int(event["code"]), int(event["signal"])
            self._exited(int(event["rank"]), code, ended_by, used, event=number)
        elif "input_taken" in event:
            self._taken(elsewhere.node, int(event["input_taken"]))
        else:
            data = base64.b64decode(event["data"])
            self._output(int(event["rank"]), int(event["stream"]), data, number)

    def agent_gone(self) -> None:
        """Wait for another agent to reach the other nodes."""
        for each in self._elsewhere.values():
            if not each.over:
                each.agent_gone(clock.boottime())

    def new_agent(self) -> None:
        """Reach the other nodes again."""
        for each in self._elsewhere.values():
            each.new_agent(clock.boottime())
            if each.is_open:  # for the first time
                self._give_again(each, 0)

    def _give_again(self, elsewhere: RanksElsewhere, received: int) -> None:
        """Send a node the input that has not arrived there."""
        if elsewhere.node in self._input_taken:
            elsewhere.give_again(self._input_kept, received, is_over=self._is_input_over)

    @property
    def deadline(self) -> float | None:
        """When `wake` has something to do, in seconds since the boot; None: not at all."""
        times = (each.deadline for each in self._elsewhere.values())
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: float) -> None:
        """Look for ranks whose stream has broken, and give up those that are gone for long."""
        for each in self._elsewhere.values():
            self._give_up(each, each.wake(now))

    def _give_up(self, elsewhere: RanksElsewhere, why: str) -> None:
        """Note that the ranks of a node are lost, if there is a reason."""
        if why:
            elsewhere.give_up()
            self._refuse_node(elsewhere.node, why)

    def _refuse_node(self, node: str, why: str) -> None:
        ranks = [rank for rank in sorted(self._left) if self._node_of[rank] == node]
        if ranks:
            text = f"dlsched: run: node {node}: {why}\n".encode()
            self._output(ranks[0], 2, text)
        with_others = self._failed
        for rank in ranks:
            self._exited(rank, 1, 0, with_others=with_others)

    def send(self, number: int) -> None:
        """Send one signal to all ranks."""
        self.ranks.send(number)
        for each in self._elsewhere.values():
            each.signal(number)

    def _end_all(self) -> None:
        self._ended_with_others = self.ranks.end_with_others()
        self._end_elsewhere()
        for node in self._elsewhere:
            self._refuse_node(node, "ended with the others")

    def _end_elsewhere(self) -> None:
        for each in self._elsewhere.values():
            each.end(clock.boottime())

    def abandon(self) -> None:
        """End all ranks: the caller is gone."""
        self.abandoned = True
        self._outgoing.clear()
        self._end_elsewhere()
        self.ranks.stop()

    # -- to the caller -------------------------------------------------------------------------

    def _send(self, message: words.Message, size: int = 0, rank: int = -1, event: int = 0) -> None:
        if not self.abandoned:
            node = self._node_of.get(rank, "")
            self._outgoing.append((words.encode(message), size, node, event))
            self.flush()

    def flush(self) -> None:
        """Send the caller as much as it takes now."""
        while self._outgoing:
            packet, size, node, event = self._outgoing[0]
            if not self.peer.send(packet):
                self._keeper.wait_to_write(self.peer.socket.fileno(), True)
                return
            self._outgoing.popleft()
            elsewhere = self._elsewhere.get(node)
            if elsewhere is not None:
                if event:
                    elsewhere.taken(event, size)
            elif size:
                self.ranks.taken(size)
