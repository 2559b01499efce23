"""Launchers: what each can do, said honestly, and done for real where this machine lets it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import Work, eventually, marked

from dlsched.core.errors import BadInput
from dlsched.nodeagent.host import launchers
from dlsched.nodeagent.host.launchers import Launcher, choose_launcher
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import Phase


def has_cgroup() -> bool:
    if os.geteuid() != 0:
        return False
    root, _ = launchers.find_cgroup(f"probe-{os.getpid()}")
    if root:
        os.rmdir(root)
    return bool(root)


@pytest.fixture(autouse=True)
def no_cgroup_stays() -> Iterator[None]:
    yield
    found = launchers.find_cgroup(NODE)[0] if os.geteuid() == 0 else ""
    if found:
        root = Path(found)
        eventually(lambda: not [each for each in root.iterdir() if each.is_dir()])
        root.rmdir()


NODE = f"n{os.getpid()}"
CGROUP = pytest.mark.skipif(
    not has_cgroup(),
    reason="no writable cgroup v2 with a freezer here",
)


def test_capabilities_are_those_of_the_machine() -> None:
    assert Launcher(name="plain").capabilities == ("supervise", "signal", "freeze")
    assert "fence" in Launcher(name="plain", namespaces=True).capabilities
    bare = Launcher(name="cgroup", cgroup_root="/x").capabilities
    assert "kill-tree" in bare
    assert "limits" not in bare
    assert "limits" in Launcher(name="cgroup", controllers=("memory",)).capabilities


def test_an_unavailable_launcher_is_refused() -> None:
    if os.path.isdir("/run/systemd/system"):
        pytest.skip("process 1 is systemd here")
    with pytest.raises(BadInput, match="launcher systemd: process 1 is not systemd"):
        choose_launcher("systemd", NODE, namespaces=False)


@CGROUP
def test_a_cgroup_a_run_frozen_and_killed_by_the_kernel(cluster: Any) -> None:
    agent = cluster.agent(NODE, "--launcher", "cgroup")
    leader = cluster.leader
    leader.wait_node(NODE)
    ticks = cluster.folder / "ticks"
    script = f"#!/bin/bash\nwhile :; do echo x >>{ticks}; sleep 0.01; done\n"
    job = leader.submit(Work(script=script.encode()))
    run_id = leader.place(job, (NODE,))
    eventually(lambda: ticks.exists() and ticks.stat().st_size > 10)
    root, _ = launchers.find_cgroup(NODE)
    (path,) = Path(root).glob(f"*.{run_id}")
    members = (path / "job" / "cgroup.procs").read_text().split()
    keeper = agent.keeper(run_id)
    assert str(keeper) in (path / "keeper" / "cgroup.procs").read_text().split()
    assert str(keeper) not in members
    leader.suspend(job)
    leader.wait_phase(NODE, Phase.SUSPENDED)
    assert (path / "job" / "cgroup.freeze").read_text().strip() == "1"
    eventually(lambda: "frozen 1" in (path / "job" / "cgroup.events").read_text())
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)
    eventually(lambda: not path.exists(), "the cgroup goes with the run")


@CGROUP
def test_a_job_starts_after_the_agent_s_empty_cgroup_was_removed(cluster: Any) -> None:
    cluster.agent(NODE, "--launcher", "cgroup")
    leader = cluster.leader
    leader.wait_node(NODE)
    root, _ = launchers.find_cgroup(NODE)
    Path(root).rmdir()
    job = leader.submit(Work(script=b"#!/bin/sh\ntrue\n"))
    run_id = leader.place(job, (NODE,))
    assert leader.wait(job).status is JobStatus.COMPLETED
    eventually(lambda: not list(Path(root).glob(f"*.{run_id}")), "its cgroup goes with the run")


@CGROUP
def test_a_lost_keeper_s_cgroup_is_killed_as_a_whole(cluster: Any) -> None:
    agent = cluster.agent(NODE, "--launcher", "cgroup")
    leader = cluster.leader
    leader.wait_node(NODE)
    flag = cluster.folder / "up"
    script = f"#!/bin/bash\n(setsid sleep 1000 &) ; touch {flag}; exec sleep 1000\n"
    job = leader.submit(Work(script=script.encode()))
    run_id = leader.place(job, (NODE,))
    eventually(flag.exists)
    os.kill(agent.keeper(run_id), signal.SIGKILL)
    leader.wait(job, JobStatus.PENDING)  # queued again: it was its node's fault
    assert not marked(str(flag))
