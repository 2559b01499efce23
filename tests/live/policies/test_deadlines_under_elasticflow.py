"""Deadlines under ElasticFlow, typed on the command line: kept with enough GPUs, or declined."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched import quickstart
from dlsched.client.daemon_client import filter_of
from dlsched.torture.local_cluster import LocalCluster
from tests.live.conftest import SELDOM_POSTGRES, database_of

PROGRAM = str(Path(quickstart.__path__[0]) / "jobs" / "elastic_images.py")

pytestmark = [pytest.mark.slow]


@pytest.fixture(params=SELDOM_POSTGRES[:1], scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Two nodes of two GPUs under ElasticFlow."""
    rounds = {"policy": "elasticflow", "interval_s": 2}
    with LocalCluster(database_of(request), nodes=2, gpus="2:v100", round=rounds) as running:
        yield running


def submitted(cluster: LocalCluster, *words: str) -> int:
    done = cluster.run("submit", "--parsable", *words)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_deadline_that_cannot_be_kept_is_declined_and_others_run(cluster: LocalCluster) -> None:
    kept = submitted(
        cluster, "--gpus", "1", "--expected", "1m", "--deadline", "now+10minutes", "--", "true"
    )
    words = ("--gpus", "1", "--expected", "1h", "--deadline", "now+10minutes", "--", "true")
    done = cluster.run("submit", "--parsable", *words)
    too_early = int(done.stdout)
    assert "its deadline cannot be kept" in done.stderr  # told at once, not only in `show`
    required = cluster.run("submit", "--require-sla", *words)
    assert required.returncode == 1
    assert required.stderr.startswith("dlsched: not submitted: deadline ")
    assert "; the earliest deadline that can be kept is " in required.stderr
    told = cluster.run("submit", "--require-sla", "--json", *words)
    assert told.returncode == 1
    [declined] = json.loads(told.stdout)["declined"]
    earliest = declined["deadline"]["earliest_at"]
    assert "the earliest that can is" in cluster.cli("submit", "--test-only", *words)
    words = ("--gpus", "1", "--expected", "1h", "--deadline", earliest, "--", "true")
    asked_again = submitted(cluster, "--require-sla", *words)
    whenever = submitted(cluster, "--gpus", "1", "--", "true")
    assert cluster.until(kept, "COMPLETED", "FAILED", "CANCELLED").state == "COMPLETED"
    assert cluster.until(asked_again, "COMPLETED", "FAILED", "CANCELLED").state == "COMPLETED"
    assert cluster.until(whenever, "COMPLETED", "FAILED", "CANCELLED").state == "COMPLETED"
    ended = cluster.until(too_early, "COMPLETED", "FAILED", "CANCELLED")
    assert ended.state == "CANCELLED", cluster.story(too_early)
    assert ended.starts == 0
    shown = cluster.run("show", str(too_early)).stdout
    assert "its deadline cannot be kept" in shown
    assert "the earliest that can is" in shown


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_a_job_without_a_number_of_gpus_gets_those_that_it_needs(cluster: LocalCluster) -> None:
    job = submitted(
        cluster,
        *("--adaptive", "--max-gpus", "4", "--launch", "gpu", "--fixed-batch"),
        *("--expected", "2m", "--deadline", "now+20minutes", "--output", "/dev/null", "--"),
        *(sys.executable, PROGRAM, "--epochs", "6", "--sample-ms", "2", "--report", "2"),
    )
    ended = cluster.until(job, "COMPLETED", "FAILED", "CANCELLED", within=300)
    assert ended.state == "COMPLETED", cluster.story(job)
    assert ended.resizes >= 1, cluster.story(job)
    with cluster.client() as client:
        (detail,) = client.show(filter_of([str(job)]))
    assert len({run.gpus for run in detail.runs}) > 1
