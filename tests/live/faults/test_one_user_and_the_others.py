"""One user does the worst for some seconds: another user's calls, metrics and web page go on.

A call may take ten times as long as alone, or some seconds on a machine that has other work.
Without bounds it took 10 to 28 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dlsched.rpc.authorisation import RULES
from dlsched.rpc.channels import ClientTrust, open_blocking_channel
from dlsched.rpc.local_frames import calls_path
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1 import control_pb2_grpc
from dlsched.torture.local_cluster import LocalCluster, free_port
from tests.daemon.cluster_of_tests import job
from tests.other_users import BECOME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[3]
STRANGER = 54_321  # a user id
WORST_S = 3.0
TIMES, FLOOR_S = 10, 4.0
METHODS = sorted(
    name.rpartition("/")[2]
    for name, rule in RULES.items()
    if "Control/" in name and not rule.operators_only
)
SERVERS = [
    ("gRPC", "churn"), ("gRPC", "silent"), ("gRPC", "slow"),
    ("socket", "churn"), ("socket", "silent"),
    ("socket.calls", "churn"), ("socket.calls", "silent"),
    ("metrics", "greet"), ("metrics", "silent"), ("metrics", "half"),
    ("web", "greet"), ("web", "silent"), ("web", "half"),
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    pages = {name: f"127.0.0.1:{free_port()}" for name in ("metrics", "web")}
    with LocalCluster(nodes=1, tables={"daemon": pages}) as running:
        running.folder.chmod(0o755)
        yield running


class Bob:
    """Another user, whose calls are timed; each has a connection of its own, as of a command."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.daemon = f"127.0.0.1:{cluster.port}"
        self.metrics = cluster.sections["daemon"]["metrics"]
        self.web = cluster.sections["daemon"]["web"]

    def calls(self) -> dict[str, float]:
        """Seconds that each takes."""
        return {
            "Status": seconds(lambda: self.call("Status", c.StatusRequest())),
            "Submit": seconds(lambda: self.call("Submit", c.SubmitRequest(jobs=[job(held=True)]))),
            "metrics": seconds(lambda: self.read(self.metrics, "/metrics", b"dlsched_")),
            "web": seconds(lambda: self.read(self.web, "/", b"<html")),
        }

    def call(self, method: str, request: Any) -> None:
        """A call of the command line."""
        with open_blocking_channel(self.daemon, ClientTrust.claimed_user("bob", 1002)) as channel:
            stub = control_pb2_grpc.ControlStub(channel)
            getattr(stub, method)(request, timeout=60, wait_for_ready=True)

    def read(self, address: str, path: str, has: bytes) -> None:
        """Read a page as Prometheus and browsers do, which come again where there was no room."""
        until = time.monotonic() + 60
        while True:
            connection = HTTPConnection(address, timeout=60)
            try:
                connection.request("GET", path)
                found = connection.getresponse().read()
            except (OSError, HTTPException):
                if time.monotonic() < until:
                    continue
                raise
            finally:
                connection.close()
            assert has in found
            return


def seconds(call: Callable[[], Any]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def medians(timed: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(each[name] for each in timed) for name in timed[0]}


@contextmanager
def one_user(where: str, what: str, uid: int = 0) -> Iterator[None]:
    """One user does the worst meanwhile."""
    program = (
        BECOME + "import runpy\nrunpy.run_module('tests.live.faults.one_user', run_name='__main__')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(uid), where, what],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline() == b"begun\n"
        yield
    finally:
        process.stdin.close()
        process.kill()
        process.wait(60)
        process.stdout.close()


def held_up(cluster: LocalCluster, where: str, what: str, uid: int = 0) -> dict[str, str]:
    """The calls of another user that take too long while one user does the worst, in words."""
    bob = Bob(cluster)
    alone = medians([bob.calls() for _ in range(7)])
    with one_user(where, what, uid):
        until, timed = time.monotonic() + WORST_S, []
        while time.monotonic() < until or not timed:
            timed.append(bob.calls())
    beside = medians(timed)
    return {
        name: f"{beside[name]:.3f} s, alone {alone[name]:.3f} s"
        for name in alone
        if beside[name] > max(TIMES * alone[name], FLOOR_S)
    }


@pytest.mark.parametrize("method", METHODS)
def test_no_call_of_a_user_keeps_another_one_waiting(cluster: LocalCluster, method: str) -> None:
    assert not held_up(cluster, f"127.0.0.1:{cluster.port}", method)


@pytest.mark.parametrize(("server", "what"), SERVERS)
def test_no_connections_of_a_user_keep_another_one_waiting(
    cluster: LocalCluster, server: str, what: str
) -> None:
    socket = f"{cluster.folder}/d.sock"
    where = {
        "gRPC": f"127.0.0.1:{cluster.port}",
        "socket": socket,
        "socket.calls": calls_path(socket),
        "metrics": str(cluster.sections["daemon"]["metrics"]),
        "web": str(cluster.sections["daemon"]["web"]),
    }[server]
    of_users = where.startswith("/")
    assert Path(where).is_socket() or not of_users
    if of_users and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    assert not held_up(cluster, where, what, STRANGER if of_users else 0)
