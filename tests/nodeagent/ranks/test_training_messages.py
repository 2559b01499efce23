"""Reports of elastic trainings on their way through keeper and agent, and the answers to them."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.daemon.message_bounds import clear_invalid
from dlsched.job import messages as words
from dlsched.nodeagent.agent.rank_reports import RankReports
from dlsched.nodeagent.keeper.framing import Frames, frame
from dlsched.nodeagent.ranks.job_socket import JobSocket, Peer
from dlsched.nodeagent.ranks.training_messages import TrainingMessages
from dlsched.protocol.messages import JobId, NodeName, RunId, RunKey, RunNumber
from dlsched.rpc.v1 import control_pb2

KEY = RunKey(job=JobId(7), run=RunNumber(2), run_id=RunId("r72"))
TRAINED = words.Trained(
    nodes=1, replicas=2, local=(8, 16), steps=(5, 1), accumulation_s=(0.5, 1.0),
    optimiser_s=(0.625, 1.25), gradient_sqr=0.5, initial=16, maximum=64, local_max=32, local_now=8,
)  # fmt: skip


class Keeper:
    """Takes messages of its job and keeps what it would send to the agent."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[dict[str, Any]] = []
        self.training = TrainingMessages(cast(Any, self))
        self.job = JobSocket(
            os.getuid(),
            KEY.run_id,
            on_message=self.training.from_job,
            on_unclear=self.training.unclear,
        )
        self.path = str(folder / "ctl")
        self.job.listen(self.path)
        assert stat.S_IMODE(os.stat(self.path).st_mode) == 0o600

    def send_to_agent(self, message: dict[str, Any]) -> None:
        self.sent.extend(Frames().feed(frame(message)))

    def connect(self, **hello: Any) -> tuple[socket.socket, Peer]:
        """A rank that says hello."""
        rank = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rank.connect(self.path)
        peer = self.job.accept()
        assert peer is not None
        rank.send(words.encode(words.Hello(rank=0, capabilities=("stop",), **hello)))
        assert self.job.receive(peer)
        return rank, peer


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    folder = Path(tempfile.mkdtemp(prefix="kp"))
    keeper = Keeper(folder)
    yield keeper
    for peer in list(keeper.job.peers.values()):
        keeper.job.close(peer)
    keeper.job.listener.close()
    shutil.rmtree(folder)


def test_a_training_is_reported_and_answered(keeper: Keeper) -> None:
    rank, peer = keeper.connect(run_id="r72")
    rank.send(words.encode(TRAINED))
    assert keeper.job.receive(peer)
    (report,) = [message["report"] for message in keeper.sent]
    assert report["training"]["local"] == [8, 16]
    assert "type" not in report["training"]
    keeper.training.from_agent({"use_batch": {"local": 32, "accumulation": 1}})
    assert words.decode_from_keeper(rank.recv(4096)) == words.UseBatch(local=32, accumulation=1)
    keeper.training.closed(peer)
    keeper.training.from_agent({"use_batch": {"local": 8, "accumulation": 0}})
    rank.close()


def test_messages_of_a_rank_of_another_run_are_counted_and_dropped(keeper: Keeper) -> None:
    rank, peer = keeper.connect(run_id="another")
    rank.send(words.encode(TRAINED))
    assert keeper.job.receive(peer)
    assert keeper.sent == [{"report": {"rank": 0, "ignored": 1}}] * 2  # its hello, and that
    assert keeper.job.able_to("stop") == []
    rank.close()


def test_the_first_step_says_whether_a_stop_leaves_a_checkpoint(keeper: Keeper) -> None:
    rank, peer = keeper.connect(run_id="r72")
    for saves in ("", ',"saves":false'):
        rank.send(f'{{"type":"restored","step":0,"restart_s":1{saves}}}'.encode())
        assert keeper.job.receive(peer)
    assert [message["report"]["saves"] for message in keeper.sent] == [True, False]
    rank.close()


STEP = '{"type":"step","step":1,'


