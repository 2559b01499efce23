"""Jobs that give way by a suspension give their GPUs up and resume where they were."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

COUNTS = """k=0
while [ $k -lt 20 ]; do
    k=$((k+1)); echo $k; sleep 0.05
    [ $k -ne 10 ] || while [ ! -e {gate} ]; do sleep 0.05; done
done
"""


@pytest.fixture(scope="module")
def lending() -> Iterator[LocalCluster]:
    """One node of two GPUs; the shorter job goes first."""
    shorter = {"policy": "srtf", "preempt_mode": "suspend"}
    with LocalCluster(nodes=1, gpus="2:v100", round=shorter) as running:
        yield running


def test_a_suspended_job_gives_its_gpus_up_and_resumes_in_the_same_run(
    lending: LocalCluster,
) -> None:
    gate = lending.folder / "gate"
    counting = lending.submit(COUNTS.format(gate=gate), gpus="2", time="1h")
    eventually("it counts", lambda: "3" in lending.output(counting).split())
    rival = lending.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done", gpus="2", time="10m")
    lending.until(rival, "RUNNING")
    assert lending.job(counting).state == "SUSPENDED"
    assert eventually("it says why", lambda: lending.job(counting).reason).startswith("Resources")
    refused = lending.run("resume", str(counting))
    assert refused.returncode == 1
    assert "others have its GPUs" in refused.stderr
    gate.touch()
    lending.until(rival, "COMPLETED")
    ended = lending.until(counting, "COMPLETED")
    assert lending.output(counting).split() == [str(k + 1) for k in range(20)]
    assert (ended.starts, ended.preemptions >= 1, ended.failures) == (1, True, 0)


def test_a_suspended_job_without_gpus_is_cancelled_at_once(lending: LocalCluster) -> None:
    away = lending.submit("sleep 600", gpus="2", grace="5m", time="1h")
    lending.until(away, "RUNNING")
    rival = lending.submit("sleep 600", gpus="2", time="10m")
    lending.until(rival, "RUNNING")
    lending.until(away, "SUSPENDED")
    lending.cli("cancel", str(away))
    lending.until(away, "CANCELLED")
    assert lending.job(rival).starts == 1
    lending.cli("cancel", str(rival))
    lending.until(rival, "CANCELLED")


def test_a_restarted_daemon_knows_which_jobs_gave_their_gpus_up(lending: LocalCluster) -> None:
    away = lending.submit("sleep 600", gpus="2", time="1h")
    lending.until(away, "RUNNING")
    gate = lending.folder / "gate2"
    rival = lending.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done", gpus="2", time="10m")
    lending.until(rival, "RUNNING")
    lending.until(away, "SUSPENDED")
    lending.cli("hold", str(away))
    lending.kill("daemon")
    lending.start_daemon()
    assert eventually("it answers", lambda: lending.job(away)).state == "SUSPENDED"
    gate.touch()
    lending.until(rival, "COMPLETED")
    assert lending.job(away).state == "SUSPENDED"
    lending.cli("release", str(away))
    again = lending.until(away, "RUNNING")
    assert again.starts == 1
    lending.cli("cancel", str(away))
    lending.until(away, "CANCELLED")


def test_a_cooperative_job_gives_way_by_a_requeue(lending: LocalCluster) -> None:
    polite = lending.submit(
        "trap 'exit 143' TERM; while :; do sleep 0.05; done",
        gpus="2",
        suspend="cooperative",
        time="1h",
    )
    lending.until(polite, "RUNNING")
    rival = lending.submit("sleep 600", gpus="2", time="10m")
    lending.until(rival, "RUNNING")
    waiting = lending.until(polite, "PENDING")
    assert (waiting.preemptions, waiting.failures) == (1, 0)
    for job in (polite, rival):
        lending.cli("cancel", str(job))
        lending.until(job, "CANCELLED")


FORGETS = """
import time
from dlsched.job import attach
with attach() as job:
    while job.step():
        time.sleep(0.05)
"""


def test_a_job_that_saves_nothing_is_told_so_before_it_is_stopped(lending: LocalCluster) -> None:
    file = lending.folder / "forgets.py"
    file.write_text(FORGETS)
    job = lending.submit(f"exec {sys.executable} {file}", gpus="1", time="10m")
    complaint = "the script has registered no state: a stop loses all its steps"
    eventually("show says so", lambda: complaint in lending.cli("show", str(job)))
    assert "no state is registered with job.checkpoint" in lending.output(job)
    lending.cli("cancel", str(job))
    lending.until(job, "CANCELLED")


SLOW_TO_SAVE = """
import time
from dlsched.job import attach

def save(file):
    time.sleep(2)
    file.write(b"x")

with attach(every_s=None) as job:
    job.checkpoint.register("x", save=save, load=lambda file: file.read())
    print("from", job.restore(), flush=True)
    job.step()
    job.save()
    while job.step():
        time.sleep(0.05)
"""


def test_a_job_whose_checkpoints_outlast_its_grace_gets_a_longer_one(
    lending: LocalCluster,
) -> None:
    file = lending.folder / "slow_to_save.py"
    file.write_text(SLOW_TO_SAVE)
    job = lending.submit(f"exec {sys.executable} {file}", gpus="1", grace="1s", time="10m")
    longer = re.compile(r"grace 1 s -> (\d+)")
    told = eventually("the grace is longer", lambda: longer.search(lending.cli("show", str(job))))
    assert int(told[1]) >= 9  # a save takes two seconds, or more
    assert "longer than the grace of 1 s at the start" in lending.output(job)
    lending.cli("requeue", str(job))

    def resumed() -> list[int]:
        lines = lending.output(job).splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("from ")]

    eventually("it begins again", lambda: len(resumed()) == 2)
    assert resumed()[1] > 1  # not from the checkpoint of its first step
    lending.cli("cancel", str(job))
    lending.until(job, "CANCELLED")
