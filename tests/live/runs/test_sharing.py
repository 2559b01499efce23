"""Two virtual clusters on real processes: a borrower gives way, and its next start is predicted."""

from __future__ import annotations

import json

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

SLEEP = "exec sleep 600"


def test_a_borrower_gives_way_and_its_next_start_is_predicted() -> None:
    policy = {"policy": "srtf", "interval_s": 0.5, "predict_every_s": 0.5}
    with LocalCluster(nodes=2, round=policy) as cluster:
        for name in ("speech", "vision"):
            words = ("--gpus", "4", "--borrow")
            assert cluster.cli("admin", "vc", "add", name, *words).startswith(f"vc {name}: added")
        wishes = {"gpus": "4", "grace": "5", "expected": "30m"}
        own = cluster.submit(SLEEP, vc="speech", **wishes | {"expected": "10m"})
        lent = cluster.submit(SLEEP, vc="speech", **wishes)
        for job in (own, lent):
            cluster.until(job, "RUNNING")
        owner = cluster.submit(SLEEP, vc="vision", **wishes | {"expected": "60m"})
        cluster.until(owner, "RUNNING")
        back = cluster.until(lent, "PENDING")
        assert back.preemptions == 1
        assert back.lost_s > 0  # a sleep saves nothing
        assert cluster.job(own).state == "RUNNING"

        def told() -> dict[str, object] | None:
            rows = json.loads(cluster.cli("queue", "--start", "--json"))["jobs"]
            [found] = [row for row in rows if row["job_id"] == lent]
            return found if found["predicted_start_at"] else None

        row = eventually("its next start is predicted", told)
        assert str(row["predicted_basis"]).startswith("expected times")
        cluster.cli("admin", "snapshot", "-o", "now")
        out = cluster.cli("replay", "--snapshot", "now", "--policy", "fifo,las")
        assert [line.split()[0] for line in out.splitlines()[2:]] == ["as", "fifo", "las"]
        used = json.loads(cluster.cli("admin", "vc", "list", "--json"))["tenants"]
        assert {each["name"]: each["gpus_now"] for each in used} == {"speech": 4, "vision": 4}
        cluster.cli("admin", "quota", "add", "vc", "speech", "--gpus", "4")
        eventually(
            "the quota is the reason", lambda: cluster.job(lent).reason.startswith("QOSGrpGRES:")
        )
        cluster.cli("cancel", str(own))
        cluster.until(lent, "RUNNING")
        cluster.cli("cancel", str(lent), str(owner))
        for job in (own, lent, owner):
            cluster.until(job, "CANCELLED")
