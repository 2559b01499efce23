"""Elastic jobs grow no further than the cluster and the quotas of their tenants."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.tenant_limits import TenantLimits
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.records import JobBody, JobSpec
from dlsched.db.tenants import Quota


def spec(user: str) -> JobSpec:
    return JobSpec(body=JobBody(name="x"), user=user, uid=1, submitted_at=0.0)


def test_policies_see_elastic_jobs_bounded_by_the_cluster(live: Any) -> None:
    lab = live.LiveLab((4, 4))
    asked: list[dict[str, Any]] = [
        {"max_gpus": 100}, {"max_gpus": 8}, {"max_gpus": 3}, {"adaptive": True},
        {"fixed_batch": True}, {"gpus": 16, "max_gpus": 100}, {},
    ]  # fmt: skip
    for each in asked:
        lab.submit(0.0, **{"gpus": 1, **each})
    seen = take_snapshot(lab.state, "full", 5.0).columns["max_gpus"]
    assert seen.tolist() == [8, 8, 3, 8, 8, 16, -1]  # a gang that does not fit waits as it is
    assert lab.live.jobs["max_gpus"][0] == 100
    lab.add_node("n3", 100)
    seen = take_snapshot(lab.state, "full", 6.0).columns["max_gpus"]
    assert seen.tolist() == [100, 8, 3, 108, 108, 100, -1]


def test_the_rest_of_a_quota_is_divided_evenly() -> None:
    jobs, limits = JobColumns(), TenantLimits()
    whole = {"gpu_share": 1.0}
    running = {"phase": c.HOLDING, "max_gpus": 100, "min_gpus": 1, **whole}
    jobs.append([1], [], [1], gang=1, gpus_now=3, **running)
    jobs.append([2], [], [1], gang=2, max_gpus=100, min_gpus=1, **whole)
    jobs.append([3], [], [1], gang=2, gpus_now=2, phase=c.HOLDING, **whole)  # not elastic
    jobs.append([4], [], [1], gang=1, gpus_now=1, **running)  # another's
    limits.change(
        {("user", "ann"): Quota(kind="user", name="ann", gpus=12)},
        {},
        [(job, spec("ann" if job < 4 else "bob")) for job in (1, 2, 3, 4)],
    )
    eligible = np.array([False, True, False, False])
    assert limits.apply(jobs, eligible, (), {}) == {}
    assert limits.most == {1: 3 + 2, 2: 2 + 2}  # of 12 - 7 left, 2 each
    limits.change({("user", "ann"): Quota(kind="user", name="ann", gpus=4)}, {}, [(1, spec("ann"))])
    limits.apply(jobs, eligible, (), {})
    assert limits.most == {1: 4}
    limits.change({}, {}, [])
    limits.apply(jobs, eligible, (), {})
    assert limits.most == {}
