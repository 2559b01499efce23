"""Gandiva on real processes: turns by freezing, and packs that stay only while they pay."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from dlsched.client.daemon_client import filter_of
from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

# A step takes four times as long while another training works beside it, as one does that finds its
# data thrown out of the caches. How it knows: each touches a file of its own at every step.
TRAINING = """
import os, sys, time, uuid
from dlsched.job import attach

folder, burdens = sys.argv[1], sys.argv[2] == "burdens"
mine = os.path.join(folder, uuid.uuid4().hex)

def is_beside_another():
    ages = (time.time() - entry.stat().st_mtime for entry in os.scandir(folder)
            if entry.path != mine)
    return any(age < 0.5 for age in ages)

with attach() as job:
    for step in range(job.restore(), 1_000_000):
        open(mine, "w").close()
        time.sleep(0.2 if burdens and is_beside_another() else 0.05)
        if not job.step(loss=1.0 / (step + 1)):
            break
"""


@pytest.fixture(scope="module")
def one_gpu() -> Iterator[LocalCluster]:
    """One GPU; jobs give way by a suspension, turns are of two seconds."""
    policy = {"policy": "gandiva", "preempt_mode": "suspend", "interval_s": 0.5}
    with LocalCluster(nodes=1, gpus="1:v100", round=policy) as running:
        words = ("slice_s=2", "window_s=5", "retry_s=3600")
        given = [word for each in words for word in ("-o", each)]
        running.cli("admin", "set-policy", "gandiva", *given)
        (running.folder / "train.py").write_text(TRAINING)
        yield running


def states(cluster: LocalCluster, *jobs: int) -> tuple[str, ...]:
    return tuple(cluster.job(job).state for job in jobs)


def train(cluster: LocalCluster, kind: str) -> int:
    """Submit a training that says what it uses of a GPU, and may share one."""
    (beats := cluster.folder / "beats").mkdir(exist_ok=True)
    run = (sys.executable, str(cluster.folder / "train.py"), str(beats), kind)
    given = ("--gpus", "1", "--share", "0.5", "--set", "gpu_util=30", "--json", "--", *run)
    [submitted] = json.loads(cluster.cli("submit", *given))["jobs"]
    return int(submitted["job_id"])


def end(cluster: LocalCluster, *jobs: int) -> None:
    cluster.cli("cancel", *map(str, jobs))
    for job in jobs:
        cluster.until(job, "CANCELLED")


def test_two_jobs_of_a_gpu_alternate_and_neither_begins_anew(one_gpu: LocalCluster) -> None:
    counts = "k=0; while [ $k -lt 120 ]; do k=$((k+1)); echo $k; sleep 0.05; done"
    jobs = [one_gpu.submit(counts, gpus="1") for _ in range(2)]
    for runs, waits in (jobs, jobs[::-1], jobs):
        eventually(
            f"{runs} has its turn, and {waits} waits",
            lambda runs=runs, waits=waits: (
                states(one_gpu, runs)[0] == "RUNNING"
                and states(one_gpu, waits)[0] in ("SUSPENDED", "PENDING")
            ),
        )
    for job in jobs:
        ended = one_gpu.until(job, "COMPLETED")
        assert ended.starts == 1, one_gpu.story(job)
        assert one_gpu.output(job).split() == [str(k + 1) for k in range(120)]
    assert all(one_gpu.job(job).preemptions >= 1 for job in jobs)


class Together:
    """Two jobs that may share a GPU: for how long they do so, in one piece.

    At each turn both hold the GPU for a moment: one does already, the other is not frozen yet. So
    what counts is the work that both have done since the last preemption.
    """

    def __init__(self, cluster: LocalCluster, jobs: list[int]) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._began: tuple[list[int], list[int]] | None = None  # preemptions, and steps

    def steps(self) -> int:
        """The steps of both, of the slower one; 0 while they do not share."""
        with self._cluster.client() as client:
            shown = client.show(filter_of(list(map(str, self._jobs))))
        preempted = [each.job.preemptions for each in shown]
        done = [int(each.job.progress or 0) for each in shown]
        if not all(each.job.state == "RUNNING" and each.beside for each in shown):
            self._began = None
            return 0
        if self._began is None or self._began[0] != preempted:
            self._began = (preempted, done)
        return min(now - before for before, now in zip(self._began[1], done, strict=True))


def test_a_pack_that_pays_stays(one_gpu: LocalCluster) -> None:
    jobs = [train(one_gpu, "no burden") for _ in range(2)]
    together = Together(one_gpu, jobs)
    eventually("they share for two windows", lambda: together.steps() > 220, within=180)
    end(one_gpu, *jobs)


def test_a_pack_that_does_not_pay_is_undone(one_gpu: LocalCluster) -> None:
    jobs = [train(one_gpu, "burdens") for _ in range(2)]
    together = Together(one_gpu, jobs)
    eventually("they are tried", lambda: together.steps() > 5, within=180)
    eventually("they are apart again", lambda: together.steps() == 0, within=180)
    before = [one_gpu.job(job).preemptions for job in jobs]

    def have_had_turns() -> bool:
        assert together.steps() <= 5, "they are tried again"
        now = [one_gpu.job(job).preemptions for job in jobs]
        return all(one > other + 2 for one, other in zip(now, before, strict=True))

    eventually("both have had several turns", have_had_turns)
    end(one_gpu, *jobs)
