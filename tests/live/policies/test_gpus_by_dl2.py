"""A network that is trained here and now decides how many GPUs a real training has."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched import quickstart
from dlsched.client.daemon_client import filter_of
from dlsched.torture.local_cluster import LocalCluster

PROGRAM = str(Path(quickstart.__path__[0]) / "jobs" / "elastic_images.py")
CURVE = (1, 1.9, 2.8, 3.6)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs under another policy."""
    rounds = {"policy": "fifo", "interval_s": 3}
    with LocalCluster(nodes=2, gpus="2:v100", round=rounds) as running:
        yield running


def trained(cluster: LocalCluster, folder: Path) -> Path:
    """The file of a network, by the command line."""
    trace, speeds, model = folder / "trace.csv", folder / "speeds.csv", folder / "model.npz"
    lines = ["job_id,submit_time,num_gpus,min_gpus,max_gpus,model,total_iterations"]
    lines += [f"{k},{200 * k},1,1,4,net,{3000 + 500 * k}" for k in range(12)]
    trace.write_text("\n".join(lines) + "\n")
    rows = ["accelerator,scale_factor,model,batch_size,steps_per_s"]
    rows += [f"v100,{k},net,,{rate}" for k, rate in enumerate(CURVE, 1)]
    speeds.write_text("\n".join(rows) + "\n")
    words = ("train", "dl2", trace, "--cluster", "4x4:v100", "--profiles", speeds, "--round", "600")
    cluster.cli(*map(str, words), "--updates", "5", "--window", "8", "--out", str(model))
    return model


def test_a_trained_network_resizes_a_training_and_it_ends_well(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    absent = cluster.run("admin", "set-policy", "dl2", "-o", f"model={tmp_path}/no.npz")
    assert absent.returncode == 1
    assert "no.npz: cannot be read: No such file" in absent.stderr
    model = trained(cluster, tmp_path)
    cluster.cli("admin", "set-policy", "dl2", "-o", f"model={model}", "-o", "choose=likeliest")
    done = cluster.run(
        *("submit", "--parsable", "--adaptive", "--max-gpus", "4", "--launch", "gpu"),
        *("--fixed-batch", "--expected", "2m", "--output", "/dev/null", "--"),
        *(sys.executable, PROGRAM, "--epochs", "5", "--sample-ms", "2", "--report", "2"),
    )
    assert done.returncode == 0, done.stderr
    job = int(done.stdout)
    ended = cluster.until(job, "COMPLETED", "FAILED", "CANCELLED", within=300)
    assert ended.state == "COMPLETED", cluster.story(job)
    assert ended.resizes >= 1, cluster.story(job)
    with cluster.client() as client:
        (detail,) = client.show(filter_of([str(job)]))
    assert max(run.gpus for run in detail.runs) > 1
    (policy,) = (s for s in cluster.cli("admin", "status").splitlines() if s.startswith("policy"))
    assert "dl2" in policy
