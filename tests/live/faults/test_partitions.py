"""Runs under `fence = "lease"` in real networks that are cut: one run at a time, wherever it is.

The job stamps the time, with the number of its run, about twenty times a second. Two runs at once
would show in these stamps; a frozen run stamps nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlsched.torture.local_cluster import eventually
from tests.live.faults.networked_cluster import (
    DAEMON,
    NetworkedCluster,
    has_settled,
    why_no_networks,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make networks"),
]
FREEZER = Path("/sys/fs/cgroup/freezer")
STAMPS = 'while :; do echo "$DLSCHED_RUN $(date +%s.%N)" >>"{file}"; sleep 0.05; done'
Cut = Callable[[NetworkedCluster, str, list[str]], None]


@pytest.fixture(scope="module")
def networked() -> Iterator[NetworkedCluster]:
    """A daemon and four agents, each in its own network."""
    why = why_no_networks()
    if why:
        pytest.skip(why)
    with NetworkedCluster(nodes=4) as cluster:
        eventually("every node has the newest witnesses alone", lambda: has_settled(cluster))
        yield cluster


def both(cluster: NetworkedCluster, some: list[str], others: list[str]) -> None:
    cluster.network.cut(some, others)
    cluster.network.cut(others, some)


# the job's node loses its job to another one: n is that node, and o are the others
LEAVES: dict[str, Cut] = {
    "isolated": lambda c, n, o: both(c, [n], [DAEMON, *o]),
    "only from the daemon": lambda c, n, o: both(c, [n], [DAEMON]),
    "does not hear the daemon": lambda c, n, o: c.network.cut([DAEMON], [n]),
    "is not heard by the daemon": lambda c, n, o: c.network.cut([n], [DAEMON]),
    "is not heard by any": lambda c, n, o: c.network.cut([n], [DAEMON, *o]),
    "half of the nodes": lambda c, n, o: both(c, [n, o[0]], [DAEMON, *o[1:]]),
}
# the leader cannot know that the job's node has stopped it, and it goes on there
STAYS: dict[str, Cut] = {
    "all from the daemon": lambda c, n, o: both(c, [n, *o], [DAEMON]),
    "most from the daemon": lambda c, n, o: both(c, [n, *o[:2]], [DAEMON, o[2]]),
    "the daemon is not heard": lambda c, n, o: c.network.cut([DAEMON], [n, *o]),
}


class Stamped:
    """A job that stamps the time."""

    def __init__(self, cluster: NetworkedCluster, *options: str) -> None:
        self.cluster = cluster
        self._file = cluster.folder / f"stamps{time.monotonic_ns()}"
        script = f"#!/bin/sh\n{STAMPS.format(file=self._file)}\n"
        told = cluster.cli("submit", "--parsable", "--retries", "0", *options, "-", stdin=script)
        self.job = int(told)
        self.node = cluster.until(self.job, "RUNNING").nodes[0]
        eventually("it stamps", lambda: self.stamps)

    @property
    def stamps(self) -> list[tuple[int, float]]:
        """The run and the time of each stamp, in order."""
        if not self._file.exists():
            return []
        words = [line.split() for line in self._file.read_text().splitlines()[:-1]]
        return [(int(run), float(at)) for run, at in words]

    def cut(self, how: Cut) -> None:
        """Cut the network around the job's node."""
        how(self.cluster, self.node, [name for name in self.cluster.names if name != self.node])

    def check(self) -> None:
        """No run stamps after a later one has begun."""
        runs = [run for run, _ in sorted(self.stamps, key=lambda stamp: stamp[1])]
        assert runs == sorted(runs), f"runs at once: {runs}"

    def end(self) -> None:
        self.cluster.network.heal()
        self.cluster.wait_until_up()
        self.cluster.cli("cancel", str(self.job))
        self.cluster.until(self.job, "CANCELLED")
        self.check()


def each(cuts: dict[str, Cut], seldom: set[str]) -> list[Any]:
    """The names of cuts; some are for before a release."""
    return [
        pytest.param(name, marks=pytest.mark.exhaustive if name in seldom else ()) for name in cuts
    ]


@pytest.mark.parametrize("how", each(LEAVES, {"is not heard by any", "half of the nodes"}))
def test_a_job_that_its_node_has_frozen_starts_elsewhere(
    networked: NetworkedCluster, how: str
) -> None:
    """And one under `fence = "hold"` beside it goes on where it is."""
    job = Stamped(networked)
    held = Stamped(networked, "--fence", "hold", "--nodelist", job.node)
    job.cut(LEAVES[how])
    eventually("it runs elsewhere", lambda: job.stamps[-1][0] == 2)
    job.check()
    now = networked.job(job.job)
    assert (now.starts, now.failures) == (2, 0)
    assert now.nodes[0] != job.node
    long = time.time()
    eventually("the other one goes on", lambda: held.stamps[-1][1] > long)
    assert ({run for run, _ in held.stamps}, networked.job(held.job).starts) == ({1}, 1)
    networked.network.heal()
    networked.wait_until_up()
    count = len(job.stamps)
    eventually("it goes on", lambda: len(job.stamps) > count + 20)
    assert networked.job(job.job).starts == 2
    held.end()
    job.end()


@pytest.mark.skipif(not (FREEZER / "tasks").exists(), reason="needs the v1 freezer")
def test_a_job_that_did_not_obey_before_its_node_was_cut_off_waits_for_it(
    networked: NetworkedCluster,
) -> None:
    """Fault row C19: a lease fences only what obeys; the freezer holds it against SIGKILL."""
    job = Stamped(networked, "--grace", "1s")
    cage = FREEZER / f"dlsched-test-{time.monotonic_ns()}"
    cage.mkdir()
    try:
        mine = f"DLSCHED_JOB_ID={job.job}".encode()
        found = [p.pid for p in psutil.process_iter() if mine in _environment(p.pid)]
        for pid in found:
            (cage / "tasks").write_text(str(pid))
        (cage / "freezer.state").write_text("FROZEN")
        state = cage / "freezer.state"
        eventually("it is stuck", lambda: found and state.read_text().strip() == "FROZEN")
        networked.cli("requeue", str(job.job))
        eventually("it is leaving", lambda: networked.job(job.job).state == "COMPLETING")
        job.cut(LEAVES["isolated"])
        told = f"{job.node} is late: job {job.job} was being stopped there, and waits"
        eventually("the leader says so", lambda: told in networked.cli("admin", "status"))
        assert {run for run, _ in job.stamps} == {1}
        networked.network.heal()
        networked.wait_until_up()
        assert {run for run, _ in job.stamps} == {1}
    finally:
        (cage / "freezer.state").write_text("THAWED")
    eventually("it is gone", lambda: not (cage / "tasks").read_text())
    cage.rmdir()
    eventually("its next run begins", lambda: job.stamps[-1][0] == 2)
    job.end()


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.mark.parametrize("how", each(STAYS, {"the daemon is not heard"}))
def test_a_job_goes_on_where_no_leader_can_know_that_it_has_stopped(
    networked: NetworkedCluster, how: str
) -> None:
    job = Stamped(networked)
    job.cut(STAYS[how])
    window_s = 11.5
    long = time.time() + 1.3 * window_s
    eventually("it goes on for long", lambda: job.stamps[-1][1] > long)
    assert {run for run, _ in job.stamps} == {1}
    networked.network.heal()
    networked.wait_until_up()
    now = networked.job(job.job)
    assert (now.state, now.starts, now.nodes) == ("RUNNING", 1, (job.node,))
    job.end()