@pytest.mark.parametrize(
    "packet",
    [
        STEP + '"loss":NaN}', STEP + '"batch_s":-Infinity}', STEP + '"loss":1e999}',
        STEP + f'"loss":{10**400}}}', STEP + '"metrics":{"good":1,"bad":Infinity}}',
        STEP + '"metrics":{"\\ud800":1}}', '{"type":"step","step":2.5}', '{"type":"step"}',
        '{"type":"restored","step":0,"restart_s":NaN}', '{"type":"trained","nodes":"two"}',
        '{"type":"trained","nodes":1,"replicas":1,"local":[8],"optimiser_s":[NaN]}',
        '{"type":"checkpoint","path":"/c","step":1,"bytes":1,"sha256":"a","save_s":NaN}',
    ],
)  # fmt: skip
def test_an_impossible_message_is_counted_and_the_next_one_is_taken(
    keeper: Keeper, packet: str
) -> None:
    rank, peer = keeper.connect(run_id="r72")
    rank.send(packet.encode())
    assert keeper.job.receive(peer)
    assert keeper.sent == [{"report": {"rank": 0, "ignored": 1}}]
    rank.send(words.encode(words.StepDone(step=4)))
    assert keeper.job.receive(peer)
    assert keeper.sent[1]["report"]["step"] == 4
    rank.close()


@pytest.mark.parametrize(
    "packet",
    [
        b"\xff", b"[1]", b'{"type":7}', b"9" * 5000, b"[" * 100_000, b'{"type":"run","argv":[1]}',
        b'{"type":"run","argv":["a\\u0000b"]}', b'{"type":"hello","rank":NaN}',
    ],
    ids=lambda packet: packet[:24].decode(errors="replace"),
)  # fmt: skip
def test_a_packet_that_is_no_message_is_counted_and_ends_the_connection(
    keeper: Keeper, packet: bytes
) -> None:
    rank, peer = keeper.connect()
    rank.send(packet)
    assert not keeper.job.receive(peer)
    assert keeper.sent == [{"report": {"rank": 0, "ignored": 1}}]
    rank.close()


def test_the_last_message_of_a_rank_that_left_an_answer_unread_is_taken(keeper: Keeper) -> None:
    rank, peer = keeper.connect()
    peer.send_message(words.CheckpointAnswer(accepted=True, path="/c"))
    rank.send(words.encode(words.CheckpointMade(path="/d", step=1, bytes=1, sha256="a")))
    rank.close()
    while keeper.job.receive(peer):
        pass
    assert [sent["checkpoint"]["path"] for sent in keeper.sent if "checkpoint" in sent] == ["/d"]


def test_a_rank_that_closes_its_connection_is_not_counted(keeper: Keeper) -> None:
    rank, peer = keeper.connect()
    rank.close()
    assert not keeper.job.receive(peer)
    assert keeper.sent == []


def test_a_checkpoint_that_no_message_can_hold_is_refused() -> None:
    made = {"path": "/c", "step": 1 << 70, "bytes": 1, "sha256": "ab"}
    answer = asyncio.run(reports().commit(KEY, made))
    assert not answer.accepted
    assert "unclear" in answer.why


def test_one_checkpoint_is_under_way_and_the_newest_of_the_others_follows(
    keeper: Keeper,
) -> None:
    rank, peer = keeper.connect()
    for step in range(1, 6):
        made = words.CheckpointMade(path=f"/c{step % 2}", step=step, bytes=1, sha256="a")
        rank.send(words.encode(made))
        assert keeper.job.receive(peer)
    first = {"committed": {"path": "/c1", "accepted": True}, "number": 1}
    assert told(keeper) == [(1, 1)]
    keeper.training.new_agent()
    assert told(keeper) == [(1, 1), (1, 1)]
    keeper.training.from_agent(first)
    assert told(keeper) == [(1, 1), (1, 1), (5, 2)]
    keeper.training.from_agent(first)  # late, and of the same path
    assert told(keeper)[3:] == []
    rank.settimeout(10)
    assert words.decode_from_keeper(rank.recv(4096)) == words.CheckpointAnswer(
        accepted=True, path="/c1"
    )
    keeper.training.from_agent({"committed": {"path": "/c1", "accepted": False}, "number": 2})
    assert words.decode_from_keeper(rank.recv(4096)) == words.CheckpointAnswer(
        accepted=False, path="/c1"
    )
    rank.close()


def told(keeper: Keeper) -> list[tuple[int, int]]:
    """The step and the number of each checkpoint that the agent was told."""
    made = [each for each in keeper.sent if "checkpoint" in each]
    return [(each["checkpoint"]["step"], each["number"]) for each in made]


def test_messages_of_a_program_that_names_no_run_are_taken(keeper: Keeper) -> None:
    rank, _ = keeper.connect()
    assert keeper.sent == []
    assert len(keeper.job.able_to("stop")) == 1
    rank.close()


