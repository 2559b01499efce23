"""Trainings on two nodes are stopped, moved and repeated; their losses stay the same.

Two PyTorch processes on two nodes learn together. Whatever the cluster does to them, the lines of
all runs together are those of an undisturbed training, to the last digit.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched import quickstart
from dlsched.torture.local_cluster import LocalCluster, eventually

GANG = Path(quickstart.__path__[0]) / "jobs" / "gloo_gang.py"
EPOCHS, SAMPLES, BATCH = 4, 1024, 16
STEPS = EPOCHS * SAMPLES // (2 * BATCH)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


class Training:
    """A gang of two nodes and what it has learnt."""

    def __init__(self, cluster: LocalCluster, name: str, *, pause: float, **options: str) -> None:
        self.cluster = cluster
        self.losses = cluster.folder / f"{name}.losses"
        words = f"--epochs {EPOCHS} --samples {SAMPLES} --batch {BATCH} --pause {pause}"
        with cluster.client() as client:
            self.job = client.submit(
                [sys.executable, str(GANG), *words.split(), "--losses", str(self.losses)],
                name=name,
                nodes="2",
                gpus_per_node="2",
                ntasks_per_node="1",
                launch="node",
                output=f"{cluster.out}/{name}.%n.out",
                chdir=cluster.folder,
                **options,
            )

    @property
    def lines(self) -> list[str]:
        """A line a step, of all runs."""
        return self.losses.read_text().splitlines() if self.losses.exists() else []

    def wait_for_steps(self, count: int) -> None:
        """Until so many more steps are done."""
        goal = len(self.lines) + count
        eventually(f"{goal} steps", lambda: len(self.lines) >= goal, within=60)

    def left_after(self) -> list[set[str]]:
        """For each run that was stopped, the steps after which its ranks left."""
        told = [
            [
                line.rsplit(maxsplit=1)[-1]
                for line in (self.cluster.out / f"{self.losses.stem}.{rank}.out")
                .read_text()
                .splitlines()
                if "leaving after step" in line
            ]
            for rank in (0, 1)
        ]
        assert len(told[0]) == len(told[1])
        return [set(each) for each in zip(*told, strict=True)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three nodes of two GPUs under a policy that takes turns."""
    with LocalCluster(nodes=3, gpus="2:v100", round={"policy": "las"}) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(cluster: LocalCluster) -> list[str]:
    """The losses of an undisturbed training."""
    training = Training(cluster, "undisturbed", pause=0.0)
    cluster.until(training.job, "COMPLETED", within=60)
    lines = training.lines
    assert [int(line.split()[0]) for line in lines] == list(range(STEPS))
    return lines


def test_a_preempted_training_has_the_same_losses(
    cluster: LocalCluster, undisturbed: list[str]
) -> None:
    training = Training(cluster, "preempted", pause=0.02)
    training.wait_for_steps(10)
    rival = cluster.submit("sleep 2", gpus="6")  # has had nothing yet, so it goes first
    cluster.until(rival, "COMPLETED", within=60)
    ended = cluster.until(training.job, "COMPLETED", within=60)
    assert training.lines == undisturbed
    assert (ended.starts, ended.migrations) == (ended.preemptions + 1, 0)
    assert ended.preemptions >= 1
    assert [len(steps) for steps in training.left_after()] == [1] * ended.preemptions


def test_a_training_is_moved_off_a_drained_node(
    cluster: LocalCluster, undisturbed: list[str]
) -> None:
    training = Training(cluster, "moved", pause=0.02)
    training.wait_for_steps(10)
    before = cluster.job(training.job).nodes
    cluster.cli("drain", before[0], "--reason", "bad fan", "--now")
    try:
        training.wait_for_steps(10)
        after = cluster.until(training.job, "RUNNING").nodes
        assert len(after) == 2
        assert before[0] not in after
        ended = cluster.until(training.job, "COMPLETED", within=60)
    finally:
        cluster.cli("resume-node", before[0])
    assert training.lines == undisturbed
    assert (ended.starts, ended.migrations, ended.failures) == (2, 1, 0)
    assert "migrated 1" in cluster.cli("show", str(training.job))
    assert [len(steps) for steps in training.left_after()] == [1]


def test_a_requeued_training_goes_on(cluster: LocalCluster, undisturbed: list[str]) -> None:
    training = Training(cluster, "requeued", pause=0.02)
    training.wait_for_steps(10)
    cluster.cli("requeue", str(training.job))
    ended = cluster.until(training.job, "COMPLETED", within=60)
    assert training.lines == undisturbed
    assert (ended.starts, ended.preemptions, ended.migrations) == (2, 0, 0)
    assert [len(steps) for steps in training.left_after()] == [1]


def test_a_training_whose_rank_dies_goes_on_from_its_checkpoint_on_the_same_gpus(
    cluster: LocalCluster, undisturbed: list[str]
) -> None:
    training = Training(cluster, "died", pause=0.02, retries="2")
    training.wait_for_steps(10)
    cluster.cli("requeue", str(training.job))  # it leaves a checkpoint
    eventually("its second run", lambda: cluster.job(training.job).run == 2, within=60)
    training.wait_for_steps(10)
    before = cluster.job(training.job).nodes
    for process in cluster.remaining():
        if str(GANG) in process.cmdline() and process.environ().get("RANK") == "1":
            process.kill()
    ended = cluster.until(training.job, "COMPLETED", within=120)
    assert (ended.starts, ended.failures, ended.preemptions) == (3, 1, 0)
    assert ended.nodes == before
    assert "restart" in cluster.cli("show", str(training.job))
    begun = re.findall(r"from step (\d+)", (cluster.out / "died.0.out").read_text())
    assert begun[0] == "0"
    assert begun[1] == begun[2] != "0"
    assert (
        list(dict.fromkeys(sorted(training.lines, key=lambda x: int(x.split()[0])))) == undisturbed
    )
