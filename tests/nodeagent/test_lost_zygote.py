"""A zygote or a keeper that stands still, dies or answers late: no answer is another run's."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from scripted_leader import Work, alive, eventually

from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import JobId

pytestmark = pytest.mark.slow


def zygote(agent: Any) -> int:
    """The zygote of an agent, once it forks keepers."""

    def found() -> int | None:
        for each in psutil.Process(agent.process.pid).children():
            if each.name() == "dls-zygote":
                return each.pid
        return None

    return int(eventually(found, "there is a zygote"))


def lasting(cluster: Any, gpu: int) -> tuple[JobId, Path]:
    """A job that runs until its file is there."""
    leader = cluster.leader
    go = cluster.folder / f"go{gpu}"
    up = cluster.folder / f"up{gpu}"
    script = f"#!/bin/bash\necho up >>{up}\nwhile [ ! -e {go} ]; do sleep 0.05; done\n"
    job = leader.submit(Work(script=script.encode()))
    leader.place(job, ("n1",), gpu)
    return job, go


def up(cluster: Any, gpu: int) -> bool:
    path = cluster.folder / f"up{gpu}"
    return path.exists() and path.read_text().count("up") == 1


def test_after_a_stopped_zygote_each_job_has_its_own_keeper(cluster: Any) -> None:
    """A stopped zygote is replaced; its late answer belongs to no job."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    stopped = zygote(agent)
    os.kill(stopped, signal.SIGSTOP)
    jobs = [lasting(cluster, gpu) for gpu in range(4)]
    eventually(lambda: all(up(cluster, gpu) for gpu in range(4)), "all four are up", within=90)
    assert not alive(stopped)
    keepers = [agent.keeper(leader.run_of(job).key.run_id) for job, _ in jobs]
    assert len(set(keepers)) == 4
    leader.cancel(jobs[1][0])
    leader.wait(jobs[1][0], JobStatus.CANCELLED)
    jobs[0][1].touch()
    assert leader.wait(jobs[0][0]).status is JobStatus.COMPLETED
    eventually(lambda: not alive(keepers[0]) and not alive(keepers[1]), "both keepers are gone")
    assert alive(keepers[2])
    assert alive(keepers[3])
    for job, go in jobs[2:]:
        go.touch()
        assert leader.wait(job).status is JobStatus.COMPLETED


def test_a_killed_zygote_is_replaced_before_a_job_comes(cluster: Any) -> None:
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    first = zygote(agent)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: zygote(agent) != first, "another zygote")
    job, go = lasting(cluster, 0)
    eventually(lambda: up(cluster, 0), "the job is up")
    go.touch()
    assert leader.wait(job).status is JobStatus.COMPLETED


def test_an_agent_starts_beside_a_stopped_zygote_of_a_killed_one(cluster: Any) -> None:
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    stopped = zygote(agent)
    os.kill(stopped, signal.SIGSTOP)
    agent.restart()
    job, go = lasting(cluster, 0)
    eventually(lambda: up(cluster, 0), "the job is up")
    assert not alive(stopped)
    go.touch()
    assert leader.wait(job).status is JobStatus.COMPLETED


def test_a_zygote_that_cannot_be_started_is_said_and_tried_again(cluster: Any) -> None:
    """Its lock cannot be opened, because a folder has its name."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    first = zygote(agent)
    lock = agent.run_dir / "spawning.lock"
    lock.unlink()
    lock.mkdir()
    os.kill(first, signal.SIGKILL)

    def problems() -> list[str]:
        return list(leader.descriptions["n1"].problems)

    eventually(lambda: any("no job can be started" in each for each in problems()), "it is said")
    lock.rmdir()
    eventually(lambda: not problems(), "it is over")
    job, go = lasting(cluster, 0)
    eventually(lambda: up(cluster, 0), "the job is up")
    go.touch()
    assert leader.wait(job).status is JobStatus.COMPLETED
