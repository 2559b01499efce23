"""The order in which jobs start, holds and predictions, typed as users of Slurm type them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def node() -> Iterator[LocalCluster]:
    """One node of two GPUs, under fifo."""
    with LocalCluster(nodes=1, gpus="2:v100") as running:
        yield running


def queued(node: LocalCluster, *options: str, run: str = "true") -> int:
    """A job of the command line."""
    common = ("submit", "--parsable", "-D", str(node.folder), "-o", f"{node.out}/%j.out")
    return int(node.cli(*common, *options, "--wrap", run))


def blocked(node: LocalCluster) -> int:
    """A job that has all GPUs until the file `go` is there."""
    job = queued(node, "--gpus=2", run="while [ ! -e go ]; do sleep 0.05; done")
    node.until(job, "RUNNING")
    return job


def in_order_of_starts(node: LocalCluster, jobs: list[int]) -> list[int]:
    """The jobs by the time of their first start, once all have ended."""
    for job in jobs:
        node.until(job, "COMPLETED")
    started = {job.job_id: job.first_started_at or 0.0 for job in node.jobs(jobs)}
    return sorted(jobs, key=started.__getitem__)


def test_a_job_that_names_a_type_does_not_pass_older_ones(node: LocalCluster) -> None:
    blocked(node)
    jobs = [queued(node, "--gpus=2") for _ in range(3)]
    jobs.append(queued(node, "--gpus=v100:2"))
    jobs += [queued(node, "--gpus=2"), queued(node, "-C", "v100", "--gpus=1")]
    (node.folder / "go").touch()
    assert in_order_of_starts(node, jobs) == jobs


def test_nice_goes_last_and_priority_of_an_operator_first(node: LocalCluster) -> None:
    blocked(node)
    script = node.folder / "nice.sh"
    script.write_text("#!/bin/sh\n#SBATCH --nice --gpus=2\ntrue\n")  # without a number: 100
    nicest = int(node.cli("submit", "--parsable", str(script)))
    assert node.job(nicest).priority == -100
    nice = queued(node, "--gpus=2", "--nice=10")
    plain = queued(node, "--gpus=2")
    first = queued(node, "--gpus=2", "--priority=5")
    (node.folder / "go").touch()
    last = [first, plain, nice, nicest]
    assert in_order_of_starts(node, [nicest, nice, plain, first]) == last


def test_a_limit_is_lowered_to_start_before_the_job_that_waits_first(node: LocalCluster) -> None:
    node.cli("admin", "set-policy", "easy")
    first = queued(node, "--gpus=1", "--time=20", run="sleep 600")
    node.until(first, "RUNNING")
    head = queued(node, "--gpus=2", "--time=10")
    long = queued(node, "--gpus=1", "--time=2:00:00")
    lowered = queued(node, "--gpus=1", "--time=2:00:00", "--time-min=5", run="sleep 600")
    node.until(lowered, "RUNNING")
    limit = node.job(lowered).time_limit_s
    assert limit is not None
    assert 300 <= limit < 1200
    assert "time limit 2:00:00 →" in node.cli("show", str(lowered))
    assert {node.job(job).state for job in (head, long)} == {"PENDING"}
    for job in (head, long, lowered, first):
        node.cli("cancel", str(job))


def test_a_running_job_that_is_held_stays_held_when_it_is_requeued(node: LocalCluster) -> None:
    job = queued(node, "--gpus=1", run="[ -e again ] || { touch again; sleep 600; }")
    eventually("it runs", (node.folder / "again").exists)
    node.cli("hold", str(job))
    node.cli("requeue", str(job))
    found = node.until(job, "PENDING")
    assert found.held
    eventually("why", lambda: node.job(job).reason == "JobHeldUser")
    node.cli("release", str(job))
    node.until(job, "COMPLETED")


def predicted(node: LocalCluster, job: int) -> list[dict[str, Any]]:
    """What the queue predicts of a job, or of the elements of an array."""
    found = json.loads(node.cli("queue", "--start", "--json", "-j", str(job)))["jobs"]
    return [each for each in found if each["state"] == "PENDING"]


def test_a_later_begin_and_a_limited_array_have_predicted_starts(node: LocalCluster) -> None:
    job = queued(node, "--gpus=1", "--begin=now+1hour", "--time=10")
    array = queued(node, "--gpus=1", "--array=0-3%1", "--time=10", run="sleep 600")
    node.until(array, "RUNNING")
    eventually("the start of a later begin", lambda: predicted(node, job)[0]["predicted_start_at"])
    eventually(
        "the starts of the waiting elements",
        lambda: all(each["predicted_start_at"] for each in predicted(node, array)),
    )
    first, *others = sorted(each["predicted_start_at"] for each in predicted(node, array))
    assert len({first, *others}) == 3  # one after the other, not all at once
    after = queued(node, "--gpus=1", f"--dependency=afterany:{job}", "--time=10")
    saved, told = str(node.folder / "saved"), str(node.folder / "told.csv")
    node.cli("admin", "snapshot", "-o", saved)
    table = node.cli("replay", "--snapshot", saved, "--policy", "las", "--jobs-out", told)
    assert "never start" not in table  # in the replay they come as in life
    rows = list(csv.DictReader((node.folder / "told.csv").read_text().splitlines()))
    start = {
        int(row["job_id"]): float(row["start_in"] or 0) for row in rows if row["name"] == "las"
    }
    assert 3000 < start[job] <= 3600
    assert start[after] >= start[job] + 600
    node.cli("cancel", str(after))
    node.cli("cancel", str(array), str(job))
