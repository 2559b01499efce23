"""A process that does not obey SIGKILL: its job runs nowhere else before that is gone."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of

FREEZER = Path("/sys/fs/cgroup/freezer")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not (FREEZER / "tasks").exists(),
        reason="needs root and the v1 freezer, which holds a process against SIGKILL",
    ),
]
BOOT = "/proc/sys/kernel/random/boot_id"
OTHER_BOOT = ("unshare", "--mount", "sh", "-c", f'mount --bind "$0" {BOOT} && exec "$@"')
WAITS = "Unkillable(n1: a process of run 1 is alive)"


@pytest.fixture(scope="module", params=SELDOM_POSTGRES)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Two nodes with four GPUs each that give a process up after two seconds."""
    timing = {"unkillable_s": 2.0}
    with LocalCluster(database_of(request), nodes=2, timing=timing) as running:
        yield running


class Stuck:
    """A job on the first node whose process does not obey SIGKILL; its second run ends at once."""

    def __init__(self, cluster: LocalCluster, **options: object) -> None:
        self.cluster, self.runs = cluster, cluster.folder / f"runs{uuid.uuid4()}"
        script = f"echo $DLSCHED_RUN >>{self.runs}; [ $DLSCHED_RUN = 1 ] || exit 0; exec sleep 600"
        cluster.cli("drain", "n2", "--reason", "the job is to start on n1")
        self.job = cluster.submit(script, gpus="1", grace="1s", **options)
        eventually("it runs", self.runs.exists)
        cluster.cli("resume-node", "n2")
        self._cage = FREEZER / f"dlsched-test-{uuid.uuid4()}"
        self._cage.mkdir()
        mine = f"DLSCHED_JOB_ID={self.job}"
        found = [p.pid for p in psutil.process_iter() if mine in _environment(p)]
        for pid in found:
            (self._cage / "tasks").write_text(str(pid))
        (self._cage / "freezer.state").write_text("FROZEN")
        state = self._cage / "freezer.state"
        eventually("it is stuck", lambda: state.read_text().strip() == "FROZEN" and found)

    def waits(self) -> None:
        """See that nothing begins in place of the process, and that it is told why."""
        cluster = self.cluster
        told = f"n1: a process of job {self.job} cannot be killed"
        eventually("operators see it", lambda: told in cluster.run("admin", "status").stdout)
        assert f"a process of job {self.job} cannot be killed" in cluster.node("n1").reason
        assert self.runs.read_text() == "1\n"
        one = cluster.submit("true", gpus="1", nodelist="n1")
        cluster.until(one, "COMPLETED")  # the other GPUs are in use
        self.all = cluster.submit("true", gpus="4", nodelist="n1")
        assert cluster.job(self.all).state == "PENDING"

    def gone(self) -> None:
        """The process ends."""
        if self._cage.exists():
            (self._cage / "freezer.state").write_text("THAWED")
            eventually("it is gone", lambda: not (self._cage / "tasks").read_text())
            self._cage.rmdir()

    def is_free(self) -> None:
        """See that its GPUs are in use again."""
        self.cluster.until(self.all, "COMPLETED")
        told = f"a process of job {self.job} cannot be killed"
        assert told not in self.cluster.run("admin", "status").stdout


def keeper_of(record: Path) -> int:
    """The process id of the keeper that has written a run's file."""
    return int(json.loads(record.read_text())["keeper"]["pid"])


def _environment(process: psutil.Process) -> set[str]:
    with contextlib.suppress(psutil.Error, OSError):
        return {f"{name}={value}" for name, value in process.environ().items()}
    return set()


@contextlib.contextmanager
def stuck(cluster: LocalCluster, **options: object) -> Iterator[Stuck]:
    made = Stuck(cluster, **options)
    try:
        yield made
    finally:
        made.gone()


QUEUED_AGAIN = {
    "requeue": lambda job: ("requeue", str(job)),
    "preempt": lambda _: ("drain", "n1", "--now", "--reason", "its fans"),
}


