"""A keeper that stands still sees neither its job's end nor its time limit: its agent does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import Work, eventually

from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import ExitReason, Limits, Phase

pytestmark = pytest.mark.slow


def stopped(cluster: Any, command: str, **more: Any) -> tuple[Any, Path]:
    """A job whose keeper is stopped; the job does as told when its file is there."""
    leader = cluster.up("n1")
    go, up = cluster.folder / "go", cluster.folder / "up"
    script = f"#!/bin/bash\necho up >>{up}\nwhile [ ! -e {go} ]; do sleep 0.05; done\n{command}\n"
    job = leader.submit(Work(script=script.encode()), **more)
    run_id = leader.place(job, ("n1",))
    eventually(up.exists, "the job is up")
    leader.wait_phase("n1", Phase.RUNNING)
    keeper = cluster.agents["n1"].keeper(run_id)
    os.kill(keeper, signal.SIGSTOP)
    return job, go


def test_the_end_of_a_job_with_a_stopped_keeper_is_seen(cluster: Any) -> None:
    job, go = stopped(cluster, "exit 3")
    go.touch()
    assert cluster.leader.wait(job).status is JobStatus.FAILED
    record = cluster.leader.run_of(job).members["n1"].exit
    assert (record.reason, record.code) == (ExitReason.EXITED, 3)
    assert "keeper-stands-still" in cluster.agents["n1"].log.read_text()


def test_the_time_limit_of_a_job_with_a_stopped_keeper_holds(cluster: Any) -> None:
    job, _ = stopped(cluster, "exit 3", limits=Limits(time_s=4.0))
    assert cluster.leader.wait(job).status is JobStatus.TIMEOUT


def test_a_stopped_keeper_that_is_adopted_goes_on(cluster: Any) -> None:
    job, go = stopped(cluster, "exit 0")
    cluster.agents["n1"].restart()
    go.touch()
    assert cluster.leader.wait(job).status is JobStatus.COMPLETED
