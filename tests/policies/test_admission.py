"""What may enter the queue: load thresholds and quotas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.units import Units
from dlsched.policies.registry import make


def admitted(
    lab: Any,
    name: str,
    *,
    active: list[int],
    queue: list[int],
    cluster: str = "1x4",
    **options: object,
) -> tuple[list[bool], dict[int, str]]:
    """The jobs of the queue that enter; rows of the queue follow those of the active ones."""
    ctx = lab.context(cluster, [*active, *queue])
    ctx.active = np.arange(len(active))
    rows = np.arange(len(active), len(active) + len(queue))
    accepted, refused = make("admission", name, options).admit(Units(ctx.table, rows, 0.0), ctx)
    return accepted.tolist(), {row: str(why) for row, why in refused.items()}


def test_the_threshold_is_tested_before_the_addition(lab: Any) -> None:
    # Blox (EuroSys 2024), load threshold: 0, 2, 4 <= 4.8 < 6
    accepted, refused = admitted(
        lab, "load-threshold", active=[], queue=[2, 2, 2, 2, 2], threshold=1.2
    )
    assert accepted == [True, True, True, False, False]
    assert "the limit is 4.8 of 4" in refused[3]


@pytest.mark.parametrize(
    ("active", "queue", "threshold", "expected"),
    [
        ([4], [1, 1], 1.0, [True, False]),
        ([5], [1], 1.0, [False]),
        ([], [9, 1], 1.0, [True, False]),
        ([], [4, 1, 1], 1.0, [True, True, False]),
        ([1], [1, 1], 0.0, [False, False]),
        ([], [1, 1], 0.0, [True, False]),
    ],
)
def test_the_load_is_that_of_admitted_unfinished_jobs(
    lab: Any, active: list[int], queue: list[int], threshold: float, expected: list[bool]
) -> None:
    accepted, _ = admitted(lab, "load-threshold", active=active, queue=queue, threshold=threshold)
    assert accepted == expected


def test_the_threshold_counts_the_gpus_in_service(lab: Any) -> None:
    ctx = lab.context("2x4", [4, 4, 1])
    ctx.active = np.arange(1)
    ctx.occupancy.set_service(1, serving=False)
    part = make("admission", "load-threshold", {"threshold": 1.0})
    accepted, _ = part.admit(Units(ctx.table, np.array([1, 2]), 0.0), ctx)
    assert accepted.tolist() == [True, False]


def test_admission_keeps_the_order_of_arrival(lab: Any) -> None:
    jobs = [(0, 4, 100), (1, 4, 100), (2, 1, 10)]
    result = lab.run(jobs, "first-fit", admission="load-threshold", options=("threshold=1",))
    # A fills the cluster; B may overshoot; C waits outside until A has ended
    assert result.jobs.first_start_time.tolist() == [0, 100, 200]


def test_a_quota_per_user_does_not_block_other_users(lab: Any) -> None:
    accepted, refused = admitted_with_quota(lab, [2], [2, 1, 2], [0, 0, 0, 1], {"user": 3})
    assert accepted == [False, False, True]
    assert refused[1] == "Quota: user ann: 2 of 3 GPUs in the queue"
    assert refused[2].startswith("Quota"), "jobs of one owner enter in order"


def admitted_with_quota(
    lab: Any, active: list[int], queue: list[int], owner: list[int], quota: dict[str, float]
) -> tuple[list[bool], dict[int, str]]:
    ctx = lab.context("1x8", [*active, *queue])
    ctx.active = np.arange(len(active))
    for kind in quota:
        getattr(ctx.table, kind)[:] = owner
    ctx.table.names |= {"user": ("ann", "bob"), "vc": ("red", "blue")}
    rows = np.arange(len(active), len(active) + len(queue))
    accepted, refused = make("admission", "quota", quota).admit(Units(ctx.table, rows, 0.0), ctx)
    return accepted.tolist(), {row: str(why) for row, why in refused.items()}


@pytest.mark.parametrize("kind", ["user", "vc"])
def test_a_job_larger_than_its_quota_is_refused_for_good(lab: Any, kind: str) -> None:
    accepted, refused = admitted_with_quota(lab, [], [4, 2], [0, 0], {kind: 3})
    assert accepted == [False, True]
    assert refused[0].startswith("Never: asks for 4 GPUs, the quota of ")


def test_a_quota_ends_when_its_jobs_do(lab: Any) -> None:
    trace = lab.trace([(0, 2, 10), (0, 2, 10), (0, 2, 10)], user=["u", "u", "v"])
    result = lab.run(trace, admission="quota", options=("admission.user=2",))
    assert result.jobs.first_start_time.tolist() == [0, 10, 0]


def test_jobs_without_an_owner_are_bound_by_nothing(lab: Any) -> None:
    accepted, _ = admitted_with_quota(lab, [4], [4, 4], [-1, -1, -1], {"user": 1, "vc": 1})
    assert accepted == [True, True]


@pytest.mark.parametrize("clock", ["rounds", "events"])
def test_refused_jobs_do_not_hold_up_a_run(lab: Any, clock: str) -> None:
    trace = lab.trace([(0, 4, 10), (0, 1, 10)], user=["u", "u"])
    result = lab.run(trace, admission="quota", options=("admission.user=2",), clock=clock)
    assert result.jobs.status.tolist() == ["refused", "completed"]
    assert not result.warnings
