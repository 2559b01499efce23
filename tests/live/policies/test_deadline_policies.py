"""Deadlines on real nodes, typed as users type them: each policy for them, on one cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

HOLDS = "trap 'exit 143' TERM; sleep 600 & wait"  # until it is cancelled


@pytest.fixture(scope="module")
def deadlines() -> Iterator[LocalCluster]:
    """One node of four GPUs."""
    with LocalCluster(nodes=1, round={"predict_every_s": 0}) as running:
        yield running


def submitted(cluster: LocalCluster, *words: str) -> tuple[int, str]:
    """A typed job of four GPUs: its id, and what was said on the side."""
    flags = ("--parsable", "--gpus", "4", "--output", "/dev/null")
    done: subprocess.CompletedProcess[str] = cluster.run("submit", *flags, *words)
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


@pytest.mark.parametrize("policy", ["edf", "karuna"])
def test_a_job_with_a_deadline_takes_the_gpus_of_a_job_without_and_gives_them_back(
    deadlines: LocalCluster, policy: str
) -> None:
    deadlines.cli("admin", "set-policy", policy)
    free, said = submitted(deadlines, "--expected", "10m", "--", "sh", "-c", HOLDS)
    assert said == ""
    deadlines.until(free, "RUNNING")
    wish, _ = submitted(
        deadlines, *("--expected", "2s", "--deadline", "now+5min", "--best-effort"), "--", "true"
    )
    due, said = submitted(
        deadlines, *("--expected", "2s", "--sla", "soft:5m,10,5m"), "--", "sleep", "1"
    )
    assert "does not know of deadlines" not in said
    done = deadlines.until(due, "COMPLETED")
    kept = deadlines.job(due)
    assert kept.deadline_at is not None
    assert done.ended_at is not None
    assert done.ended_at <= kept.deadline_at
    assert deadlines.job(free).preemptions >= 1
    deadlines.until(free, "RUNNING")  # again, before the job whose deadline is a wish
    assert deadlines.job(wish).state == "PENDING"
    deadlines.cli("cancel", str(wish))
    deadlines.cli("cancel", str(free))
    deadlines.until(free, "CANCELLED")


def test_chronus_starts_the_admitted_job_first_and_fifo_says_that_it_does_not_plan(
    deadlines: LocalCluster,
) -> None:
    deadlines.cli("admin", "set-policy", "fifo")
    first, _ = submitted(deadlines, "--expected", "2m", "--", "sh", "-c", HOLDS)
    deadlines.until(first, "RUNNING")
    free, _ = submitted(deadlines, "--expected", "2m", "--", "sh", "-c", HOLDS)
    due, said = submitted(
        deadlines, "--expected", "2m", "--deadline", "now+2hours", "--", "sleep", "1"
    )
    assert "policy fifo does not know of deadlines, and does not plan for them" in said
    flags = ("-o", "lease_s=600", "-o", "slot_s=1", "-o", "plan=greedy")
    deadlines.cli("admin", "set-policy", "chronus", *flags)
    deadlines.cli("cancel", str(first))
    deadlines.until(due, "COMPLETED")
    assert deadlines.until(free, "RUNNING").state == "RUNNING"
    started = [deadlines.job(number).first_started_at for number in (due, free)]
    assert None not in started
    assert started == sorted(started, key=float)  # type: ignore[arg-type]  # none is None
    deadlines.cli("cancel", str(free))
