"""Resizes in place: ranks on real nodes take over from running ones, without a checkpoint."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
import pytest

from dlsched.client.daemon_client import filter_of
from dlsched.client.job_records import Job
from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of
from tests.live.training.test_resizing import BATCH, EPOCHS, PROGRAM, SAMPLES, Training

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


@pytest.fixture(scope="module", params=SELDOM_POSTGRES)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three nodes of two GPUs; elastic jobs have 2, then 3, then 1."""
    sizes = {"policy": "testing-resize", "options": ["sizes=2,3,1", "period_s=1", "warm=true"]}
    made = LocalCluster(
        database_of(request), nodes=3, gpus="2:v100", round={**sizes, "ready_s": 600.0}
    )
    with made as running:
        yield running


def checkpoints(cluster: LocalCluster, job: int) -> list[Path]:
    return list(cluster.folder.glob(f".dlsched/checkpoints/{job}/*"))


def losses(training: Training, runs: dict[int, int]) -> list[float]:
    """The mean loss of all ranks after each step; `runs` are the sizes of those that trained."""
    found: dict[int, list[float]] = {}
    for run, size in runs.items():
        lines = [line for rank in range(size) for line in training.lines(run, rank)]
        for step in {line["step"] for line in lines}:
            found[step] = [line["loss"] for line in lines if line["step"] == step]
    return [fmean(found[step]) for step in sorted(found)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one process that is not resized."""
    seen = tmp_path_factory.mktemp("alone") / "seen"
    subprocess.run(
        [sys.executable, PROGRAM, "--seen", str(seen), "--samples", str(SAMPLES),
         "--epochs", str(EPOCHS), "--batch", str(BATCH), "--folder", str(seen.parent / "saved")],
        check=True, timeout=300,
    )  # fmt: skip
    lines = Path(f"{seen}.1.0").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_a_training_grows_and_shrinks_without_a_checkpoint(
    cluster: LocalCluster, undisturbed: list[float]
) -> None:
    training = Training(cluster, "in-place", held="20,60", in_place="yes")
    ended = cluster.until(training.job, "COMPLETED", "FAILED", within=400)
    story = cluster.story(training.job)
    assert ended.state == "COMPLETED", story
    assert (ended.starts, ended.resizes, ended.preemptions, ended.failures) == (3, 2, 0, 0)
    assert ended.lost_s == 0
    training.check((2, 3, 1))
    assert checkpoints(cluster, training.job) == []
    assert losses(training, {1: 2, 2: 3, 3: 1}) == pytest.approx(undisturbed, rel=1e-5)
    with cluster.client() as client:
        (detail,) = client.show(filter_of([str(training.job)]))
    assert [(run.gpus, run.end) for run in detail.runs] == [
        (2, "requeued: resized"), (3, "requeued: resized"), (1, "completed: exit 0"),
    ]  # fmt: skip
    for before, after in zip(detail.runs, detail.runs[1:], strict=False):
        assert before.ended_at is not None
        assert after.started_at is not None
        assert after.started_at < before.ended_at  # it got ready meanwhile
    assert story.count("take-over") == story.count("get-ready") == 2


LIGHT = str(Path(__file__).parent / "in_place_program.py")
FEW = 2000  # samples


class Light:
    """A job without PyTorch whose next ranks wait until they may get ready."""

    def __init__(self, cluster: LocalCluster, name: str, **options: str) -> None:
        self.cluster = cluster
        self.seen, self.gate = cluster.folder / f"{name}.seen", cluster.folder / f"{name}.gate"
        with cluster.client() as client:
            self.job = client.submit(
                [sys.executable, LIGHT, str(self.seen), str(self.gate), str(FEW)],
                name=name, launch="gpu", output=f"{cluster.out}/{name}.%n.%t.out",
                chdir=cluster.folder, gpus="2", min_gpus="1", max_gpus="3", in_place="yes",
                **options,
            )  # fmt: skip
        eventually("ranks that get ready", lambda: len(self.ranks(2)) == 3)

    def ranks(self, run: int) -> list[psutil.Process]:
        """The processes of a run."""
        found = []
        for process in self.cluster.remaining():
            try:
                values = process.environ()
            except psutil.Error:
                continue
            if (values.get("DLSCHED_JOB_ID"), values.get("DLSCHED_RUN")) == (
                str(self.job), str(run),
            ) and "RANK" in values:  # fmt: skip
                found.append(process)
        return sorted(found, key=lambda process: process.pid)

    def lines(self, run: int) -> list[dict[str, Any]]:
        """What the ranks of a run have done."""
        texts = [path.read_text() for path in self.seen.parent.glob(f"{self.seen.name}.{run}.*")]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def end(self) -> Job:
        """Let the next ranks get ready, and wait for the end of the job."""
        self.gate.touch()
        ended = self.cluster.until(self.job, "COMPLETED", "FAILED", within=200)
        assert ended.state == "COMPLETED", self.cluster.story(self.job)
        return ended

    def used(self) -> list[int]:
        """The samples that any run has used, as often as it has."""
        return sorted(k for run in range(1, 9) for line in self.lines(run) for k in line["used"])


def test_a_new_rank_that_is_killed_leaves_the_training_alone(cluster: LocalCluster) -> None:
    light = Light(cluster, "new-killed")
    light.ranks(2)[-1].kill()
    eventually("the others' end", lambda: not light.ranks(2))
    before = len(light.lines(1))
    eventually("more steps", lambda: len(light.lines(1)) > before)
    ended = light.end()
    assert (ended.failures, ended.preemptions) == (0, 0)
    assert ended.resizes >= 1  # the next one is a restart
    assert light.lines(2) == []
    assert light.used() == list(range(FEW))


@pytest.mark.exhaustive
def test_an_old_rank_that_is_killed_meanwhile_ends_in_a_restart(cluster: LocalCluster) -> None:
    light = Light(cluster, "old-killed", retries="1")
    eventually("a checkpoint", lambda: checkpoints(cluster, light.job))
    light.ranks(1)[-1].kill()
    eventually("the next run's end", lambda: not light.ranks(2))
    assert light.lines(2) == []  # it has trained nothing
    ended = light.end()
    assert ended.failures == 1
    steps = {line["step"]: line["total"] for run in range(3, 9) for line in light.lines(run)}
    assert all(step == total for step, total in steps.items())
    assert max(light.used()) == FEW - 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("victim", ["daemon", "n1"])
def test_a_daemon_or_agent_that_is_killed_meanwhile_changes_nothing(
    cluster: LocalCluster, victim: str
) -> None:
    light = Light(cluster, f"{victim}-killed")
    cluster.kill(victim)
    if victim == "daemon":
        cluster.start_daemon()
    else:
        cluster.start_agent(victim)
    cluster.wait_until_up()
    ended = light.end()
    assert (ended.failures, ended.preemptions, ended.lost_s) == (0, 0, 0)
    assert ended.resizes >= 1
    assert light.lines(2) != []
    assert light.used() == list(range(FEW))


def test_a_job_that_is_cancelled_leaves_no_rank(cluster: LocalCluster) -> None:
    light = Light(cluster, "cancelled")
    cluster.cli("cancel", str(light.job))
    cluster.until(light.job, "CANCELLED")
    eventually("no process", lambda: not light.ranks(1) + light.ranks(2))
    eventually("free GPUs", lambda: busy(cluster) == 0)


def busy(cluster: LocalCluster) -> int:
    """How many GPUs jobs have."""
    with cluster.client() as client:
        return sum(node.busy_gpus for node in client.nodes())
