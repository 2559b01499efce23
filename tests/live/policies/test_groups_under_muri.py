"""Muri and its AntMan in a real cluster: the stages of iterations decide which jobs share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow
FOREVER = "sleep 600"
READS = {"iteration_ms": 100, "data_ms": 80, "gpu_ms": 10, "network_ms": 5}
COMPUTES = {"iteration_ms": 100, "data_ms": 10, "gpu_ms": 80, "network_ms": 5}


def submitted(cluster: LocalCluster, *words: str, **stages: int) -> int:
    common = ("submit", "--parsable", "-o", f"{cluster.out}/%j.out", "--expected", "1h")
    given = [word for name, ms in stages.items() for word in ("--set", f"{name}={ms}")]
    return int(cluster.cli(*common, *given, *words, "--wrap", FOREVER))


def beside(cluster: LocalCluster, job: int) -> list[int]:
    [shown] = json.loads(cluster.cli("show", str(job), "--json"))["jobs"]
    found: list[int] = shown["beside"]
    return found


def running(cluster: LocalCluster, jobs: list[int]) -> list[int]:
    return [job for job in jobs if cluster.job(job).state == "RUNNING"]


@pytest.fixture
def one_gpu(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster of one GPU under a policy, with a round a second."""
    rounds: dict[str, Any] = {"policy": request.param, "interval_s": 1}
    with LocalCluster(nodes=1, gpus="1:v100", round=rounds) as running:
        yield running


@pytest.mark.parametrize("one_gpu", ["muri"], indirect=True)
def test_jobs_share_a_gpu_whose_iterations_use_other_resources(one_gpu: LocalCluster) -> None:
    cluster = one_gpu
    computes = [submitted(cluster, "--share", "0.5", **COMPUTES) for _ in range(2)]
    eventually("one runs", lambda: running(cluster, computes))
    reads = submitted(cluster, "--share", "0.5", **READS)
    cluster.until(reads, "RUNNING")
    [partner] = eventually("they share", lambda: beside(cluster, reads))
    assert running(cluster, computes) == [partner], "two of one kind would be slower together"
    [other] = {*computes} - {partner}
    cluster.cli("cancel", str(partner))
    eventually("the other one comes", lambda: beside(cluster, reads) == [other])


@pytest.mark.parametrize("one_gpu", ["muri-antman"], indirect=True)
def test_an_opportunistic_job_runs_beside_a_guaranteed_one_under_muri_antman(
    one_gpu: LocalCluster,
) -> None:
    cluster = one_gpu
    owner = submitted(cluster, **COMPUTES)
    cluster.until(owner, "RUNNING")
    opportunistic = submitted(cluster, "--opportunistic", **READS)
    cluster.until(opportunistic, "RUNNING")
    assert beside(cluster, opportunistic) == [owner]
    second = submitted(cluster, **READS)  # guaranteed: it waits for the GPU, and stops none
    more = submitted(cluster, "--opportunistic", **READS)  # the GPU is used enough
    cluster.cli("cancel", str(owner))
    cluster.until(second, "RUNNING")
    assert cluster.job(opportunistic).state == "RUNNING"
    assert cluster.job(opportunistic).run == 1
    assert cluster.job(more).state == "PENDING"
