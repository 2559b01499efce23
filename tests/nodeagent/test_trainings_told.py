"""What elastic trainings tell, on its way through keeper and agent, and what comes back."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from dlsched.job import messages as words
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
        self.job = JobSocket(str(folder / "ctl"), os.getuid(), KEY.run_id, self.steps.heard)
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
