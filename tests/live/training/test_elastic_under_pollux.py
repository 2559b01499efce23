"""The elastic example under Pollux on three agents learns as well as one of a fixed size."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched import quickstart
from dlsched.client.daemon_client import filter_of
from dlsched.torture.local_cluster import LocalCluster
from tests.live.conftest import SELDOM_POSTGRES, database_of

PROGRAM = str(Path(quickstart.__path__[0]) / "jobs" / "elastic_images.py")
EPOCHS = "12"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


@pytest.fixture(params=SELDOM_POSTGRES)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three nodes of two GPUs under Pollux."""
    rounds = {"policy": "pollux", "interval_s": 5}
    with LocalCluster(database_of(request), nodes=3, gpus="2:v100", round=rounds) as running:
        yield running


def accuracy(text: str) -> float:
    """The last word of a training."""
    (line,) = [line for line in text.splitlines() if line.startswith("accuracy ")]
    return float(line.split()[1])


def test_it_grows_and_reaches_the_accuracy_of_a_fixed_run(cluster: LocalCluster) -> None:
    with cluster.client() as client:
        job = client.submit(
            [sys.executable, PROGRAM, "--epochs", EPOCHS, "--sample-ms", "2", "--report", "2"],
            name="images",
            adaptive="yes",
            launch="gpu",
            output=f"{cluster.out}/%j.%n.%t.out",
            chdir=cluster.folder,
        )
    ended = cluster.until(job, "COMPLETED", "FAILED", within=300)
    assert ended.state == "COMPLETED", cluster.story(job)
    assert ended.resizes >= 1
    assert (ended.starts, ended.failures) == (ended.resizes + 1, 0)
    with cluster.client() as client:
        (detail,) = client.show(filter_of([str(job)]))
    assert len({run.gpus for run in detail.runs}) > 1
    assert detail.training is not None
    model, batch = detail.training.model_ms, detail.training.local_batch
    # at least what it sleeps; which part of it is constant cannot be told from few batch sizes
    assert model["alpha_c"] + batch * model["beta_c"] > 0.65 * 2.0 * batch
    elastic = accuracy("".join(f.read_text() for f in cluster.out.glob(f"{job}.*")))
    fixed = subprocess.run(
        [sys.executable, PROGRAM, "--epochs", EPOCHS, "--maximum", "64"],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert elastic == pytest.approx(accuracy(fixed.stdout), abs=0.03)
    assert elastic > 0.93