class Leader:
    """Takes reports and answers them."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    async def report(self, report: Any) -> Any:
        self.reports.append(report)
        answer = control_pb2.ReportReply()
        answer.batch.local, answer.batch.accumulation = 32, 1
        return answer


def reports() -> RankReports:
    return RankReports(NodeName("n1"), cast(Any, Leader()), lambda run_id, message: True)


def waiting(some: RankReports) -> list[Any]:
    return [report for of_run in some._waiting.values() for report in of_run.values()]


def test_a_newer_report_is_merged_into_one_that_waits() -> None:
    some = reports()
    training = {"nodes": 1, "replicas": 2, "local": [8, 16], "steps": [5, 1]}
    some.add(KEY, {"rank": 0, "training": training, "ignored": 2})
    some.add(KEY, {"rank": 0, "step": 9, "ignored": 1})
    some.add(KEY, {"rank": 0, "training": {**training, "local": [8], "steps": [7]}})
    (report,) = waiting(some)
    assert (report.step, report.ignored) == (9, 3)
    assert list(report.training.local) == [8]
    assert list(report.training.steps) == [7]


@pytest.mark.parametrize(
    "training",
    [{"nodes": 1 << 70}, {"local": [-(1 << 70)]}, {"nodes": "two"}, {"colour": 1}],
)
def test_values_that_no_message_can_hold_are_counted(training: dict[str, Any]) -> None:
    some = reports()
    some.add(KEY, {"rank": 0, "training": training})
    (report,) = waiting(some)
    assert report.ignored == 1
    assert not report.HasField("training")


def test_the_newest_calls_of_srun_are_told_again_until_the_run_is_forgotten() -> None:
    some = reports()
    some.add(KEY, {"rank": 0, "calls": [{"number": 0, "tasks": 2, "running": True}]})
    some.add(KEY, {"rank": 0, "step": 9})
    some.add(KEY, {"rank": 0, "calls": [{"number": 0, "tasks": 2}, {"number": 1, "tasks": 1}]})
    (report,) = waiting(some)
    assert [(each.number, each.running) for each in report.calls] == [(0, False), (1, False)]
    assert report.step == 9
    some._waiting.clear()  # a daemon has it
    some.tell_again()
    (again,) = waiting(some)
    assert (list(again.calls), again.HasField("step")) == (list(report.calls), False)
    some._waiting.clear()
    some.forget(KEY.run_id)
    some.tell_again()
    assert not waiting(some)


def test_calls_of_srun_that_cannot_be_are_removed_and_counted() -> None:
    report = control_pb2.RunReport()
    for number in range(60):
        report.calls.add(number=number, tasks=1)
    report.calls.add(number=60, cpu_s=math.nan)
    report.calls.add(number=61, name="x" * 1000)
    report.calls.add(number=-1)
    assert clear_invalid(report) == 23
    assert [each.number for each in report.calls] == list(range(20, 60))
    assert clear_invalid(report) == 0


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70) | st.sampled_from([-1, 10**400]),
    st.floats(),
    st.text(max_size=4) | st.sampled_from(["\ud800", "\udc80", "\0"]),
)
FIELDS = st.sampled_from(
    sorted(
        {f.name for kind in (type(TRAINED), words.StepDone, words.Restored) for f in fields(kind)}
    )
)


@given(
    st.sampled_from(["step", "restored", "trained", "hello"]),
    st.dictionaries(FIELDS, ODD | st.lists(ODD, max_size=2) | st.dictionaries(st.text(), ODD)),
    st.booleans(),
)
def test_any_message_of_a_rank_reaches_the_daemon_as_a_report_or_as_a_count(
    kind: str, values: dict[str, Any], complete: bool
) -> None:
    least = {"step": 1, "restart_s": 1.0, "nodes": 1, "replicas": 1, "rank": 0} if complete else {}
    frames: list[dict[str, Any]] = []
    keeper = SimpleNamespace(
        send_to_agent=lambda message: frames.extend(Frames().feed(frame(message)))
    )
    training = TrainingMessages(cast(Any, keeper))
    peer = Peer(cast(Any, None), pid=1)
    try:
        message = words.decode_from_job(json.dumps({"type": kind, **least, **values}).encode())
    except words.BadMessage:
        training.unclear(peer)
    else:
        assert message is not None
        training.from_job(peer, message)
    some = reports()
    for sent in frames:
        some.add(KEY, sent["report"])
    for report in waiting(some):
        assert clear_invalid(report) >= 0
        assert all(math.isfinite(value) for value in report.metrics.values())
        assert clear_invalid(report) == 0