@pytest.mark.parametrize("how", sorted(QUEUED_AGAIN))
def test_a_job_that_is_queued_again_waits_over_restarts_of_agent_and_daemon(
    cluster: LocalCluster, how: str
) -> None:
    """Fault row C19."""
    with stuck(cluster) as job:
        cluster.cli(*QUEUED_AGAIN[how](job.job))
        eventually("it waits", lambda: WAITS in cluster.cli("show", str(job.job)))
        cluster.cli("resume-node", "n1", check=False)
        job.waits()
        cluster.kill("n1")
        cluster.start_agent("n1")
        cluster.kill("daemon")
        cluster.start_daemon()
        cluster.wait_until_up()
        cluster.cli("update", str(job.job), "--time", "2h")  # whatever else is asked of it
        assert WAITS in cluster.cli("show", str(job.job))
        assert (cluster.job(job.job).state, job.runs.read_text()) == ("PENDING", "1\n")
        job.gone()
        cluster.until(job.job, "COMPLETED")
        assert job.runs.read_text() == "1\n2\n"
        job.is_free()


@pytest.mark.parametrize("how", ["cancel", "limit"])
def test_a_job_that_has_ended_for_its_user_says_so_and_its_gpus_stay_taken(
    cluster: LocalCluster, how: str
) -> None:
    with stuck(cluster, **({"time": "5s"} if how == "limit" else {})) as job:
        if how == "cancel":
            cluster.cli("cancel", str(job.job))
        cluster.until(job.job, "CANCELLED" if how == "cancel" else "TIMEOUT")
        job.waits()
        assert "it has ended already" in cluster.run("release", str(job.job)).stderr
        cluster.kill("daemon")
        cluster.start_daemon()
        cluster.wait_until_up()
        assert cluster.job(job.all).state == "PENDING"
        job.gone()
        job.is_free()
        assert job.runs.read_text() == "1\n"


def test_an_operator_lets_the_job_start_and_the_node_keeps_the_gpus(cluster: LocalCluster) -> None:
    with stuck(cluster) as job:
        cluster.cli("requeue", str(job.job))
        eventually("it waits", lambda: WAITS in cluster.cli("show", str(job.job)))
        job.waits()
        cluster.cli("admin", "run-over", str(job.job), "--confirmed")
        cluster.until(job.job, "COMPLETED")
        assert job.runs.read_text() == "1\n2\n"
        assert cluster.job(job.all).state == "PENDING"
        assert "quarantined" in cluster.cli("nodes", "--gpus")
        job.gone()
        job.is_free()


def test_a_process_whose_keeper_has_died_is_not_forgotten(cluster: LocalCluster) -> None:
    """Neither by the agent nor by its next start: the record stays as long as the process."""
    with stuck(cluster) as job:
        (record,) = (cluster.folder / "n1" / "state").glob(f"jobs/{job.job}.*/run.json")
        cluster.cli("requeue", str(job.job))
        eventually("it waits", lambda: WAITS in cluster.cli("show", str(job.job)))
        job.waits()
        psutil.Process(keeper_of(record)).kill()
        cluster.kill("n1")
        cluster.start_agent("n1")
        cluster.wait_until_up()
        problem = "unkillable process"
        eventually("the node has looked again", lambda: problem in cluster.cli("nodes", "n1"))
        assert WAITS in cluster.cli("show", str(job.job))
        assert cluster.job(job.all).state == "PENDING"
        job.gone()
        cluster.until(job.job, "COMPLETED")
        job.is_free()


def test_a_reboot_ends_it(cluster: LocalCluster) -> None:
    boot = cluster.folder / "boot_id"
    boot.write_text(f"{uuid.uuid4()}\n")
    tried = subprocess.run([*OTHER_BOOT, str(boot), "true"], check=False, capture_output=True)
    if tried.returncode:
        pytest.skip("needs the rights to give a process another boot id")
    with stuck(cluster) as job:
        cluster.cli("requeue", str(job.job))
        eventually("it waits", lambda: WAITS in cluster.cli("show", str(job.job)))
        job.waits()
        cluster.kill("n1")
        cluster._agents_under = (*OTHER_BOOT, str(boot))
        cluster.start_agent("n1")
        cluster._agents_under = ()
        cluster.until(job.job, "COMPLETED")
        assert job.runs.read_text() == "1\n2\n"
        job.is_free()
        cluster.kill("n1")
        job.gone()
        cluster.start_agent("n1")
        cluster.wait_until_up()
