"""Deadlines under Chronus, from the command line: leases for those that can be kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster
from tests.live.conftest import SELDOM_POSTGRES, database_of

pytestmark = [pytest.mark.slow]


@pytest.fixture(params=SELDOM_POSTGRES[:1])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A node of two GPUs under Chronus, whose slots are as short as its rounds."""
    options = ["slot_s=1", "lease_s=60", "overhead_s=0"]
    rounds = {"policy": "chronus", "interval_s": 1, "options": options}
    with LocalCluster(database_of(request), nodes=1, gpus="2:v100", round=rounds) as running:
        yield running


def test_a_job_with_a_lease_takes_gpus_from_one_without_deadline(cluster: LocalCluster) -> None:
    def submitted(*words: str) -> int:
        done = cluster.run("submit", "--parsable", "--gpus", "2", *words)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    whenever = submitted("--expected", "30m", "--", "sleep", "600")
    cluster.until(whenever, "RUNNING")
    urgent = submitted("--expected", "1m", "--deadline", "now+8minutes", "--", "true")
    assert cluster.until(urgent, "COMPLETED", "FAILED", within=400).state == "COMPLETED"
    cluster.cli("cancel", str(whenever))
