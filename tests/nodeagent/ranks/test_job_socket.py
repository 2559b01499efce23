"""The job's socket: what a process of the job may send, and how much of the keeper it may hold."""

from __future__ import annotations

import gc
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.job import messages as words
from dlsched.nodeagent.ranks import job_socket
from dlsched.nodeagent.ranks.job_socket import JobSocket, Peer

RANKS = words.RunRanks(argv=("true",), working_directory="/", environment={})


class Listening:
    """A job socket whose peers connect from here."""

    def __init__(self, folder: str) -> None:
        self.taken: list[words.FromJob] = []
        self.unclear = 0
        self.path = f"{folder}/ctl"
        self.job = JobSocket(
            os.getuid(),
            "r1",
            on_message=lambda _peer, message: self.taken.append(message),
            on_unclear=lambda _peer: setattr(self, "unclear", self.unclear + 1),
        )
        self.job.listen(self.path)

    def connect(self) -> tuple[socket.socket, Peer | None]:
        rank = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rank.connect(self.path)
        return rank, self.job.accept()


@pytest.fixture
def listening() -> Iterator[Listening]:
    with tempfile.TemporaryDirectory(prefix="js") as folder:
        made = Listening(folder)
        yield made
        for peer in list(made.job.peers.values()):
            made.job.close(peer)
        assert made.job.listener is not None
        made.job.listener.close()


def held() -> int:
    """The descriptors that this process has open."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("packet", "kept"),
    [
        (words.encode(words.Hello(rank=0)), 2),
        (words.encode(RANKS), 3),
        (words.encode(words.StepDone(step=1)), 0),
        (b'{"type": "of a later version"}', 0),
    ],
    ids=["hello", "run", "step", "unknown"],
)
def test_descriptors_are_kept_once_and_only_with_messages_that_bring_them(
    listening: Listening, packet: bytes, kept: int
) -> None:
    rank, peer = listening.connect()
    assert peer is not None
    gc.collect()  # of what other tests have left
    before = held()
    with Path(os.devnull).open() as null:
        for _ in range(300):
            socket.send_fds(rank, [packet], [null.fileno()] * 4)
            assert listening.job.receive(peer)
    assert (held() - before, len(peer.streams)) == (kept, kept)
    listening.job.close(peer)
    assert held() == before - 1
    rank.close()


def test_descriptors_of_garbage_and_of_an_end_are_closed(listening: Listening) -> None:
    for packet in (b"no message", b"", b"[" * 100_000):
        rank, peer = listening.connect()
        assert peer is not None
        before = held()
        with Path(os.devnull).open() as null:
            socket.send_fds(rank, [packet], [null.fileno()] * 4)
        assert not listening.job.receive(peer)
        listening.job.close(peer)
        assert held() == before - 1
        rank.close()
    assert listening.unclear == 2


def test_connections_take_at_most_half_of_the_descriptors(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_socket.resource, "getrlimit", lambda _what: (64, 64))
    assert job_socket.most_peers() == 8
    monkeypatch.setattr(listening.job, "_most_peers", job_socket.most_peers())
    ranks = [listening.connect() for _ in range(10)]
    assert [peer is not None for _, peer in ranks] == [True] * 8 + [False] * 2
    for rank, _ in ranks:
        rank.close()
