"""A node where no job can start, and a job that can start nowhere: each is told from the other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

FULL = "No space left on device"


class Breakable(LocalCluster):
    """Two nodes. Jobs of one GPU go to n1, whose run folder is on a disk that can be filled.

    Attributes:
        launcher: of the nodes.
    """

    def __init__(self, launcher: str = "plain") -> None:
        super().__init__(
            nodes=2, gpus=("1:v100", "4:v100"), tables={"faults": {"failed_starts_s": 60.0}}
        )
        self.launcher = launcher
        self.disk = self.folder / "d"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "small", str(self.disk)]
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")

    def __exit__(self, *error: Any) -> None:
        subprocess.run(["umount", "-l", str(self.disk)], check=True)
        super().__exit__(*error)

    def _agent_settings(self, name: str) -> dict[str, object]:
        found = {**super()._agent_settings(name), "launcher": self.launcher}
        return {**found, "run_dir": str(self.disk / "run")} if name == "n1" else found

    def fill(self) -> Callable[[], None]:
        """Fill the run folder of n1; what is returned empties it again."""
        filler = self.disk / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}"], capture_output=True, check=False)
        return filler.unlink

    def use_up_descriptors(self) -> Callable[[], None]:
        """Leave n1's agent no descriptor; what is returned gives it its own limit back."""
        agent = psutil.Process(self.processes["n1"].pid)
        before = agent.rlimit(psutil.RLIMIT_NOFILE)
        agent.rlimit(psutil.RLIMIT_NOFILE, (agent.num_fds() + 2, before[1]))
        return lambda: agent.rlimit(psutil.RLIMIT_NOFILE, before)

    def drained(self, name: str) -> str:
        """Why a node is drained; empty while it is not."""
        node = self.node(name)
        return node.reason if node.state in ("drained", "draining") else ""


FAULTS: Mapping[str, tuple[Callable[[Breakable], Callable[[], None]], str]] = {
    "run folder full": (Breakable.fill, FULL),
    "no descriptor left": (Breakable.use_up_descriptors, "Too many open files"),
}


def fails_and_returns(cluster: Breakable, fault: str) -> None:
    """A fault of n1 costs each of three jobs one start; then n1 is drained until it is over."""
    break_it, words = FAULTS[fault]
    mend = break_it(cluster)
    try:
        for number in range(3):
            job = cluster.submit("true", retries="0", requeue="no")
            done = cluster.until(job, "COMPLETED", "FAILED", "NODE_FAIL")
            assert (done.state, done.nodes, done.failures) == ("COMPLETED", ("n2",), 0), number
            assert done.run == 2, number  # once on each node: no third try
            assert words in cluster.cli("show", str(job))
            if number == 1 and words == FULL:  # a new daemon knows of both
                cluster.kill("daemon")
                cluster.start_daemon()
                cluster.wait_until_up()
        eventually("n1 is drained", lambda: cluster.drained("n1"))
        assert cluster.drained("n1").startswith("the starts of 3 jobs failed here within 1 min")
        assert words in cluster.drained("n1")
        job = cluster.submit("true")
        assert cluster.until(job, "COMPLETED").run == 1  # straight to the other node
    finally:
        mend()
    eventually("n1 takes runs again", lambda: not cluster.drained("n1"))
    assert "its check has passed" in cluster.cli("admin", "audit")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_where_starts_fail_is_left_then_drained_then_taken_back(fault: str) -> None:
    with Breakable() as cluster:
        fails_and_returns(cluster, fault)


def test_a_node_that_loses_the_keepers_of_three_jobs_is_drained_then_taken_back() -> None:
    with Breakable() as cluster:
        gate = cluster.folder / "lost"
        script = f"[ -e {gate} ] || sleep 600"
        jobs = [cluster.submit(script, nodelist="n2") for _ in range(3)]
        for job in jobs:
            cluster.until_begun(job)
        gate.touch()
        for record in (cluster.folder / "n2" / "state").glob("jobs/*/run.json"):
            psutil.Process(json.loads(record.read_text())["keeper"]["pid"]).kill()
        for job in jobs:
            assert cluster.until(job, "COMPLETED").starts == 2
        audit = cluster.cli("admin", "audit")
        assert "3 jobs could not start or lost their keepers here within 1 min" in audit
        assert "its check has passed" in audit
        assert not cluster.drained("n2")


# becomes root of a user namespace, where no inotify instance can be had, and executes a program
NARROW = """
import ctypes, os, sys
NEWNS, NEWUSER = 0x00020000, 0x10000000
me, (reading, writing) = os.getpid(), os.pipe()
mapper = os.fork()
if mapper == 0:
    os.read(reading, 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{me}/{name}", "w") as file:
            file.write("0 0 65536")
    os._exit(0)
if ctypes.CDLL(None, use_errno=True).unshare(NEWUSER | NEWNS):
    sys.exit("no user namespace can be made here")
os.write(writing, b"1")
if os.waitpid(mapper, 0)[1]:
    sys.exit("no user can be mapped here")
with open("/proc/sys/user/max_inotify_instances", "w") as file:
    file.write("0")
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_jobs_run_where_namespaces_cannot_be_left_and_no_folder_can_be_watched() -> None:
    under = (sys.executable, "-c", NARROW)
    tried = subprocess.run([*under, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(tried.stderr.strip()[-200:])
    with LocalCluster(nodes=1, agents_under=under) as cluster:
        jobs = [cluster.submit("sleep 1") for _ in range(6)]  # under a lease, as by default
        for job in jobs:
            assert cluster.until(job, "COMPLETED", "FAILED").run == 1
        assert "not-started" not in cluster.log("n1", 100_000)
