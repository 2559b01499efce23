"""Elastic jobs on real agents: a policy's decision on a size becomes another number of ranks."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.client.daemon_client import filter_of
from dlsched.client.job_records import Job
from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of

PROGRAM = str(Path(__file__).parents[2] / "job" / "elastic_program.py")
HELD = str(Path(__file__).with_name("held_program.py"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
SAMPLES, EPOCHS, BATCH = 960, 4, 24
STEPS = EPOCHS * SAMPLES // BATCH


@pytest.fixture(scope="module", params=SELDOM_POSTGRES)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three nodes of two GPUs; elastic jobs have 2, then 3, then 1."""
    sizes = {"policy": "testing-resize", "options": ["sizes=2,3,1", "period_s=2", "warm=true"]}
    with LocalCluster(database_of(request), nodes=3, gpus="2:v100", round=sizes) as running:
        yield running


class Training:
    """An elastic job and what its ranks have seen.

    Args:
        cluster: where it runs.
        name: the job's.
        words: of its program.
        held: steps before whose end its first runs wait for their stops.
        torchrun: whether a launcher starts the ranks.
        options: of the job.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        name: str,
        *words: str,
        held: str = "",
        torchrun: bool = False,
        **options: Any,
    ) -> None:
        self.cluster, self.seen = cluster, cluster.folder / f"{name}.seen"
        folder = cluster.folder / f"{name}.held"
        folder.mkdir()
        program = [
            HELD,
            str(folder),
            held,
            PROGRAM,
            "--seen",
            str(self.seen),
            "--samples",
            str(SAMPLES),
            *words,
        ]
        program += ["--epochs", str(EPOCHS), "--batch", str(BATCH), "--report", "0.5"]
        launcher = ["-m", "dlsched.job.torchrun"] if torchrun else []
        command = [sys.executable, *launcher, *program]
        options = {"min_gpus": "1", "max_gpus": "3", "gpus": "2", **options}
        with cluster.client() as client:
            self.job = client.submit(
                command,
                name=name,
                launch="node" if torchrun else "gpu",
                output=f"{cluster.out}/{name}.%n.%t.out",
                chdir=cluster.folder,
                **options,
            )

    def lines(self, run: int, rank: int) -> list[dict[str, Any]]:
        """A line a pass."""
        path = Path(f"{self.seen}.{run}.{rank}")
        text = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in text if line.endswith("\n")]

    def check(self, sizes: tuple[int, ...]) -> None:
        """Runs of so many ranks have seen each sample once an epoch, and left together."""
        for run, size in enumerate(sizes, 1):
            last = {self.lines(run, rank)[-1]["step"] for rank in range(size)}
            assert len(last) == 1, f"run {run} left after {last}"
            assert not self.lines(run, size)
        runs = list(enumerate(sizes, 1))
        for epoch in range(EPOCHS):
            places = [
                place
                for run, size in runs
                for rank in range(size)
                for line in self.lines(run, rank)
                if line["epoch"] == epoch
                for place in line["places"]
            ]
            assert sorted(places) == list(range(SAMPLES))
        progress = [line["progress"] for run, _ in runs for line in self.lines(run, 0)]
        assert progress == sorted(progress)
        assert progress[-1] == pytest.approx(STEPS)


@pytest.mark.parametrize(
    ("cluster", "torchrun"),
    [
        ("sqlite", True),
        pytest.param("sqlite", False, marks=pytest.mark.exhaustive),
        pytest.param("postgres", False, marks=pytest.mark.exhaustive),
        pytest.param("postgres", True, marks=pytest.mark.exhaustive),
    ],
    indirect=["cluster"],
    scope="module",
)
def test_a_training_is_resized_over_several_nodes(cluster: LocalCluster, torchrun: bool) -> None:
    training = Training(
        cluster, f"sizes-{torchrun}", "--pause", "0.05", held="40,80", torchrun=torchrun
    )
    ended = cluster.until(training.job, "COMPLETED", "FAILED", within=400)
    assert ended.state == "COMPLETED", cluster.story(training.job)
    assert (ended.starts, ended.resizes, ended.preemptions, ended.failures) == (3, 2, 0, 0)
    training.check((2, 3, 1))
    with cluster.client() as client:
        (detail,) = client.show(filter_of([str(training.job)]))
    assert [run.gpus for run in detail.runs] == [2, 3, 1]
    agreed = "requeued: resized (stopped by agreement, checkpoint of step "
    assert all((run.end or "").startswith(agreed) for run in detail.runs[:2])
    known = detail.training
    assert known is not None
    assert (known.gpus, known.batch_size, known.ignored_reports) == (1, BATCH, 0)
    assert known.observations == 3
    assert [size.gpus for size in known.sizes] == [1, 2]
    assert all(size.goodput > 0 for size in known.sizes)
    assert known.restart_s is not None
    assert known.save_s is not None
    assert known.restart_s > known.save_s > 0
    shown = cluster.cli("show", str(training.job))
    for line in ("24 samples a step, 1 x 24", "steps of 24", "v100, 3 observations", "2 GPUs"):
        assert line in shown
    assert f"{ended.restart_s:.3g} s each to the first step" in shown
    assert ended.restart_s == pytest.approx(known.restart_s)  # of the three starts, the mean
    assert ended.starting_s == pytest.approx(3 * known.restart_s)
    replayed_with_its_own_starts(cluster, ended)


def replayed_with_its_own_starts(cluster: LocalCluster, ended: Job) -> None:
    """What is exported is work; a replay charges each start what was measured here."""
    trace, jobs_out = cluster.folder / f"{ended.job_id}.csv", cluster.folder / "jobs.csv"
    cluster.cli("history", "--all", "--job", str(ended.job_id), "--export", str(trace))
    (row,) = csv.DictReader(trace.read_text().splitlines())
    assert ended.restart_s is not None
    assert ended.run_s is not None
    worked = ended.run_s - ended.lost_s - 3 * ended.restart_s
    assert 0 < worked < ended.run_s - 2
    assert float(row["duration"]) == pytest.approx(worked, abs=0.01)
    assert float(row["restart_overhead"]) == pytest.approx(ended.restart_s, abs=0.001)
    for words, start_s in (((), ended.restart_s), (("--restart-overhead", "1"), 1.0)):
        cluster.cli(
            "replay", str(trace), "--cluster", "3x2", "--clock", "events",
            "--jobs-out", str(jobs_out), *words,
        )  # fmt: skip
        (alone,) = csv.DictReader(jobs_out.read_text().splitlines())
        assert float(alone["jct"]) == pytest.approx(worked + start_s, abs=0.02)


def test_training_profiles_survive_a_restart(cluster: LocalCluster) -> None:
    words = ("--pause", "0.2", "--maximum", "96")
    training = Training(cluster, "remembered", *words, held="10,20,35")  # it does not complete

    def is_shown() -> bool:
        return "observations" in cluster.run("show", str(training.job)).stdout

    eventually("a model", is_shown, within=150)
    cluster.kill("daemon")
    cluster.start_daemon()
    eventually("the same model", is_shown)
    cluster.cli("cancel", str(training.job))
    cluster.until(training.job, "CANCELLED", within=150)
