"""Lucid in a real cluster: two jobs are profiled, measured by the driver, and packed on one GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.nvml_stub import COMPILER, build_stub

pytestmark = pytest.mark.slow
PROFILING_S = 20.0  # the daemon looks at the GPUs every 5 s
FOREVER = "sleep 600"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node of one pretended GPU, and one that profiles; its two GPUs have a driver."""
    if COMPILER is None:
        pytest.skip("no C compiler to build the driver's stand-in with")
    folder = build_stub(tmp_path_factory.mktemp("nvml"))
    facts = "gpus 2\nbusy 0 10\nbusy 1 15\nused 0 1024\nused 1 2048\n"
    (folder / "facts").write_text(facts)
    options = ["profiling_hosts=n2", f"profiling_s={PROFILING_S:g}", "sharing=always", "check_s=1"]
    rounds = {"policy": "lucid", "interval_s": 1, "options": options, "estimate": "declared"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(folder))
        patch.setenv("STUB_NVML", str(folder / "facts"))
        with LocalCluster(nodes=2, gpus=["1:v100", ""], round=rounds) as running:
            yield running


def submitted(cluster: LocalCluster, *words: str) -> int:
    common = ("submit", "--parsable", "-o", f"{cluster.out}/%j.out", "--expected", "1h")
    return int(cluster.cli(*common, *words, "--wrap", FOREVER))


def beside(cluster: LocalCluster, job: int) -> str:
    """The line of `show` that names the jobs on the same GPUs."""
    found = re.search(r"^ *shar.*$", cluster.cli("show", str(job)), re.M)
    return found[0] if found else ""


def test_jobs_that_leave_their_gpus_idle_are_packed_and_others_wait(cluster: LocalCluster) -> None:
    first = submitted(cluster, "--share", "0.5")
    second = submitted(cluster, "--share", "0.5")
    for job in (first, second):
        assert cluster.until(job, "RUNNING").nodes == ("n2",), cluster.story(job)

    def packed() -> bool:
        jobs = [cluster.job(job) for job in (first, second)]
        return all(job.state == "RUNNING" and job.nodes == ("n1",) for job in jobs)

    eventually("both have left the profiling stage for one GPU", packed)
    whole = submitted(cluster)  # asks for a GPU of its own
    cluster.until(whole, "RUNNING")
    eventually("it has been profiled, too", lambda: cluster.job(whole).state == "PENDING")
    told = cluster.cli("explain", str(whole))
    assert told.splitlines() == [f"job {whole}: rank 1 under lucid", "  gpu seconds  3,600.0"]
    assert str(second) in beside(cluster, first)
    assert cluster.job(whole).state == "PENDING"
