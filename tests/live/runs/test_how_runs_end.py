"""What the end of a run means for its job, with PyTorch programs that end as users write them.

A job that was asked to stop is queued again, whatever it exits with; a training that ends by itself
meanwhile has completed. What depends on a preempted job does not start.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

PROGRAM = str(Path(__file__).parents[2] / "job" / "ending_program.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ALONE = [sys.executable]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs under a policy that takes turns."""
    with LocalCluster(nodes=2, gpus="2:v100", round={"policy": "las"}) as running:
        yield running


class Training:
    """A training, and a job that depends on its success."""

    def __init__(self, cluster: LocalCluster, name: str, launcher: list[str], *words: str) -> None:
        self.cluster, self.seen = cluster, cluster.folder / f"{name}.seen"
        common = ["submit", "--parsable", "--chdir", str(cluster.folder)]
        program = [*launcher, PROGRAM, words[0], str(self.seen), *words[1:]]
        self.job = int(
            cluster.cli(
                *common, "-J", name, "--gpus", "2", "--nodes", "1", "--grace", "120",
                "-o", f"{cluster.out}/%j.out", "--", *program,
            )
        )  # fmt: skip
        after = ["--dependency", f"afterok:{self.job}", "-o", f"{cluster.out}/%j.out"]
        self.dependent = int(cluster.cli(*common, *after, "--", "true"))

    def steps(self, run: int) -> list[int]:
        """The steps that a run has done."""
        text = self.seen.read_text() if self.seen.exists() else ""
        found = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [int(step) for number, step in found if int(number) == run]

    def wait_for_steps(self, run: int, count: int = 5) -> None:
        """Until a run has done some steps."""
        eventually(f"run {run} does {count} steps", lambda: len(self.steps(run)) >= count)

    def run_ends(self) -> list[str]:
        """How its runs have ended, as `show` tells it."""
        (shown,) = json.loads(self.cluster.cli("show", str(self.job), "--json"))["jobs"]
        return [run["end"] for run in shown["runs"] if run["end"]]


@pytest.mark.parametrize(
    ("way", "launcher", "told"),
    [
        pytest.param(  # as of the preempted one below, but for the reason
            *("breaks", TORCHRUN, "requeued: on request (stopped by agreement, checkpoint"),
            marks=pytest.mark.exhaustive,
        ),
        ("saves", ALONE, "requeued: on request (exit 0,"),
        ("plain", TORCHRUN, "requeued: moved (exit 1,"),
    ],
    ids=["the loop is left", "saves on TERM and exits with 0", "torchrun exits with 1"],
)
def test_a_training_that_is_stopped_begins_again_whatever_it_exits_with(
    cluster: LocalCluster, way: str, launcher: list[str], told: str
) -> None:
    training = Training(cluster, way, launcher, way, "--steps", "100000")
    training.wait_for_steps(1)
    if way == "plain":
        (node,) = cluster.job(training.job).nodes
        cluster.cli("drain", node, "--reason", "bad fan", "--now")
    else:
        cluster.cli("requeue", str(training.job))
    training.wait_for_steps(2)
    before, after = training.steps(1), training.steps(2)
    assert after[0] in (before[-1], before[-1] + 1)
    assert cluster.job(training.dependent).state == "PENDING"
    (end,) = training.run_ends()
    assert end.startswith(told)
    assert told in cluster.cli("show", str(training.job))
    cluster.cli("cancel", str(training.job))
    assert cluster.until(training.job, "CANCELLED", "COMPLETED", "FAILED").state == "CANCELLED"
    assert cluster.until(training.dependent, "CANCELLED", "COMPLETED").state == "CANCELLED"
    if way == "plain":
        cluster.cli("resume-node", node)


def test_a_preempted_training_that_leaves_its_loop_is_not_complete(cluster: LocalCluster) -> None:
    training = Training(cluster, "rival", TORCHRUN, "breaks", "--steps", "100000")
    training.wait_for_steps(1)
    rival = cluster.submit("sleep 1", gpus="4")  # has had nothing yet, so it goes first
    cluster.until(rival, "COMPLETED")
    training.wait_for_steps(2)
    assert cluster.job(training.dependent).state == "PENDING"
    assert training.run_ends()[0].startswith("requeued: preempted (stopped by agreement, check")
    assert cluster.job(training.job).preemptions >= 1
    cluster.cli("cancel", str(training.job))
    cluster.until(training.job, "CANCELLED")


def test_a_training_that_ends_by_itself_while_a_stop_is_asked_has_completed(
    cluster: LocalCluster,
) -> None:
    training = Training(cluster, "done", TORCHRUN, "finishes", "--steps", "5")
    evaluating = training.seen.with_suffix(".evaluating")
    eventually("the evaluation begins", evaluating.exists)
    cluster.cli("requeue", str(training.job))
    cluster.until(training.job, "COMPLETING")
    training.seen.with_suffix(".go").touch()
    ended = cluster.until(training.job, "COMPLETED", "FAILED")
    assert (ended.state, ended.starts) == ("COMPLETED", 1), cluster.story(training.job)
    cluster.until(training.dependent, "COMPLETED")
