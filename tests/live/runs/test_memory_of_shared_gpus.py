"""Two jobs whose measured memory together exceeds the GPU's do not share it, and are told why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.daemon.round.snapshot import read_snapshot
from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.nvml_stub import COMPILER, build_stub

pytestmark = pytest.mark.slow
FOREVER = "exec sleep 600"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A node of two GPUs of 80 GiB, on which the driver sees 50 and 40 GiB in use."""
    if COMPILER is None:
        pytest.skip("no C compiler to build the driver's stand-in with")
    build_stub(tmp_path)
    (tmp_path / "facts").write_text("gpus 2\nbusy 0 10\nbusy 1 15\nused 0 51200\nused 1 40960\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        patch.setenv("STUB_NVML", str(tmp_path / "facts"))
        with LocalCluster(nodes=1, gpus=[""]) as running:
            yield running


def measured(cluster: LocalCluster) -> list[float]:
    """GiB that jobs were seen to use on a GPU, as rounds know it."""
    cluster.cli("admin", "snapshot", "-o", "now")
    memory = read_snapshot(str(cluster.folder / "now")).table.gpu_memory
    return sorted(memory[memory > 0].tolist())


def test_jobs_share_a_gpu_only_while_their_memory_fits(cluster: LocalCluster) -> None:
    first, second = (cluster.submit(FOREVER, share="0.5") for _ in range(2))
    for job in (first, second):
        cluster.until(job, "RUNNING")
    eventually("both were measured", lambda: measured(cluster) == [40.0, 50.0])
    whole = cluster.submit(FOREVER)
    moved = next(j for j in (first, second) if cluster.job(j).gpu_memory_bytes == 40 * 2**30)
    stays = first if moved == second else second
    cluster.cli("hold", str(moved))
    cluster.cli("requeue", str(moved))
    cluster.until(whole, "RUNNING")
    cluster.cli("release", str(moved))
    told = "Resources: GPUs with room for it have 80 GiB of memory; 90 GiB are needed"
    eventually("it is told why", lambda: cluster.job(moved).reason == told)
    assert told in cluster.cli("show", str(moved))
    small = cluster.submit(FOREVER, share="0.2")  # nothing is known of its memory
    cluster.until(small, "RUNNING")
    [shown] = json.loads(cluster.cli("show", str(stays), "--json"))["jobs"]
    assert shown["beside"] == [small]
    assert cluster.job(moved).state == "PENDING"
