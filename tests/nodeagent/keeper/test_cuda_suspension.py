"""Suspending by CUDA checkpoint, with a stand-in for the driver's tool that can misbehave."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import Work, alive, eventually, marked

from dlsched.nodeagent.gpus import cuda_checkpoint
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import Phase, SuspendLevel

pytestmark = pytest.mark.slow

TOOL = """#!/bin/sh
action=$2 pid=$4
echo $action >>{folder}/actions
mode=$(cat {folder}/mode 2>/dev/null)
[ "$mode" = "hang $action" ] && exec sleep 1000
[ "$mode" = "fail $action" ] && {{ echo "driver says no" >&2; exit 1; }}
[ "$mode" = "kill $action" ] && {{ kill -9 $pid; echo "died" >&2; exit 1; }}
exit 0
"""
JOB = """
import os, time
gpu = open({device!r})
for k in range(1000000):
    with open({ticks!r}, "a") as file:
        file.write("x")
    time.sleep(0.01)
"""


class Bench:
    """A running job that has a GPU open, and the tool."""

    def __init__(self, cluster: Any, level: SuspendLevel = SuspendLevel.CUDA) -> None:
        self.folder = cluster.folder
        self.leader = cluster.leader
        tool = self.folder / "cuda-checkpoint"
        tool.write_text(TOOL.format(folder=self.folder))
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        device = self.folder / "dev0"
        device.touch()
        more = f'device_prefix = "{self.folder}/dev"\ncheckpoint_lock_s = 0.2\n'
        self.agent = cluster.agent("n1", "--checkpoint-tool", str(tool), more=more)
        self.leader.wait_node("n1")
        self.ticks = self.folder / "ticks"
        script = JOB.format(device=str(device), ticks=str(self.ticks))
        work = Work(argv=("python3", "-c", script), environment={"PATH": os.environ["PATH"]})
        self.job = self.leader.submit(work, level=level, retries=0)
        self.leader.place(self.job, ("n1",))
        eventually(self.goes_on, "the job works")

    def goes_on(self) -> bool:
        before = self.ticks.stat().st_size if self.ticks.exists() else 0
        found = eventually(
            lambda: self.ticks.exists() and self.ticks.stat().st_size > before, within=40
        )
        return bool(found)

    def mode(self, text: str) -> None:
        (self.folder / "mode").write_text(text)

    @property
    def actions(self) -> list[str]:
        path: Path = self.folder / "actions"
        return path.read_text().split() if path.exists() else []

    def suspend(self) -> None:
        self.leader.suspend(self.job)
        self.leader.wait_phase("n1", Phase.SUSPENDED)

    def resume(self) -> None:
        self.leader.suspend(self.job, suspended=False)


def test_a_checkpoint_locks_copies_and_is_restored(cluster: Any) -> None:
    bench = Bench(cluster)
    bench.suspend()
    assert bench.actions == ["lock", "checkpoint"]
    bench.resume()
    assert bench.goes_on()
    eventually(lambda: bench.actions == ["lock", "checkpoint", "restore", "unlock"])


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("fail lock", marks=pytest.mark.slow),
        "hang lock",
        pytest.param("fail checkpoint", marks=pytest.mark.slow),
    ],
)
def test_what_fails_before_the_first_copy_degrades_to_a_freeze(cluster: Any, mode: str) -> None:
    bench = Bench(cluster)
    bench.mode(mode)
    bench.suspend()
    assert bench.actions[-1] == "unlock"
    eventually(lambda: "suspended-otherwise" in bench.agent.log.read_text(), "it is said")
    bench.mode("")
    bench.resume()
    assert bench.goes_on()
    assert "restore" not in bench.actions


def test_a_job_that_the_lock_kills_ends_by_name(cluster: Any) -> None:
    bench = Bench(cluster)
    bench.mode("kill lock")
    bench.leader.suspend(bench.job)
    assert bench.leader.wait(bench.job).status is JobStatus.FAILED


def test_a_job_that_cannot_be_restored_is_killed_and_says_so(cluster: Any) -> None:
    bench = Bench(cluster)
    bench.suspend()
    bench.mode("fail restore")
    bench.resume()
    assert bench.leader.wait(bench.job).status is JobStatus.FAILED
    record = bench.leader.run_of(bench.job).members["n1"].exit
    assert record.detail.startswith("cannot be resumed: cuda-checkpoint restore")
    assert not [pid for pid in marked(str(bench.ticks)) if alive(pid)]


def test_cancelled_while_the_tool_hangs(cluster: Any) -> None:
    bench = Bench(cluster)
    bench.mode("hang checkpoint")
    bench.leader.suspend(bench.job)
    eventually(lambda: "checkpoint" in bench.actions)
    bench.leader.cancel(bench.job)
    bench.leader.wait(bench.job, JobStatus.CANCELLED)


def test_a_new_agent_finds_a_job_that_was_suspended_without_an_agent(cluster: Any) -> None:
    bench = Bench(cluster)
    bench.suspend()
    bench.agent.restart()
    before = len(bench.leader.syncs)
    eventually(lambda: len(bench.leader.syncs) > before)
    bench.leader.wait_phase("n1", Phase.SUSPENDED)
    bench.resume()
    assert bench.goes_on()
    eventually(lambda: bench.actions == ["lock", "checkpoint", "restore", "unlock"])


def test_without_a_gpu_open_it_is_a_freeze() -> None:
    assert cuda_checkpoint.may_suspend([], 0, 1) == "no process has a GPU open"
    assert cuda_checkpoint.may_suspend([1, 2], 0, 1) == "2 processes have a GPU open"
    assert cuda_checkpoint.may_suspend([1], 2, 1) == "not enough host memory for the GPUs' memory"
    assert cuda_checkpoint.may_suspend([1], 1, 1) == ""


def test_other_jobs_get_the_gpus_that_a_suspended_job_has_released(cluster: Any) -> None:
    """Copied to the host it lends its GPU, and comes back when that is free, not before."""
    bench = Bench(cluster)
    leader = bench.leader
    leader.suspend(bench.job, gives_way=True)
    eventually(lambda: leader.run_of(bench.job).is_away, "it has left its GPU")
    assert bench.actions == ["lock", "checkpoint"]
    gate = bench.folder / "gate"
    script = f"#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.02; done\n"
    other = leader.submit(Work(script=script.encode()))
    leader.place(other, ("n1",))
    eventually(lambda: any(each.phase is Phase.RUNNING for each in leader.held("n1")))
    bench.resume()
    size = bench.ticks.stat().st_size
    bench.agent.restart()
    gate.touch()
    leader.wait(other, JobStatus.COMPLETED)
    assert bench.ticks.stat().st_size == size
    assert leader.job(bench.job).status is JobStatus.SUSPENDED
    bench.resume()
    assert bench.goes_on()
    eventually(lambda: bench.actions == ["lock", "checkpoint", "restore", "unlock"])
    assert leader.job(bench.job).runs == 1


def test_a_frozen_job_with_a_gpu_open_releases_nothing_and_is_requeued(cluster: Any) -> None:
    bench = Bench(cluster, SuspendLevel.FREEZE)
    bench.leader.suspend(bench.job, gives_way=True)
    requeued = bench.leader.wait(bench.job, JobStatus.PENDING)
    assert (requeued.preemptions, requeued.failures) == (1, 0)
    assert not [pid for pid in marked(str(bench.ticks)) if alive(pid)]


def test_a_job_without_a_gpu_open_releases_its_gpus_by_a_freeze(calm: Any) -> None:
    leader = calm.leader
    job = leader.submit(Work(script=b"#!/bin/sh\nsleep 100\n"), grace_s=100.0)
    leader.place(job, ("n1",))
    leader.wait_phase("n1", Phase.RUNNING)
    leader.suspend(job, gives_way=True)
    eventually(lambda: leader.run_of(job).is_away, "it has left its GPU")
    other = leader.submit(Work(script=b"#!/bin/sh\nsleep 100\n"))
    leader.place(other, ("n1",))
    leader.wait_phase("n1", Phase.RUNNING)
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)  # at once: its grace is far longer than this waits
    assert leader.job(other).status is JobStatus.RUNNING
