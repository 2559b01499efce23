"""Virtual clusters: nodes of their own, quotas, and borrowing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster import Cluster, Node, VirtualCluster
from dlsched.policies.registry import make


def quotas(*vcs: VirtualCluster, nodes: int = 2) -> Cluster:
    return Cluster([Node(name=f"n{k}", gpus=4) for k in range(nodes)], vcs)


RED = VirtualCluster(name="red", gpus=4, guaranteed=4)
BLUE = VirtualCluster(name="blue", gpus=4, guaranteed=4)
LENDING = (
    VirtualCluster(name="red", gpus=4, guaranteed=4, borrow=True),
    VirtualCluster(name="blue", gpus=4, guaranteed=4, borrow=True),
)


def test_entitlements_follow_the_cluster_file(lab: Any) -> None:
    cluster = quotas(RED, VirtualCluster(name="blue", gpus=4, guaranteed=2, borrow=True))
    ctx = lab.context(cluster, [1])
    ctx.table.names["vc"] = ("blue", "other", "red")
    entitlements = make("fairness", "vc-quota").entitle(ctx.units, ctx)
    assert entitlements is not None
    assert entitlements.entitlement.tolist() == [2, np.inf, 4]
    assert entitlements.ceiling.tolist() == [np.inf, np.inf, 4]


def test_without_quotas_there_is_nothing_to_divide(lab: Any) -> None:
    ctx = lab.context("1x4", [1])
    ctx.table.names["vc"] = ("red",)
    assert make("fairness", "vc-quota").entitle(ctx.units, ctx) is None


@pytest.mark.parametrize("policy", ["fifo", "first-fit", "las", "srtf", "easy"])
def test_a_quota_holds_although_gpus_are_idle(lab: Any, policy: str) -> None:
    trace = lab.trace([(0, 4, 100), (0, 4, 100)], vc=["red", "red"])
    result = lab.run(trace, policy, cluster=quotas(RED, BLUE))
    assert sorted(result.jobs.first_start_time.tolist()) == [0, 100]
    assert np.max(result.timeline.allocated_gpus) == 4


@pytest.mark.parametrize("policy", ["fifo", "first-fit", "las", "easy"])
def test_a_borrower_uses_what_others_leave_idle(lab: Any, policy: str) -> None:
    trace = lab.trace([(0, 4, 100), (0, 4, 100)], vc=["red", "red"])
    result = lab.run(trace, policy, cluster=quotas(*LENDING))
    assert result.jobs.first_start_time.tolist() == [0, 0]


@pytest.mark.parametrize("policy", ["las", "srtf", "multi-queue"])
def test_a_preemptive_policy_takes_borrowed_gpus_back(lab: Any, policy: str) -> None:
    trace = lab.trace([(0, 4, 100), (0, 4, 100), (10, 4, 100)], vc=["red", "red", "blue"])
    result = lab.run(trace, policy, cluster=quotas(*LENDING), clock="events")
    assert result.jobs.first_start_time[2] == 10
    assert result.jobs.preemptions.sum() == 1


def test_partitions_are_hard_walls(lab: Any) -> None:
    cluster = Cluster(
        [Node(name="n0", gpus=4), Node(name="n1", gpus=4)],
        [VirtualCluster(name="red", nodes=("n0",))],
    )
    trace = lab.trace([(0, 4, 100), (0, 4, 100), (0, 4, 100)], vc=["red", "red", "other"])
    result = lab.run(trace, cluster=cluster)
    assert result.jobs.first_start_time.tolist() == [0, 100, 0]
    assert result.segments is not None
    assert set(result.segments.node[result.segments.job != 2].tolist()) == {0}


def test_a_partition_of_one_tenant_is_not_the_whole_cluster(lab: Any) -> None:
    cluster = Cluster(
        [Node(name="n0", gpus=4), Node(name="n1", gpus=4)],
        [VirtualCluster(name="red", nodes=("n0",))],
    )
    trace = lab.trace([(0, 4, 100), (0, 4, 100)], vc=["red", "red"])
    for policy in ("fifo", "first-fit", "las", "easy", "conservative", "tiresias"):
        result = lab.run(trace, policy, cluster=cluster)
        assert np.max(result.timeline.allocated_gpus) == 4, policy


def test_quotas_can_be_switched_off(lab: Any) -> None:
    trace = lab.trace([(0, 4, 100), (0, 4, 100)], vc=["red", "red"])
    result = lab.run(trace, cluster=quotas(RED, BLUE), fairness="none")
    assert result.jobs.first_start_time.tolist() == [0, 0]
