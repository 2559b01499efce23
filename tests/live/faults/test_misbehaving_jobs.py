"""Jobs and keepers that misbehave: a cancel ends them in bounded time, whatever they do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import psutil
import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow
DESCRIPTORS = 20_000
PASSES_DESCRIPTORS = f"""\
import os, socket
from dlsched.job import messages as words
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect(os.environ["DLSCHED_CTL_SOCK"])
null = os.open(os.devnull, os.O_RDONLY)
packet = words.encode(words.Hello(rank=0))
for _ in range({DESCRIPTORS} // 4):
    socket.send_fds(line, [packet], [null] * 4)
print("passed", flush=True)
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    signal.pause()
"""


@pytest.fixture
def impatient() -> Iterator[LocalCluster]:
    """A node whose agent does not wait long for keepers that hang."""
    with LocalCluster(nodes=1, timing={"obeys_s": 2.0}) as running:
        yield running


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as running:
        yield running


def keeper_of(cluster: LocalCluster, job: int) -> psutil.Process:
    """The keeper of a job's run on the first node."""
    (record,) = (cluster.folder / "n1" / "state").glob(f"jobs/{job}.*/run.json")
    return psutil.Process(json.loads(record.read_text())["keeper"]["pid"])


def test_a_cancel_ends_a_job_whose_keeper_hangs(impatient: LocalCluster) -> None:
    cluster = impatient
    job = cluster.submit("echo begun; exec sleep 600", gpus="4", grace="1s")
    eventually("it runs", lambda: cluster.output(job) == "begun\n")
    keeper = keeper_of(cluster, job)
    processes = keeper.children(recursive=True)
    assert processes
    keeper.suspend()
    waits = cluster.submit("true", gpus="4")
    cluster.cli("cancel", str(job))
    cluster.until(job, "CANCELLED")
    assert not keeper.is_running()
    assert not any(each.is_running() for each in processes)
    cluster.until(waits, "COMPLETED")
    assert "the keeper of run" in cluster.log("n1")
    assert cluster.job(job).starts == 1


def test_descriptors_that_a_rank_passes_neither_pile_up_nor_prevent_a_cancel(
    cluster: LocalCluster,
) -> None:
    program = cluster.folder / "passes.py"
    program.write_text(PASSES_DESCRIPTORS)
    job = cluster.submit(f"exec {sys.executable} {program}", gpus="1", grace="1s")
    eventually("all are sent", lambda: cluster.output(job) == "passed\n")
    keeper = keeper_of(cluster, job)
    assert len(os.listdir(f"/proc/{keeper.pid}/fd")) < 100
    cluster.cli("cancel", str(job))
    cluster.until(job, "CANCELLED")
    assert "the keeper of run" not in cluster.log("n1")
