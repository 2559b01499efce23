"""An upgrade under running jobs: first the daemon, then the nodes, one after the other.

The earlier version is that of a commit of this repository: its daemon starts the jobs, its agents
go on under the new daemon, its clients too.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from threading import Event, Thread

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

EARLIER = "1acddc8f"  # database 0020, the first version that is converted
PROJECT = Path(__file__).parents[3]
UNTIL_GO = "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo ended"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the earlier version's packages."""
    command = ["git", "-C", str(PROJECT), "archive", EARLIER, "dlsched", "simulate"]
    try:
        packed = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the earlier version is not in this checkout's history")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return str(folder)


class Upgraded(LocalCluster):
    """A cluster that begins in the earlier version."""

    def __init__(self, earlier: str) -> None:
        super().__init__(nodes=2)
        self.earlier = earlier

    def start_daemon(self, *words: object, **environment: str) -> subprocess.Popen[bytes]:
        return super().start_daemon(PYTHONPATH=self.earlier)

    def start_agent(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        return super().start_agent(name, **{"PYTHONPATH": self.earlier, **environment})

    def earlier_cli(self, *words: str) -> str:
        """What a command of the earlier version prints."""
        return subprocess.run(
            [sys.executable, "-m", "dlsched", *words],
            env={**self.environment, "PYTHONPATH": self.earlier},
            cwd=self.folder, capture_output=True, text=True, timeout=120, check=True,
        ).stdout  # fmt: skip

    def stop(self, name: str) -> None:
        """End a service as an upgrade does."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait(120)

    def back_up(self) -> None:
        """Copy the database as an operator does before an upgrade, while users submit jobs."""
        done, jobs = Event(), list[int]()

        def submit() -> None:
            while not done.is_set():
                jobs.append(self.submit("true", hold=True))

        copy, config = self.folder / "before.db", str(self.folder / "dlsched.toml")
        submitting = Thread(target=submit)
        submitting.start()
        try:
            eventually("there is a load", lambda: len(jobs) > 5)
            self.cli("admin", "backup", str(copy), "--config", config)
        finally:
            done.set()
            submitting.join()
        self.cli("cancel", "-y", *map(str, jobs))
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
            (known,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
        assert known > 5

    def with_new_daemon(self) -> None:
        """Upgrade the daemon, and its tables with it."""
        self.stop("daemon")
        config = str(self.folder / "dlsched.toml")
        refused = subprocess.run(
            [sys.executable, "-m", "dlsched.daemon", "--config", config],
            env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert refused.returncode == 1
        assert "dlsched daemon --migrate" in refused.stderr
        self._start("daemon", "dlsched.daemon", "--config", config, "--migrate")
        self.wait_until_up()

    def with_new_agent(self, name: str) -> None:
        """Upgrade a node."""
        self.stop(name)
        log = self.folder / f"{name}.log"
        size = log.stat().st_size
        super().start_agent(name)
        eventually(f"{name} speaks", lambda: b"daemon-reached" in log.read_bytes()[size:])


@pytest.fixture
def upgraded(earlier: str) -> Iterator[Upgraded]:
    with Upgraded(earlier) as running:
        yield running


def test_jobs_run_on_while_first_the_daemon_and_then_the_nodes_are_upgraded(
    upgraded: Upgraded,
) -> None:
    cluster = upgraded
    alone = cluster.submit(UNTIL_GO)
    gang = cluster.submit(UNTIL_GO, nodes="2", gpus="2", launch="node")
    others = [cluster.submit("echo begun; sleep 1000") for _ in range(3)]
    for job, count in ((alone, 1), (gang, 2), *((job, 1) for job in others)):
        eventually("it began", lambda j=job, c=count: cluster.output(j).split() == ["begun"] * c)

    cluster.back_up()
    cluster.with_new_daemon()
    for job in (alone, gang, *others):
        cluster.until(job, "RUNNING")
    said = eventually("an earlier agent shows it", lambda: cluster.run("logs", str(alone)).stdout)
    assert said == "begun\n"
    cluster.cli("cancel", "-y", str(others[0]))
    cluster.until(others[0], "CANCELLED")
    cluster.cli("suspend", str(others[1]))
    cluster.until(others[1], "SUSPENDED")
    started = cluster.submit("echo on an earlier agent")
    cluster.until(started, "COMPLETED")
    assert f" {alone} " in cluster.earlier_cli("queue", "--all")
    cluster.earlier_cli("cancel", "-y", str(others[2]))
    cluster.until(others[2], "CANCELLED")

    for name in cluster.names:
        cluster.with_new_agent(name)
        cluster.until(alone, "RUNNING")
        if name == cluster.names[0]:
            run_step_on_both(cluster)
    cluster.cli("resume", str(others[1]))
    cluster.until(others[1], "RUNNING")
    cluster.cli("cancel", "-y", str(others[1]))
    cluster.until(others[1], "CANCELLED")
    (cluster.folder / "go").touch()
    for job, lines in ((alone, ["begun", "ended"]), (gang, ["begun", "begun", "ended", "ended"])):
        found = cluster.until(job, "COMPLETED")
        assert (found.starts, sorted(cluster.output(job).split())) == (1, lines)


def run_step_on_both(cluster: Upgraded) -> None:
    """Ranks of one step under an earlier and a later agent each read the same input."""
    step = f"printf 'a\\n' | {sys.executable} -m dlsched run -n 2 cat"
    job = cluster.submit(step, nodes="2", gpus="2")
    cluster.until(job, "COMPLETED")
    assert cluster.output(job) == "a\na\n"
