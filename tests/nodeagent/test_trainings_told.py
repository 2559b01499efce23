"""What elastic trainings tell, on its way through keeper and agent, and what comes back."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.daemon.believable import take_out_nonsense
from dlsched.job import messages as words
from dlsched.nodeagent.framing import Frames, frame
from dlsched.nodeagent.job_socket import JobSocket, Peer
from dlsched.nodeagent.progress import Progress
from dlsched.nodeagent.rank_steps import RankSteps
from dlsched.protocol.messages import JobId, NodeName, RunId, RunKey, RunNumber
from dlsched.rpc.v1 import control_pb2

KEY = RunKey(job=JobId(7), run=RunNumber(2), run_id=RunId("r72"))
TOLD = words.Trained(
    nodes=1, replicas=2, local=(8, 16), steps=(5, 1), accumulation_s=(0.5, 1.0),
    optimiser_s=(0.625, 1.25), gradient_sqr=0.5, initial=16, maximum=64, local_max=32, local_now=8,
)  # fmt: skip


class Keeper:
    """Hears its job and tells what it would tell the agent."""

    def __init__(self, folder: Path) -> None:
        self.told: list[dict[str, Any]] = []
        self.steps = RankSteps(cast(Any, self))
        self.job = JobSocket(
            str(folder / "ctl"), os.getuid(), KEY.run_id, self.steps.heard, self.steps.unread
        )
        self.path = str(folder / "ctl")

    def tell(self, message: dict[str, Any]) -> None:
        self.told.append(message)

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


def test_a_training_is_told_and_answered(keeper: Keeper) -> None:
    rank, peer = keeper.connect(run_id="r72")
    rank.send(words.encode(TOLD))
    assert keeper.job.receive(peer)
    (report,) = [message["report"] for message in keeper.told]
    assert report["training"]["local"] == [8, 16]
    assert "type" not in report["training"]
    keeper.steps.agent_said({"use_batch": {"local": 32, "accumulation": 1}})
    assert words.decode_from_keeper(rank.recv(4096)) == words.UseBatch(local=32, accumulation=1)
    keeper.steps.hung_up(peer)
    keeper.steps.agent_said({"use_batch": {"local": 8, "accumulation": 0}})
    rank.close()


def test_a_rank_of_another_run_is_counted_and_not_heard(keeper: Keeper) -> None:
    rank, peer = keeper.connect(run_id="another")
    rank.send(words.encode(TOLD))
    assert keeper.job.receive(peer)
    assert keeper.told == [{"report": {"rank": 0, "ignored": 1}}] * 2  # its hello, and that
    assert keeper.job.stoppable() == []
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
def test_a_rank_that_tells_nonsense_is_counted_and_heard_again(keeper: Keeper, packet: str) -> None:
    rank, peer = keeper.connect(run_id="r72")
    rank.send(packet.encode())
    assert keeper.job.receive(peer)
    assert keeper.told == [{"report": {"rank": 0, "ignored": 1}}]
    rank.send(words.encode(words.StepDone(step=4)))
    assert keeper.job.receive(peer)
    assert keeper.told[1]["report"]["step"] == 4
    rank.close()


@pytest.mark.parametrize(
    "packet",
    [
        b"\xff", b"[1]", b'{"type":7}', b"9" * 5000, b"[" * 100_000, b'{"type":"run","argv":[1]}',
        b'{"type":"run","argv":["a\\u0000b"]}', b'{"type":"hello","rank":NaN}',
    ],
    ids=lambda packet: packet[:24].decode(errors="replace"),
)  # fmt: skip
def test_what_is_no_message_is_counted_and_ends_the_connection(
    keeper: Keeper, packet: bytes
) -> None:
    rank, peer = keeper.connect()
    rank.send(packet)
    assert not keeper.job.receive(peer)
    assert keeper.told == [{"report": {"rank": 0, "ignored": 1}}]
    rank.close()


def test_who_hangs_up_has_said_no_nonsense(keeper: Keeper) -> None:
    rank, peer = keeper.connect()
    rank.close()
    assert not keeper.job.receive(peer)
    assert keeper.told == []


def test_a_checkpoint_that_no_wire_carries_is_refused() -> None:
    made = {"path": "/c", "step": 1 << 70, "bytes": 1, "sha256": "ab"}
    answer = asyncio.run(progress().commit(KEY, made))
    assert not answer.accepted
    assert "unclear" in answer.why


def test_a_program_that_names_no_run_is_heard(keeper: Keeper) -> None:
    rank, _ = keeper.connect()
    assert keeper.told == []
    assert len(keeper.job.stoppable()) == 1
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


def progress() -> Progress:
    return Progress(NodeName("n1"), cast(Any, Leader()), lambda run_id, message: True)


def waiting(some: Progress) -> list[Any]:
    return list(some._waiting.values())


def test_a_newer_report_takes_the_place_of_one_that_waits() -> None:
    some = progress()
    training = {"nodes": 1, "replicas": 2, "local": [8, 16], "steps": [5, 1]}
    some.report(KEY, {"rank": 0, "training": training, "ignored": 2})
    some.report(KEY, {"rank": 0, "step": 9, "ignored": 1})
    some.report(KEY, {"rank": 0, "training": {**training, "local": [8], "steps": [7]}})
    (report,) = waiting(some)
    assert (report.step, report.ignored) == (9, 3)
    assert list(report.training.local) == [8]
    assert list(report.training.steps) == [7]


@pytest.mark.parametrize(
    "training",
    [{"nodes": 1 << 70}, {"local": [-(1 << 70)]}, {"nodes": "two"}, {"colour": 1}],
)
def test_numbers_that_no_wire_carries_are_counted(training: dict[str, Any]) -> None:
    some = progress()
    some.report(KEY, {"rank": 0, "training": training})
    (report,) = waiting(some)
    assert report.ignored == 1
    assert not report.HasField("training")


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70) | st.sampled_from([-1, 10**400]),
    st.floats(),
    st.text(max_size=4) | st.sampled_from(["\ud800", "\udc80", "\0"]),
)
FIELDS = st.sampled_from(
    sorted({f.name for kind in (type(TOLD), words.StepDone, words.Restored) for f in fields(kind)})
)


@given(
    st.sampled_from(["step", "restored", "trained", "hello"]),
    st.dictionaries(FIELDS, ODD | st.lists(ODD, max_size=2) | st.dictionaries(st.text(), ODD)),
    st.booleans(),
)
def test_whatever_a_rank_says_reaches_the_daemon_as_a_report_or_as_a_count(
    kind: str, said: dict[str, Any], complete: bool
) -> None:
    least = {"step": 1, "restart_s": 1.0, "nodes": 1, "replicas": 1, "rank": 0} if complete else {}
    frames: list[dict[str, Any]] = []
    keeper = SimpleNamespace(tell=lambda message: frames.extend(Frames().feed(frame(message))))
    steps = RankSteps(cast(Any, keeper))
    peer = Peer(cast(Any, None), pid=1)
    try:
        message = words.decode_from_job(json.dumps({"type": kind, **least, **said}).encode())
    except words.BadMessage:
        steps.unread(peer)
    else:
        assert message is not None
        steps.heard(peer, message)
    some = progress()
    for told in frames:
        some.report(KEY, told["report"])
    for report in waiting(some):
        assert take_out_nonsense(report) >= 0
        assert all(math.isfinite(value) for value in report.metrics.values())
        assert take_out_nonsense(report) == 0
