"""Calls over two nodes whose agents die and come back, at any point, without a real process.

Keepers and agents are the real ones; what is between them loses what is on its way when an agent
dies. Ranks are pipes that the test holds.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from grpc import StatusCode, aio

from dlsched.job import messages as words
from dlsched.nodeagent.agent.gang_ranks import GangRanks
from dlsched.nodeagent.host.used import Used
from dlsched.nodeagent.keeper.framing import Frames, frame
from dlsched.nodeagent.ranks.child_process import ProcessSpec
from dlsched.nodeagent.ranks.job_signals import JobSignals
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec, LaunchFacts, RunFacts
from dlsched.nodeagent.ranks.local_ranks import WINDOW
from dlsched.nodeagent.ranks.rank_calls import RankCalls
from dlsched.protocol import messages as m
from dlsched.rpc.v1 import node_pb2
from dlsched.system import clock

KEY = m.RunKey(job=m.JobId(1), run=m.RunNumber(1), run_id=m.RunId("1-a"))
LAYOUT = tuple(
    m.Share(node=m.NodeName(name), gpus=(m.GpuId(f"g-{name}"),)) for name in ("n1", "n2")
)
NO_PROCESS = 1 << 30  # above every process id
AWAY_S = KeeperSpec.__dataclass_fields__["timing"].default.away_s


class Rank:
    """A rank whose pipes the test holds."""

    def __init__(self, process: ProcessSpec) -> None:
        assert process.streams is not None
        self.out = os.dup(process.streams[0] or 0)
        self.read_from = os.dup(process.input) if process.input is not None else None
        self.written, self.read, self.heard_end = b"", b"", process.input is None
        self.code: int | None = None

    def write(self, data: bytes) -> None:
        self.written += data
        os.write(self.out, data)

    @property
    def may_write(self) -> bool:
        """Whether its pipe has room."""
        return bool(select.select([], [self.out], [], 0)[1])

    def take_input(self) -> None:
        if self.read_from is None or not select.select([self.read_from], [], [], 0)[0]:
            return
        data = os.read(self.read_from, 50_000)
        self.read += data
        self.heard_end = not data

    def close(self) -> None:
        os.close(self.out)
        if self.read_from is not None:
            os.close(self.read_from)


class Caller:
    """A peer that takes packets only while it has room."""

    def __init__(self) -> None:
        self.streams = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
        self.socket = SimpleNamespace(fileno=lambda: -1)
        self.room = 0
        self.output: dict[int, bytes] = {}
        self.codes: dict[int, int] = {}
        self.taken, self.said, self.done = 0, b"", False

    def send(self, packet: bytes) -> bool:
        if not self.room:
            return False
        self.room -= 1
        message = words.decode_from_keeper(packet)
        assert not self.done
        if isinstance(message, words.Output) and message.stream == 1:
            self.output[message.rank] = self.output.get(message.rank, b"") + message.data
        elif isinstance(message, words.Output):
            self.said += message.data
        elif isinstance(message, words.Exited):
            assert message.rank not in self.codes
            self.codes[message.rank] = message.code or 128 + message.signal
            if not message.code and not message.signal:
                self.codes[message.rank] = 0
        elif isinstance(message, words.InputTaken):
            self.taken = message.bytes
        self.done = self.done or isinstance(message, words.Done)
        return True

    def send_message(self, message: words.Message) -> None:
        raise AssertionError(message)


class Node:
    """A keeper, and its agent when there is one."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name, self._cluster = name, cluster
        desired = m.DesiredRun(
            key=KEY, want=m.Want.RUNNING, epoch=m.Epoch(1), boot_id=m.BootId("b"),
            gpus=(m.GpuId(f"g-{name}"),), layout=LAYOUT,
        )  # fmt: skip
        self.spec = KeeperSpec(
            node=m.NodeName(name), desired=desired, facts=RunFacts(), state_dir="/", run_dir="/",
            launch=LaunchFacts(user="u", uid=1, gid=1, slurm_environment=False),
        )  # fmt: skip
        self.state = SimpleNamespace(stage=SimpleNamespace(value="running"), stop=None)
        self.job_socket_path = ""
        self.processes = self
        self.ranks: list[Rank] = []
        self._watched: dict[int, Callable[[int], None]] = {}
        self._to_write: set[int] = set()
        self.calls = RankCalls(cast(Any, self))
        self.agent: GangRanks | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.died = asyncio.Event()
        self.got: list[int] = []  # signals that have come from the other node
        self.signals = JobSignals(list, tuple)  # to no process

    # -- the keeper ----------------------------------------------------------------------------

    def watch(self, fd: int, call: Callable[[int], None]) -> None:
        self._watched[fd] = call

    def unwatch(self, fd: int) -> None:
        self._watched.pop(fd, None)
        self._to_write.discard(fd)

    def wait_to_write(self, fd: int, wanted: bool) -> None:
        (self._to_write.add if wanted else self._to_write.discard)(fd)

    def start_child(self, process: ProcessSpec) -> int:
        self.ranks.append(Rank(process))
        return NO_PROCESS + len(self.ranks) - 1

    def end(self, rank: Rank, code: int) -> None:
        rank.code = code
        rank.close()
        assert self.calls.ended(NO_PROCESS + self.ranks.index(rank), code, 0, "", Used())

    def look(self) -> None:
        """What the keeper's loop does when it turns."""
        poll = select.poll()
        for fd in self._watched:
            if fd >= 0:
                poll.register(fd, select.POLLIN | (select.POLLOUT if fd in self._to_write else 0))
        for fd, mask in poll.poll(0):
            if fd in self._watched:
                self._watched[fd](mask)
        self.calls.wake(clock.boottime())

    def send_to_agent(self, message: dict[str, object]) -> bool:
        agent = self.agent
        if agent is not None:
            self._later(message, agent, lambda said: agent.from_keeper(KEY.run_id, said))
        return agent is not None

    def _later(
        self, message: dict[str, Any], agent: GangRanks, take: Callable[[dict[str, Any]], None]
    ) -> None:
        """Deliver a message as it goes over the socket, unless the agent dies before."""
        (said,) = Frames().feed(frame(message))

        def deliver() -> None:
            if self.agent is agent:
                take(said)

        asyncio.get_running_loop().call_soon(deliver)

    # -- the agent -----------------------------------------------------------------------------

    def start(self) -> None:
        agents: list[GangRanks] = []

        def send(_run_id: str, message: dict[str, Any]) -> bool:
            if self.agent is agents[0]:
                self._later(message, agents[0], self.calls.from_agent)
            return True

        def of_job(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return task

        again = self.died.is_set()
        self.died = asyncio.Event()
        agents.append(
            GangRanks(
                m.NodeName(self.name),
                cast(Any, SimpleNamespace(of_job=of_job)),
                cast(Any, SimpleNamespace(send=send, has=lambda _run_id: True)),
                cast(
                    Any,
                    SimpleNamespace(stub=lambda node, *_: Stub(self._cluster.nodes[node])),
                ),
                lambda _run_id: self.spec.desired,
            )
        )
        self.agent = agents[0]
        if again:
            self.calls.new_agent()

    def kill(self) -> None:
        self.agent = None
        self.died.set()
        for task in self._tasks:
            task.cancel()
        self.calls.agent_gone()


class Stub:
    """A channel to an agent; calls break when it dies."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def HoldRanks(  # noqa: N802  # the proto's name
        self, requests: AsyncIterator[node_pb2.RanksRequest]
    ) -> AsyncIterator[node_pb2.RankEvent]:
        first = await anext(requests)
        agent, died = self._node.agent, self._node.died
        if agent is None:
            raise broken()
        assert not agent.refusal(first.asker, KEY.run_id)
        serving = agent.serve(node_pb2.RanksRequest.FromString(first.SerializeToString()), requests)
        death = asyncio.ensure_future(died.wait())
        try:
            while True:
                event = asyncio.ensure_future(anext(serving, None))
                await asyncio.wait({event, death}, return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    raise broken()
                found = event.result()
                if found is None:
                    return
                yield found
        finally:
            death.cancel()
            if not event.done():
                event.cancel()
            await asyncio.wait({event})
            await serving.aclose()

    async def SignalRanks(  # noqa: N802
        self, request: node_pb2.RanksSignal, timeout: float
    ) -> node_pb2.SignalReply:
        self._node.got.append(request.number)
        return node_pb2.SignalReply()


def broken() -> aio.AioRpcError:
    where = aio.Metadata(), aio.Metadata()
    return aio.AioRpcError(StatusCode.UNAVAILABLE, *where, details="no connection")


class Cluster:
    """Two nodes, and one call of two ranks that both read its input."""

    def __init__(self) -> None:
        self.nodes = {name: Node(name, self) for name in ("n1", "n2")}
        self.first, self.second = self.nodes.values()
        self.caller = Caller()
        self.given, self.is_input_over = b"", False

    def start(self, **more: Any) -> None:
        for node in self.nodes.values():
            if node.agent is None:
                node.start()
        self.call(**more)

    def call(self, **more: Any) -> None:
        more = {"kill_on_bad_exit": False, "input_to": words.EVERY_RANK, **more}
        wanted = words.RunRanks(argv=("x",), ntasks=2, label=True, **more)
        self.first.calls.from_job(cast(Any, self.caller), wanted)

    @property
    def ranks(self) -> list[tuple[Node, Rank]]:
        return [(node, rank) for node in self.nodes.values() for rank in node.ranks]

    def give(self, data: bytes) -> None:
        """Input of the caller, as much as it may send; none: the end."""
        if not self.is_input_over and len(self.given) - self.caller.taken < words.INPUT_WINDOW:
            self.given += data
            self.is_input_over = not data
            self.first.calls.from_job(cast(Any, self.caller), words.Input(data=data))

    def take(self, packets: int) -> None:
        """Let the caller read."""
        self.caller.room += packets
        self.first.calls.flush(cast(Any, self.caller))

    async def turn(self, times: int = 100) -> None:
        """Let all go on for a while."""
        for _ in range(times):
            for node in self.nodes.values():
                node.look()
            await asyncio.sleep(0)

    async def end(self, codes: tuple[int, int] = (3, 4)) -> None:
        """Bring agents back and let everything end."""
        for node in self.nodes.values():
            if node.agent is None:
                node.start()
        await self.until(lambda: len(self.ranks) == 2)
        await self.until(lambda: self.give(b"") or self.is_input_over)
        await self.until(lambda: all(rank.heard_end for _, rank in self.ranks if rank.code is None))
        for (node, rank), code in zip(self.ranks, codes, strict=True):
            if rank.code is None:
                node.end(rank, code)
        await self.until(lambda: self.caller.done)

    async def until(self, condition: Callable[[], Any]) -> None:
        for _ in range(300):
            if condition():
                return
            CLOCK.pass_by(0.3)
            for _, rank in self.ranks:
                if rank.code is None:
                    rank.take_input()
            self.take(20)
            await self.turn(20)
        raise AssertionError(condition)

    def close(self) -> None:
        for _, rank in self.ranks:
            if rank.code is None:
                rank.close()


class Clock:
    """The time since the boot, as the test has it."""

    now = 1000.0

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


CLOCK = Clock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boottime", lambda: CLOCK.now)


def play(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        cluster = Cluster()
        try:
            await story(cluster)
        finally:
            cluster.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

    asyncio.run(whole())


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_and_nothing_repeated_whenever_agents_die(seed: int) -> None:
    rng = random.Random(seed)

    async def story(cluster: Cluster) -> None:
        cluster.start()
        nodes = [*cluster.nodes.values()]
        for _ in range(800):
            node = rng.choice(nodes)
            live = [pair for pair in cluster.ranks if pair[1].code is None]
            what = rng.choice(("write", "read", "give", "take", "turn", "turn", "agent", "wait"))
            if what == "write" and all(rank.may_write for _, rank in live) and live:
                rng.choice(live)[1].write(rng.randbytes(rng.choice((1, 10, 3000))))
            elif what == "read" and live:
                rng.choice(live)[1].take_input()
            elif what == "give":
                cluster.give(rng.randbytes(rng.choice((1, 500, words.INPUT_CHUNK))))
            elif what == "take":
                cluster.take(rng.randrange(5))
            elif what == "turn":
                await cluster.turn(rng.choice((1, 2, 4, 20)))
            elif what == "wait":
                CLOCK.pass_by(0.3)
            elif node.agent is None:
                node.start()
            elif rng.random() < 0.3:
                node.kill()
        await cluster.end()
        assert not cluster.caller.said
        for number, (_, rank) in enumerate(cluster.ranks):
            assert cluster.caller.output.get(number, b"") == rank.written
            assert rank.read == cluster.given
        assert cluster.caller.codes == {0: 3, 1: 4}
        await cluster.turn()
        assert not cluster.first.calls._calls
        assert not cluster.second.calls._shares._shares

    play(story)


def test_a_rank_that_ends_while_both_agents_are_away_has_its_code_told() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start()
        await cluster.turn()
        for node in cluster.nodes.values():
            node.kill()
        _, (node, rank) = cluster.ranks
        rank.write(b"last words")
        await cluster.turn()
        node.end(rank, 9)
        await cluster.end((0, 9))
        assert cluster.caller.codes == {0: 0, 1: 9}
        assert cluster.caller.output == {1: b"last words"}

    play(story)


@pytest.mark.parametrize("away", ["n1", "n2"])
def test_ranks_are_given_up_when_an_agent_stays_away(away: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start()
        await cluster.turn()
        cluster.nodes[away].kill()
        await cluster.turn()
        CLOCK.pass_by(AWAY_S - 1)
        cluster.take(100)
        await cluster.turn()
        assert not cluster.caller.codes
        CLOCK.pass_by(1)
        await cluster.turn()
        cluster.take(100)
        whose = "the agent of the first node" if away == "n1" else "its agent"
        why = f"dlsched: run: node n2: its ranks end, because {whose} has been away for 65 s"
        assert cluster.caller.said.decode().startswith(why)
        assert cluster.caller.said.count(b"\n") == 1
        assert cluster.caller.codes == {1: 1}
        shares = cluster.second.calls._shares._shares
        assert [share.has_stopped for share in shares.values()] == [True]
        cluster.nodes[away].start()
        await cluster.turn()
        assert len(cluster.second.ranks) == 1, "it is not started again"

    play(story)


def test_what_no_caller_takes_is_bounded_however_often_agents_restart() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start()
        await cluster.turn()
        (_, rank) = cluster.ranks[1]
        for _ in range(4):
            for _ in range(100):
                if rank.may_write:
                    rank.write(bytes(4096))
                    await cluster.turn(3)
            for node in cluster.nodes.values():
                node.kill()
                node.start()
            CLOCK.pass_by(0.3)
            await cluster.turn()
        (share,) = cluster.second.calls._shares._shares.values()
        (call,) = cluster.first.calls._calls.values()
        assert sum(size for _, size, _ in share._kept) < WINDOW + 64 * 1024
        assert sum(size for _, size, *_ in call._outgoing) < WINDOW + 64 * 1024
        await cluster.end()
        assert cluster.caller.output[1] == rank.written

    play(story)


def test_a_call_that_begins_while_the_agent_is_away_begins_when_it_is_back() -> None:
    async def story(cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            node.start()
        cluster.first.kill()
        cluster.call()
        cluster.give(b"early")
        cluster.first.calls.from_job(cast(Any, cluster.caller), words.SignalRanks(number=10))
        await cluster.turn()
        assert len(cluster.ranks) == 1
        await cluster.end()
        assert [rank.read for _, rank in cluster.ranks] == [b"early", b"early"]
        assert cluster.second.got == [10]
        assert cluster.caller.codes == {0: 3, 1: 4}

    play(story)


@pytest.mark.parametrize("gone", ["caller", "rank"])
def test_ranks_elsewhere_end_as_soon_as_an_agent_is_back(gone: str) -> None:
    """The caller is gone, or a rank has failed, while the first node's agent is away."""

    async def story(cluster: Cluster) -> None:
        cluster.start(kill_on_bad_exit=True)
        await cluster.turn()
        cluster.first.kill()
        await cluster.turn()
        (node, rank), _ = cluster.ranks
        if gone == "caller":
            cluster.first.calls.closed(cast(Any, cluster.caller))
            node.end(rank, 1)
        else:
            node.end(rank, 5)
            await cluster.turn()
            cluster.take(100)
            assert cluster.caller.codes == {0: 5, 1: 1}
            assert cluster.caller.done
        await cluster.turn()
        (share,) = cluster.second.calls._shares._shares.values()
        assert not share.has_stopped
        cluster.first.start()
        await cluster.turn()
        assert share.has_stopped
        assert not cluster.first.calls._calls

    play(story)


def test_ranks_elsewhere_end_whenever_their_caller_goes() -> None:
    """However far the start has come."""

    async def story(cluster: Cluster, turns: int) -> None:
        cluster.start(input_to=None)
        await cluster.turn(turns)
        cluster.first.calls.closed(cast(Any, cluster.caller))
        await cluster.turn()
        shares = cluster.second.calls._shares._shares
        assert all(share.has_stopped for share in shares.values())
        cluster.first.end(cluster.first.ranks[0], 1)
        await cluster.turn()
        assert not cluster.first.calls._calls

    for turns in range(40):
        play(lambda cluster, turns=turns: story(cluster, turns))


def test_input_that_is_taken_while_agents_are_away_makes_room_for_more() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start()
        await cluster.turn()
        for _ in range(words.INPUT_WINDOW // words.INPUT_CHUNK):
            cluster.give(bytes(words.INPUT_CHUNK))
        await cluster.turn()
        for node in cluster.nodes.values():
            node.kill()
        for _ in range(100):
            for _, rank in cluster.ranks:
                rank.take_input()
            await cluster.turn(1)
        cluster.take(100)
        assert cluster.caller.taken < words.INPUT_WINDOW
        for node in cluster.nodes.values():
            node.start()
        await cluster.until(lambda: cluster.caller.taken == words.INPUT_WINDOW)
        await cluster.end()

    play(story)


def test_the_end_of_an_earlier_stream_is_not_that_of_the_present_one() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start()
        await cluster.turn()
        cluster.first.kill()
        cluster.first.start()
        await cluster.turn()
        cluster.second.calls.from_agent({"stop_ranks": 1, "attempt": 1})
        CLOCK.pass_by(AWAY_S + 1)
        await cluster.end()
        assert cluster.caller.codes == {0: 3, 1: 4}

    play(story)


def test_no_request_starts_a_rank_again() -> None:
    """Not the first one again, while the ranks run; nor a late one, when they have ended."""

    async def story(cluster: Cluster) -> None:
        cluster.start()
        await cluster.turn()

        async def again(attempt: int) -> list[str]:
            request = node_pb2.RanksRequest(asker="n1", call=1, attempt=attempt)
            request.key.run_id, request.world = KEY.run_id, 1
            request.ranks.add(rank=1)

            async def requests() -> AsyncIterator[node_pb2.RanksRequest]:
                yield request
                await asyncio.Event().wait()

            stub = Stub(cluster.second)
            return [event.refused async for event in stub.HoldRanks(requests())]

        assert await again(1) == ["there is a later stream"]
        await cluster.end()
        await cluster.turn()
        assert await again(7) == ["its ranks have ended"]
        assert len(cluster.second.ranks) == 1
        assert cluster.caller.codes == {0: 3, 1: 4}

    play(story)
