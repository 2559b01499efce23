"""Jobs that need part of a GPU, on real processes: side by side, through kills, and under Gavel."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of

pytestmark = pytest.mark.slow

TELL = "echo $CUDA_VISIBLE_DEVICES $DLSCHED_GPU_SHARE; exec sleep 600"
TRAINING = """
import sys, time
from dlsched.job import attach

with attach() as job:
    for step in range(job.restore(), 1_000_000):
        time.sleep(float(sys.argv[1]))
        if not job.step(loss=1.0 / (step + 1)):
            break
"""


def beside(cluster: LocalCluster, job: int) -> list[int]:
    """The jobs on the same GPUs, as `show` says."""
    [shown] = json.loads(cluster.cli("show", str(job), "--json"))["jobs"]
    found: list[int] = shown["beside"]
    return found


@pytest.fixture(params=SELDOM_POSTGRES)
def lone_gpu(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster of one GPU, on both databases."""
    with LocalCluster(database_of(request), nodes=1, gpus="1:v100") as running:
        yield running


def test_two_jobs_share_one_gpu_through_restarts_of_daemon_and_agent(
    lone_gpu: LocalCluster,
) -> None:
    cluster = lone_gpu
    first, second = (cluster.submit(TELL, share="0.5") for _ in range(2))
    for job in (first, second):
        cluster.until(job, "RUNNING")
    whole, third = cluster.submit(TELL), cluster.submit(TELL, share="0.2", expected="1m")
    assert beside(cluster, first) == [second]
    assert f"0.5 of each GPU, beside {second}" in cluster.cli("show", str(first))
    used = json.loads(cluster.cli("usage", "--json"))["usage"]
    assert sum(each["gpu_parts_now"] for each in used) == 1.0, "two halves are one GPU"

    def words(job: int) -> list[str]:
        return cluster.output(job).split()

    eventually("both have told", lambda: words(first) and words(second))
    assert words(first) == words(second)
    assert words(first)[1] == "0.5"
    cluster.kill("daemon")
    cluster.kill("n1")
    cluster.start_daemon()
    cluster.start_agent("n1")
    cluster.wait_until_up()
    for job in (first, second):
        view = cluster.job(job)
        assert (view.state, view.run) == ("RUNNING", 1)
    assert beside(cluster, second) == [first]
    for job in (whole, third):
        assert cluster.job(job).state == "PENDING", "the GPU is full"
    cluster.cli("cancel", str(first))
    cluster.until(third, "RUNNING")
    assert beside(cluster, third) == [second]
    assert cluster.job(whole).state == "PENDING"
    cluster.cli("cancel", str(second), str(third))
    cluster.until(whole, "RUNNING")
    assert told_alone(cluster, whole) == 1
    cluster.cli("cancel", str(whole))
    cluster.until(whole, "CANCELLED")
    written = cluster.folder / "history.csv"
    cluster.cli("history", "-a", "--export", str(written))
    with written.open() as file:
        told = {int(row["job_id"]): row["gpu_share"] for row in csv.DictReader(file)}
    assert told == {first: "0.5", second: "0.5", whole: "", third: "0.2"}


def told_alone(cluster: LocalCluster, job: int) -> int:
    """How many words a job was told of its GPUs: the share is missing where it has all of them."""
    eventually("it has told", lambda: cluster.output(job).split())
    return len(cluster.output(job).split())


def test_gavel_pairs_trainings_whose_pair_was_measured() -> None:
    policy = {"policy": "fifo", "interval_s": 0.5, "measure_s": 1.0}
    with LocalCluster(nodes=1, gpus="1:v100", round=policy) as cluster:
        file = cluster.folder / "train.py"
        file.write_text(TRAINING)

        def train(model: str) -> int:
            with cluster.client() as client:
                return client.submit(
                    [sys.executable, str(file), "0.02"],
                    name=model,
                    model=model,
                    share="0.5",
                    output=f"{cluster.out}/%j.out",
                    chdir=cluster.folder,
                )

        def known() -> dict[tuple[str, str], float]:
            text = cluster.cli("admin", "profile", "list", "--json")
            rows: list[dict[str, Any]] = json.loads(text)["speeds"]
            return {(row["model"], row["partner"] or ""): row["steps_per_s"] for row in rows}

        alone = train("cnn")
        eventually("it was measured alone", lambda: ("cnn", "") in known())
        other = train("rnn")
        pairs = {("cnn", "rnn"), ("rnn", "cnn")}
        eventually("both halves were measured", lambda: pairs <= known().keys())
        cluster.cli("cancel", str(alone))
        cluster.until(alone, "CANCELLED")
        eventually("and the other alone", lambda: ("rnn", "") in known())
        cluster.cli("cancel", str(other))
        cluster.until(other, "CANCELLED")

        cluster.cli("admin", "set-policy", "gavel", "-o", "objective=max-min-packed")
        jobs = [train("cnn"), train("rnn")]
        eventually(
            "Gavel puts them on the same GPU",
            lambda: beside(cluster, jobs[0]) == [jobs[1]],
        )
        third = train("unknown")
        cluster.cli("cancel", *map(str, jobs))
        cluster.until(third, "RUNNING")
        cluster.cli("cancel", str(third))
        for job in (*jobs, third):
            cluster.until(job, "CANCELLED")
