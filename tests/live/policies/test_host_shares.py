"""Processors by sensitivity, from a profile that is measured to running jobs that are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

# the more processors it may use, the faster its steps; it writes what it is told
TRAINING = """
import sys, time
from dlsched.job import attach

told = open(sys.argv[1], "a", buffering=1) if len(sys.argv) > 1 else None
last = None
with attach() as job:
    for step in range(1_000_000):
        if told is not None and job.node_cpus != last:
            last = job.node_cpus
            print(last, file=told)
        time.sleep(0.4 / max(job.node_cpus, 1))
        if not job.step(loss=1.0 / (step + 1)):
            break
"""


class Sized(LocalCluster):
    """A cluster whose nodes have eight processors, whatever this machine has."""

    def _agent_settings(self, name: str) -> dict[str, object]:
        return super()._agent_settings(name) | {"fake_cpus": 8, "fake_memory_gb": 64.0}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    profiles = tmp_path / "host.csv"
    profiles.write_text("model,cpus_per_gpu,steps_per_s\nother,2,1\n")
    policy = {"policy": "fifo", "interval_s": 0.5, "host": "synergy"}
    policy |= {"host_profiles": str(profiles)}
    with Sized(nodes=1, gpus="4:v100", round=policy) as running:
        yield running


def test_what_is_measured_is_believed_and_running_jobs_give_up_and_get_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    file = cluster.folder / "train.py"
    file.write_text(TRAINING)
    profiles = tmp_path / "host.csv"
    said = cluster.cli(
        "admin", "profile", "host", "--model", "vision", "--cpus", "2,4,8", "--for", "4",
        "--output", str(profiles), "--", sys.executable, str(file),
    )  # fmt: skip
    assert "3 measurements" in said
    rates = [float(line.split(",")[3]) for line in profiles.read_text().splitlines()[1:]]
    assert rates[0] < rates[1] < rates[2], rates
    cluster.cli("admin", "reload")

    def train(name: str, **options: object) -> tuple[int, Path]:
        told = cluster.folder / f"{name}.told"
        with cluster.client() as client:
            job = client.submit(
                [sys.executable, str(file), str(told)],
                name=name, model="vision", gpus=1, chdir=cluster.folder,
                output=f"{cluster.out}/%j.out", **options,
            )  # fmt: skip
        cluster.until(job, "RUNNING")
        return job, told

    def heard(told: Path, *expected: str) -> None:
        def is_so() -> bool:
            return told.exists() and told.read_text().split() == list(expected)

        try:
            eventually(f"{told.name} says {expected}", is_so)
        except AssertionError as error:
            text = told.read_text() if told.exists() else "nothing"
            raise AssertionError(f"{error}: {text}") from None

    first, first_told = train("first")
    heard(first_told, "8")  # alone: all it can use
    shown = cluster.cli("show", str(first))
    assert "8 CPUs of a node" in shown
    second, second_told = train("second")
    heard(second_told, "2")  # the proportional share of one of four GPUs
    heard(first_told, "8", "2")  # the richest gives up what is above its own
    third, third_told = train("third", cpus=3)
    heard(third_told, "3")  # what it asks for
    cluster.cli("cancel", str(second), str(third))
    heard(first_told, "8", "2", "8")
    assert cluster.job(first).starts == 1  # through all this it has kept its GPU

    cluster.kill("daemon")
    cluster.start_daemon()
    cluster.wait_until_up()
    _, fourth_told = train("fourth")
    heard(fourth_told, "2")
    heard(first_told, "8", "2", "8", "2")
    capabilities = cluster.node("n1").capabilities
    enforced = "not enforced on n1" not in cluster.cli("show", str(first))
    assert enforced == ("limits" in capabilities)
