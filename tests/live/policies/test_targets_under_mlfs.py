"""MLFS in a real cluster: trainings end at their accuracy, and `show` tells what an order is of."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("accuracy_program.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes of one pretended GPU under mlfs, which decides every second."""
    with LocalCluster(nodes=2, gpus="1:v100", round={"policy": "mlfs", "interval_s": 1}) as running:
        yield running


def training(cluster: LocalCluster, folder: Path, *words: str) -> int:
    folder.mkdir()
    (folder / "steps").write_text("50")
    common = ("submit", "--parsable", "-o", f"{folder}/out", "--gpus", "1", *words)
    return int(cluster.cli(*common, "--", sys.executable, str(PROGRAM), str(folder)))


def told_accuracy(cluster: LocalCluster, job: int) -> float:
    shown = json.loads(cluster.cli("show", str(job), "--json"))
    found = re.search(r'"accuracy": ([0-9.]+)', json.dumps(shown))
    return float(found[1]) if found else 0.0


def test_trainings_end_when_they_are_accurate_enough_for_their_users(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    # the first one ends at 0.6; the second at 0.4, but only while GPUs are short
    strict, yielding = tmp_path / "strict", tmp_path / "yielding"
    first = training(cluster, strict, "--target-accuracy", "0.6", "--stop-when", "target")
    second = training(cluster, yielding, "--target-accuracy", "0.4", "--stop-under-load", "target")
    for job in (first, second):
        cluster.until(job, "RUNNING")
        eventually("it reports 0.5", lambda job=job: told_accuracy(cluster, job) >= 0.5)
    assert {cluster.job(job).state for job in (first, second)} == {"RUNNING"}
    waits = cluster.submit("true")
    chained = ("-o", f"{cluster.out}/after", "-d", f"afterok:{first}")
    after = int(cluster.cli("submit", "--parsable", *chained, "--", "true"))
    cluster.until(second, "COMPLETED")
    cluster.until(waits, "COMPLETED")
    assert (yielding / "saved").read_text() == "50"
    assert cluster.job(first).state == "RUNNING"
    (strict / "steps").write_text("60")
    cluster.until(first, "COMPLETED")
    cluster.until(after, "COMPLETED")  # the dependency is met
    told = cluster.cli("show", str(first))
    assert "TargetReached: accuracy 0.6 of 0.6" in told
    assert cluster.run("wait", str(first)).returncode == 0


def test_show_tells_the_terms_of_a_priority(cluster: LocalCluster) -> None:
    forever = [int(cluster.submit("sleep 600")) for _ in range(2)]
    for job in forever:
        cluster.until(job, "RUNNING")
    waits = cluster.submit("true")
    words = ("show", str(waits), "--why-order")
    eventually("it is ranked", lambda: "waited" in cluster.cli(*words))
    told = cluster.cli(*words)
    for term in ("policy", "learning", "deadline", "remaining", "waited", "dependents", "total"):
        assert term in told, told
    for job in forever:
        cluster.cli("cancel", str(job))


def test_a_target_that_is_not_named_is_refused(cluster: LocalCluster) -> None:
    tried = cluster.run("submit", "--stop-when", "target", "--", "true")
    assert tried.returncode == 1
    assert "--stop-when target needs the accuracy: --target-accuracy X" in tried.stderr
