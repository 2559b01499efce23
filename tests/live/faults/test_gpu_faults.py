"""Faults of GPUs, from the driver to what owner and operator see; only the driver is made up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.nvml_stub import COMPILER, build_stub

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the driver with"),
]


class Driven(LocalCluster):
    """Two nodes whose GPUs are those of a driver: two each."""

    def __init__(self) -> None:
        super().__init__(nodes=2, tables={"faults": {"action": "requeue"}})
        self.library = build_stub(self.folder)
        for name in self.names:
            self.driver_says(name, "")

    def driver_says(self, name: str, text: str) -> None:
        """What the driver of a node says from now on."""
        new = self.folder / f"{name}.driver.new"
        new.write_text(f"gpus 2\n{text}\n")
        new.rename(self.folder / f"{name}.driver")

    def until_well(self, name: str) -> None:
        """Wait until the driver has no fault of a node's GPUs."""
        self.driver_says(name, "")
        eventually(
            "its GPUs are well",
            lambda: all(gpu.state == "free" for gpu in self.node(name).devices),
        )

    def _agent_settings(self, name: str) -> dict[str, object]:
        found = super()._agent_settings(name)
        del found["fake_gpus"]
        fault = "node" if name == "n2" else "gpu"
        return {**found, "gpu_look_s": 0.2, "gpu_fault": fault}

    def start_agent(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        """As for any node, with its driver."""
        driver = {
            "LD_LIBRARY_PATH": str(self.library),
            "STUB_NVML": str(self.folder / f"{name}.driver"),
        }
        return super().start_agent(name, **driver, **environment)


@pytest.fixture(scope="module")
def driven() -> Iterator[Driven]:
    """Two nodes."""
    with Driven() as cluster:
        yield cluster


def _faults(cluster: Driven, job: int) -> str:
    return "\n".join(
        line for line in cluster.cli("show", str(job)).splitlines() if "gpu-fault" in line
    )


def test_a_faulty_gpu_is_told_to_its_owner_and_its_job_goes_on_elsewhere(driven: Driven) -> None:
    job = driven.submit("sleep 600", nodelist="n1", retries="0")
    driven.until(job, "RUNNING")
    driven.driver_says("n1", "ecc 0 2\necc 1 0")
    eventually("its owner is told", lambda: "uncorrected ECC" in _faults(driven, job))
    again = eventually("it runs again", lambda: driven.job(job).starts == 2 and driven.job(job))
    assert (again.failures, again.preemptions) == (0, 0)
    assert driven.node("n1").state not in ("drained", "draining")  # its other GPU goes on
    unhealthy = [gpu.index for gpu in driven.node("n1").devices if gpu.state == "unhealthy"]
    assert unhealthy == [0]
    driven.driver_says("n1", "ecc 0 2\necc 1 3")
    eventually("no GPU is left", lambda: driven.job(job).state == "PENDING")
    driven.driver_says("n1", "ecc 0 2\necc 1 0")  # a fault that is over makes room
    driven.until(job, "RUNNING")
    driven.cli("cancel", str(job))
    driven.until(job, "CANCELLED")


def test_a_job_that_may_not_start_again_stays_on_its_faulty_gpu(driven: Driven) -> None:
    driven.driver_says("n1", "")
    job = driven.submit("sleep 600", nodelist="n1", requeue="no")
    driven.until(job, "RUNNING")
    driven.driver_says("n1", "ecc 0 4\necc 1 4")
    eventually("its owner is told", lambda: "uncorrected ECC" in _faults(driven, job))
    assert driven.job(job).state == "RUNNING"
    driven.cli("cancel", str(job))
    driven.driver_says("n1", "")


def _takes_gpus_out(driven: Driven, job: int, times: int) -> None:
    """Both GPUs of the job's node have a fault, `times` times; in between they are well again."""
    for count in range(1, times + 1):
        driven.until(job, "RUNNING")
        eventually("its next run", lambda count=count: driven.job(job).starts == count)
        driven.driver_says("n1", "ecc 0 9\necc 1 9")
        eventually("its run has ended", lambda: driven.job(job).state != "RUNNING")
        driven.driver_says("n1", "ecc 0 0\necc 1 0")
        eventually(
            "its GPUs are well",
            lambda: all(gpu.state != "unhealthy" for gpu in driven.node("n1").devices),
        )


def test_a_job_that_takes_gpu_after_gpu_with_it_is_ended(driven: Driven) -> None:
    refused = driven.run("submit", "--gpu-retries", "4", "--wrap", "true")
    assert refused.returncode == 1
    assert "GPU retries: 4 are asked for, this site gives 3" in refused.stderr
    words = ("--wrap", "sleep 600", "-w", "n1", "--gpu-retries", "2", "--parsable")
    job = int(driven.cli("submit", *words))
    _takes_gpus_out(driven, job, 3)
    ended = driven.until(job, "GPU_FAIL")
    assert (ended.starts, ended.failures) == (3, 0)
    assert "3 runs in a row have lost a GPU" in driven.cli("show", str(job))
    eventually("n1 is idle", lambda: driven.node("n1").state == "idle")
    driven.cli("requeue", str(job))  # the owner says that it is not the job's doing
    assert driven.until(job, "RUNNING").starts == 4
    driven.cli("cancel", str(job))
    driven.until(job, "CANCELLED")


def test_an_error_of_the_program_is_told_and_is_the_job_s_own_failure(driven: Driven) -> None:
    job = driven.submit("while ! [ -e gone ]; do sleep 0.05; done; exit 1", nodelist="n1", gpus="2")
    driven.until(job, "RUNNING")
    driven.driver_says("n1", "xid 0 31")
    eventually("its owner is told", lambda: "an error of the program" in _faults(driven, job))
    (driven.folder / "gone").touch()
    ended = driven.until(job, "FAILED")
    assert (ended.starts, ended.reason) == (1, None)
    eventually("n1 is idle", lambda: driven.node("n1").state == "idle")
    driven.driver_says("n1", "")


def test_slow_clocks_are_told_and_take_no_gpu_away(driven: Driven) -> None:
    job = driven.submit("sleep 600", nodelist="n1", gpus="2")
    where = driven.until(job, "RUNNING")
    driven.driver_says("n1", "slow 1 64\nslow 0 128")
    eventually("its owner is told", lambda: "slowed down" in _faults(driven, job))
    assert driven.job(job).state == "RUNNING"
    assert where.nodes == ("n1",)
    driven.cli("cancel", str(job))
    driven.until(job, "CANCELLED")
    driven.driver_says("n1", "")


def test_all_that_is_wrong_with_a_gpu_is_told_and_each_of_it_once(driven: Driven) -> None:
    driven.until_well("n1")
    job = driven.submit("sleep 600", nodelist="n1", gpus="2", requeue="no")
    driven.until(job, "RUNNING")
    program = "xid 1 31\nxid 1 31\n"  # the driver tells each line once; one may be told already
    driven.driver_says("n1", program)
    eventually("the error is told", lambda: "GPU 1 of n1: Xid 31" in _faults(driven, job))
    driven.driver_says("n1", f"{program}slow 1 64")
    eventually("slow clocks, too", lambda: "GPU 1 of n1: slowed down" in _faults(driven, job))
    foreign = f"process 1 {os.getpid()} 5"
    driven.driver_says("n1", f"{program}slow 1 64\n{foreign}\necc 1 7")
    eventually("and the fault", lambda: "7 uncorrected ECC errors" in _faults(driven, job))
    told = _faults(driven, job)
    assert [told.count(words) for words in ("Xid 31", "slowed down", "ECC")] == [1, 1, 1]
    shown = driven.node("n1").devices[1].reason or ""
    for words in ("7 uncorrected ECC errors", "Xid 31", "slowed down", "foreign process"):
        assert words in shown
    assert "GPU 1: 7 uncorrected ECC errors" in driven.cli("nodes", "-R")
    driven.cli("cancel", str(job))
    driven.until(job, "CANCELLED")
    driven.driver_says("n1", "")


def test_a_fault_that_needs_a_boot_drains_the_node_with_its_reason(driven: Driven) -> None:
    job = driven.submit("sleep 600", nodelist="n2", gpus="1")
    driven.until(job, "RUNNING")
    driven.driver_says("n2", "xid 0 79\nxid 1 13")
    eventually("n2 is drained", lambda: driven.node("n2").state == "drained")
    assert "GPU 0: Xid 79: fell off the bus" in driven.node("n2").reason
    waiting = driven.until(job, "PENDING")
    assert (waiting.failures, waiting.starts) == (0, 1)
    unhealthy = [gpu.index for gpu in driven.node("n2").devices if gpu.state == "unhealthy"]
    assert unhealthy == [0]  # an application's Xid, on GPU 1, is no fault
    driven.cli("cancel", str(job))
    driven.until(job, "CANCELLED")
    resumed = driven.cli("resume-node", "n2")
    assert "until its agent reports once more: GPU 0: Xid 79: fell off the bus" in resumed
    eventually("it is drained again", lambda: driven.node("n2").state == "drained")
