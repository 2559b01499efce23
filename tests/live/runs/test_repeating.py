"""`--retries`: a gang that fails starts again on its own GPUs, and keeps its place."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.client.daemon_client import filter_of
from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of

PROGRAM = Path(__file__).with_name("failing_program.py")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=SELDOM_POSTGRES)
def full(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Two nodes of two GPUs, which a gang of these tests fills."""
    with LocalCluster(database_of(request), nodes=2, gpus="2:v100") as running:
        yield running


class Gang:
    """A gang on all GPUs of which rank 3 fails once, and a job of a higher rank that waits."""

    def __init__(self, cluster: LocalCluster, *options: str) -> None:
        self.cluster = cluster
        self._gate = cluster.folder / f"gate-{time.monotonic_ns()}"
        program = [sys.executable, str(PROGRAM), "fail", "3", "10", str(self._gate)]
        words = ["--launch", "gpu", "-N", "2", "--gpus-per-node", "2", "--retries", "2"]
        out = ["-o", f"{cluster.out}/%j.%t.out"]
        self.job = int(cluster.cli("submit", "--parsable", *words, *options, *out, "--", *program))
        cluster.until_begun(self.job)
        self.rival = cluster.submit("true", gpus="4", priority="100")
        self._failed = cluster.folder / f"went-wrong-{self.job}"

    def shown(self) -> dict[str, Any]:
        """What `show --json` tells of the gang."""
        text = self.cluster.cli("show", str(self.job), "--json")
        found: dict[str, Any] = json.loads(text)["jobs"][0]
        return found

    def events(self) -> list[str]:
        """The kinds of the gang's events."""
        return [event["kind"] for event in self.shown()["events"]]

    def fail(self) -> None:
        """Let its rank fail, and wait until it has."""
        self._gate.touch()
        eventually("rank 3 fails", self._failed.exists)

    def ends_in_place(self) -> dict[str, Any]:
        """Check that its second run had the same GPUs before the rival got them."""
        ended = self.cluster.until(self.job, "COMPLETED", "FAILED")
        story = self.cluster.story(self.job)
        assert (ended.state, ended.starts, ended.failures) == ("COMPLETED", 2, 1), story
        assert (ended.preemptions, ended.migrations) == (0, 0)
        rival = self.cluster.until(self.rival, "COMPLETED")
        assert ended.ended_at is not None
        assert rival.started_at is not None
        assert rival.started_at >= ended.ended_at, story
        shown = self.shown()
        first, second = shown["runs"]
        assert first["end"].startswith("failed: ")
        assert "exit 1" in first["end"]
        assert first["nodes"] == second["nodes"]
        assert "restart" in self.events(), story
        assert "requeue" not in self.events(), story
        return shown


def test_a_gang_that_fails_starts_again_on_its_gpus_before_a_job_of_higher_rank(
    full: LocalCluster,
) -> None:
    gang = Gang(full)
    gang.fail()
    shown = gang.ends_in_place()
    cause = str(eventually("the cause is known", lambda: gang.shown().get("cause")))
    line = f"restarted in place after exit 1 on {[*shown['runs'][0]['nodes']][1]} (rank 3): "
    assert cause.startswith(line + "ValueError: shard 17 is truncated")
    assert line in full.cli("show", str(gang.job))


def test_a_job_may_wait_for_its_retry_in_the_queue(full: LocalCluster) -> None:
    gang = Gang(full, "--retry-elsewhere")
    gang.fail()
    ended = full.until(gang.job, "COMPLETED")
    rival = full.until(gang.rival, "COMPLETED")
    assert rival.started_at is not None
    assert ended.started_at is not None
    assert rival.started_at < ended.started_at
    assert (ended.starts, ended.failures) == (2, 1)
    assert "requeue" in gang.events()


def test_a_drained_node_is_left_at_the_retry(full: LocalCluster) -> None:
    gang = Gang(full)
    full.cli("drain", "n1", "--reason", "bad fan")
    gang.fail()
    assert full.until(gang.job, "PENDING").failures == 1
    full.cli("resume-node", "n1")
    assert full.until(gang.job, "COMPLETED").starts == 2


@pytest.mark.parametrize("which", ["daemon", "n2"])
def test_a_daemon_or_agent_that_dies_meanwhile_costs_no_place(
    full: LocalCluster, which: str
) -> None:
    gang = Gang(full)
    full.kill(which)
    gang.fail()
    if which == "daemon":
        full.start_daemon()
    else:
        full.start_agent(which)
    gang.ends_in_place()


def test_a_job_that_fails_at_once_pauses_before_it_is_tried_again(full: LocalCluster) -> None:
    job = full.submit("exit 3", retries="1")
    ended = full.until(job, "FAILED")
    assert (ended.starts, ended.failures) == (2, 1)
    with full.client() as client:
        (detail,) = client.show(filter_of([str(job)]))
    times = {event.kind: event.at for event in detail.events}
    assert "restart" not in times
    assert times["start"] - times["requeue"] > 0.9
