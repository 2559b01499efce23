"""A training on two nodes is stopped, moved, requeued and killed; its losses stay the same.

Two PyTorch processes on two nodes learn together. Whatever the cluster does to them, the lines of
all runs together are those of an undisturbed training, to the last digit.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched import quickstart
from dlsched.protocol.ledger.ends import pause_after
from dlsched.torture.local_cluster import LocalCluster, eventually

GANG = Path(quickstart.__path__[0]) / "jobs" / "gloo_gang.py"
HELD = Path(__file__).with_name("held_program.py")
EPOCHS, SAMPLES, BATCH = 2, 1024, 16
STEPS = EPOCHS * SAMPLES // (2 * BATCH)
HOLDS = (8, 16, 24, 32)  # the step before whose end each run waits for what happens to it

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


class Training:
    """A gang of two nodes and what it has learnt."""

    def __init__(self, cluster: LocalCluster, name: str, holds: tuple[int, ...] = ()) -> None:
        self.cluster, self.folder = cluster, cluster.folder / name
        self.folder.mkdir()
        words = f"--epochs {EPOCHS} --samples {SAMPLES} --batch {BATCH}"
        held = [str(HELD), str(self.folder), ",".join(map(str, holds))]
        with cluster.client() as client:
            self.job = client.submit(
                [
                    sys.executable,
                    *held,
                    str(GANG),
                    *words.split(),
                    "--losses",
                    f"{self.folder}/lines",
                ],
                name=name,
                nodes="2",
                gpus_per_node="2",
                ntasks_per_node="1",
                launch="node",
                retries="2",
                grace="120",
                output=f"{self.folder}/%n.out",
                chdir=cluster.folder,
            )

    @property
    def lines(self) -> list[str]:
        """A line a step, of all runs."""
        path = self.folder / "lines"
        return path.read_text().splitlines() if path.exists() else []

    def wait_until_held(self, run: int) -> None:
        """Until a run waits."""
        try:
            eventually(f"run {run} waits", (self.folder / f"held-{run}").exists)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.story(self.job)}") from None

    def held_s(self, run: int) -> float:
        """For how long a run has executed since it waits."""
        return time.time() - (self.folder / f"held-{run}").stat().st_mtime

    def said(self, rank: int, pattern: str) -> list[str]:
        """The numbers that a rank has told."""
        return re.findall(rf"{pattern} (\d+)", (self.folder / f"{rank}.out").read_text())

    def kill_rank(self, rank: int) -> None:
        """Kill a rank of the present run."""
        run = str(self.cluster.job(self.job).run)
        for process in self.cluster.remaining():
            values = process.environ()
            mine = (values.get("RANK"), values.get("DLSCHED_RUN")) == (str(rank), run)
            if mine and str(GANG) in process.cmdline():
                process.kill()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three nodes of two GPUs under a policy that takes turns."""
    with LocalCluster(nodes=3, gpus="2:v100", round={"policy": "las"}) as running:
        yield running


def test_whatever_happens_to_a_training_its_losses_are_those_of_an_undisturbed_one(
    cluster: LocalCluster,
) -> None:
    whole = Training(cluster, "undisturbed")
    cluster.until(whole.job, "COMPLETED")
    undisturbed = whole.lines
    assert [int(line.split()[0]) for line in undisturbed] == list(range(STEPS))
    training = Training(cluster, "disturbed", HOLDS)

    # preempted
    training.wait_until_held(1)
    rival = cluster.submit("true", gpus="6")  # has had nothing yet, so it goes first
    cluster.until(rival, "COMPLETED")

    # moved off a drained node
    training.wait_until_held(2)
    drained = cluster.job(training.job).nodes[0]
    cluster.cli("drain", drained, "--reason", "bad fan", "--now")
    training.wait_until_held(3)
    after = cluster.job(training.job).nodes
    cluster.cli("resume-node", drained)
    assert len(after) == 2
    assert drained not in after

    # requeued by its user
    cluster.cli("requeue", str(training.job))
    training.wait_until_held(4)
    eventually("all steps so far", lambda: training.lines == undisturbed[: HOLDS[-1]])
    before = cluster.job(training.job).nodes
    eventually("a run that does not fail too soon", lambda: training.held_s(4) > pause_after(1))

    # one rank is killed: it goes on from its checkpoint on the same GPUs
    training.kill_rank(1)
    ended = cluster.until(training.job, "COMPLETED", "FAILED")
    assert ended.state == "COMPLETED", cluster.story(training.job)
    assert (ended.starts, ended.preemptions, ended.migrations, ended.failures) == (5, 1, 1, 1)
    assert ended.nodes == before
    shown = cluster.cli("show", str(training.job))
    assert "migrated 1" in shown
    assert "restart" in shown
    begun, left = training.said(0, "from step"), training.said(0, "leaving after step")
    assert begun[0] == "0"
    assert begun[1:4] == left[:3] == training.said(1, "leaving after step")[:3]
    assert begun[4] == begun[3]
    assert training.lines[HOLDS[-1] :] == undisturbed[int(begun[4]) :]
