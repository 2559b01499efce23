"""What `whatif` predicts is then done, on a real cluster, and happens within its interval."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from dlsched.client.job_records import Job
from dlsched.torture.local_cluster import LocalCluster, eventually


@pytest.fixture
def one_node() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, round={"predict_every_s": 0.3}) as running:
        yield running


def asked(cluster: LocalCluster, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.cli("whatif", *words, "--json"))
    return found


def moments(outcome: dict[str, Any], name: str) -> list[float]:
    """A predicted moment's interval, in seconds since the epoch."""
    names = (f"{name}_p10_at", f"{name}_p90_at")
    return [datetime.fromisoformat(outcome[key]).timestamp() for key in names]


def came_true(job: Job, outcome: dict[str, Any]) -> None:
    """A job has started and ended within the predicted intervals."""
    for name, at in (("start", job.first_started_at), ("end", job.ended_at)):
        least, most = moments(outcome, name)
        assert at is not None
        assert least <= at <= most, (name, least, at, most, outcome)


@pytest.mark.slow
def test_predicted_alternatives_come_true_when_they_are_done(one_node: LocalCluster) -> None:
    cluster = one_node
    long = cluster.submit("sleep 20", gpus="4", expected="20s")
    cluster.until(long, "RUNNING")
    mine = cluster.submit("sleep 6", gpus="4", expected="6s")

    whole, half = asked(cluster, str(mine), "--gpus", "2")["outcomes"]
    assert (whole["gpus"], half["gpus"]) == (4, 2)
    assert "as long on 2 GPUs as on 4" in half["basis"]
    # beside it as it is there is no room for another one, so that one would wait for its end
    [behind] = asked(cluster, "--gpus", "2", "--expected", "6s")["outcomes"]
    assert moments(behind, "start")[0] > moments(whole, "start")[0]

    cluster.cli("update", str(mine), "--gpus", "2")
    [beside] = asked(cluster, "--gpus", "2", "--expected", "6s")["outcomes"]
    other = cluster.submit("sleep 6", gpus="2", expected="6s")
    came_true(cluster.until(mine, "COMPLETED"), half)
    came_true(cluster.until(other, "COMPLETED"), beside)

    # the first predictions, which the daemon recorded by itself, came true as well
    def compared() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(cluster.cli("admin", "calibration", "--json"))
        groups = found["by_class"]
        done: bool = sum(each["ended"] for each in groups) == 2
        return found if done else None

    found = eventually("both ends are compared", compared)
    assert found is not None
    assert [each["policy"] for each in found["by_policy"]] == ["fifo"]
    assert {each["start_within"] for each in found["by_class"]} == {1.0}
    assert {each["class"].partition(", ")[2] for each in found["by_class"]} == {"expected time"}
