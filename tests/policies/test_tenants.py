"""Virtual clusters: nodes of their own, quotas, and borrowing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.core.errors import BadInput
from dlsched.core.walk.tenancy import Tenancy
from dlsched.policies.registry import make, names
from dlsched.policies.scheduling.conservative import Conservative


def quotas(*vcs: VirtualCluster, nodes: int = 2) -> Cluster:
    return Cluster([Node(name=f"n{k}", gpus=4) for k in range(nodes)], vcs)


RED = VirtualCluster(name="red", gpus=4, guaranteed=4)
BLUE = VirtualCluster(name="blue", gpus=4, guaranteed=4)
LENDING = (
    VirtualCluster(name="red", gpus=4, guaranteed=4, borrow=True),
    VirtualCluster(name="blue", gpus=4, guaranteed=4, borrow=True),
)
CLOCKS: list[dict[str, Any]] = [{"clock": "rounds", "round_s": 50}, {"clock": "events"}]


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


@pytest.mark.parametrize("clock", ["rounds", "events"])
@pytest.mark.parametrize("policy", names("scheduling"))
def test_a_job_that_its_tenant_refuses_keeps_no_gpu_from_others(
    lab: Any, policy: str, clock: str
) -> None:
    parts = ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")
    trace = lab.trace([(0, 4, 100)] * 3, vc=["red", "red", "other"])
    result = lab.run(trace, policy, cluster=quotas(RED), clock=clock, options=parts)
    first, second, other = result.jobs.first_start_time.tolist()
    assert sorted([first, second])[0] == other == 0
    assert max(first, second) >= 60  # one of them waits


@pytest.mark.parametrize("clock", CLOCKS)
def test_jobs_that_a_ceiling_refuses_keep_their_order(lab: Any, clock: dict[str, Any]) -> None:
    jobs = [(0, 4, 500), (0, 4, 500), (0, 4, 1000), (0, 4, 500)]
    trace = lab.trace(jobs, vc=["red", "red", "other", "red"])
    result = lab.run(trace, "conservative", cluster=quotas(RED), **clock)
    assert result.jobs.first_start_time.tolist() == [0, 500, 0, 1000]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_job_that_its_ceiling_never_admits_keeps_no_reservation_from_others(
    lab: Any, clock: dict[str, Any]
) -> None:
    jobs = [(0, 8, 500), (0, 4, 500), (0, 2, 1000), (0, 4, 500), (0, 4, 500)]
    trace = lab.trace(jobs, vc=["red", "red", "other", "red", "other"])
    result = lab.run(trace, "conservative", cluster=quotas(RED), **clock)
    assert result.jobs.first_start_time[1:].tolist() == [0, 0, 500, 1000]
    assert np.isnan(result.jobs.first_start_time[0])


def test_a_small_job_passes_one_that_its_ceiling_refuses(lab: Any) -> None:
    trace = lab.trace([(0, 2, 500), (0, 4, 500), (0, 2, 500)], vc=["red"] * 3)
    result = lab.run(trace, "conservative", cluster=quotas(RED), clock="events")
    assert result.jobs.first_start_time.tolist() == [0, 500, 0]


def test_ceilings_cost_few_plans_however_many_jobs_wait(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []  # by decision: how often it booked
    book, allocate = Conservative._book, Conservative.allocate

    def counted_book(*given: Any) -> None:
        passes[-1] += 1
        book(*given)

    def counted_decision(*given: Any) -> None:
        passes.append(0)
        allocate(*given)

    monkeypatch.setattr(Conservative, "_book", counted_book)
    monkeypatch.setattr(Conservative, "allocate", counted_decision)
    tenants = [VirtualCluster(name=name, gpus=4, guaranteed=4) for name in ("red", "blue")]
    # all are planned while another tenant has all GPUs, four at a time; then a ceiling holds
    trace = lab.trace(
        [(0, 16, 100), *[(0, 4, 100)] * 60], vc=["other", *["red", "blue", "red"] * 20]
    )
    result = lab.run(trace, "conservative", cluster=quotas(*tenants, nodes=4), clock="events")
    assert result.jobs.first_start_time[1::3].tolist() == list(range(100, 4100, 200))
    assert result.jobs.first_start_time[2::3].tolist() == list(range(100, 2100, 100))
    assert result.jobs.first_start_time[3::3].tolist() == list(range(200, 4200, 200))
    assert max(passes) <= len(tenants) + 1


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


# -- parts of quotas ------------------------------------------------------------------------------

# a lab of 8 GPUs with two teams, and another lab of 4
NESTED = (
    VirtualCluster(name="lab", gpus=8, guaranteed=8),
    VirtualCluster(name="red", gpus=4, guaranteed=4, borrow=True, parent="lab"),
    VirtualCluster(name="blue", gpus=4, guaranteed=4, borrow=True, parent="lab"),
    VirtualCluster(name="other", gpus=4, guaranteed=4, borrow=True),
)


def test_what_a_part_uses_counts_for_all_above_it(lab: Any) -> None:
    trace = lab.trace([(0, 4, 100)] * 3, vc=["red", "red", "red"])
    result = lab.run(trace, "first-fit", cluster=quotas(*NESTED, nodes=3))
    # red borrows blue's GPUs; the lab may not borrow, so the third waits though GPUs idle
    assert result.jobs.first_start_time.tolist() == [0, 0, 100]


def test_the_reason_names_the_quota_that_is_used_up(lab: Any) -> None:
    ctx = lab.context(quotas(*NESTED, nodes=3), [4, 4, 4], holding={0: {0: 15}, 1: {1: 15}})
    ctx.table.names["vc"] = ("blue", "red")
    ctx.table.vc[:] = [0, 1, 1]
    part = make("fairness", "vc-quota")
    tenancy = Tenancy(part.entitle(ctx.units, ctx), ctx.table, ctx.occupancy)
    assert str(tenancy.over_ceiling(2, 4)) == "Quota: vc lab: 8 of 8 GPUs used"


def test_borrowers_from_near_come_before_borrowers_from_far(lab: Any) -> None:
    lending = tuple(replace(vc, borrow=True) for vc in NESTED)
    ctx = lab.context(quotas(*lending, nodes=3), [4] * 6)
    ctx.table.names["vc"] = ("red", "other")
    ctx.table.vc[:] = [0, 0, 0, 1, 1, -1]
    part = make("fairness", "vc-quota")
    tenancy = Tenancy(part.entitle(ctx.units, ctx), ctx.table, ctx.occupancy)
    order = tenancy.entitled_first(np.array([2, 1, 0, 4, 3, 5]), reclaims=True)
    # inside their own: 2, 4 and 5 (of no tenant); 1 borrows inside the lab, 3 and 0 from far
    assert order.tolist() == [2, 4, 5, 1, 3, 0] or order.tolist() == [2, 4, 5, 1, 0, 3]


def test_borrowed_gpus_go_back_to_the_part_they_are_guaranteed_to(lab: Any) -> None:
    trace = lab.trace([(0, 4, 100), (0, 4, 100), (10, 4, 100)], vc=["red", "red", "blue"])
    result = lab.run(trace, "las", cluster=quotas(*NESTED), clock="events")
    assert result.jobs.first_start_time[2] == 10
    assert result.jobs.preemptions.sum() == 1


def test_a_job_larger_than_a_quota_above_is_refused(lab: Any) -> None:
    trace = lab.trace([(0, 12, 100)], vc=["red"])
    jobs = lab.run(trace, cluster=quotas(*NESTED, nodes=3)).jobs
    assert jobs.status.tolist() == ["refused"]
    assert "vc red may use 8" in jobs.reason[0]


@pytest.mark.parametrize(
    ("vcs", "message"),
    [
        ([VirtualCluster(name="a", gpus=1, parent="b")], "part of b, which does not exist"),
        (
            [
                VirtualCluster(name="a", gpus=1, guaranteed=1, parent="b"),
                VirtualCluster(name="b", gpus=1, guaranteed=1, parent="a"),
            ],
            "is a part of itself",
        ),
        (
            [
                VirtualCluster(name="a", gpus=4, guaranteed=4),
                VirtualCluster(name="b", gpus=5, guaranteed=5, parent="a"),
            ],
            "parts of vc a are guaranteed 5 GPUs, it has 4",
        ),
        (
            [
                VirtualCluster(name="a", nodes=("n0",)),
                VirtualCluster(name="b", gpus=4, guaranteed=4, parent="a"),
            ],
            "vc a has nodes of its own",
        ),
    ],
)
def test_parts_that_cannot_be_are_refused(vcs: list[VirtualCluster], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        quotas(*vcs)


small_trees = st.lists(st.integers(-1, 4), min_size=2, max_size=5)


@given(
    tree=small_trees,
    jobs=st.lists(
        st.tuples(st.integers(0, 200), st.integers(1, 4), st.integers(1, 300), st.integers(0, 4)),
        min_size=1,
        max_size=12,
    ),
    policy=st.sampled_from(["first-fit", "las", "srtf"]),
)
def test_no_quota_is_ever_exceeded_at_any_height(
    lab: Any, tree: list[int], jobs: list[tuple[int, int, int, int]], policy: str
) -> None:
    parents = [above if above < place else -1 for place, above in enumerate(tree)]
    vcs = [
        VirtualCluster(
            name=f"v{place}",
            gpus=8 - place,
            guaranteed=0 if above >= 0 else 8 - place,
            borrow=place % 2 == 1,
            parent=f"v{above}" if above >= 0 else "",
        )
        for place, above in enumerate(parents)
    ]
    whose = [job[3] % len(vcs) for job in jobs]
    trace = lab.trace([job[:3] for job in jobs], vc=[f"v{place}" for place in whose])
    owner = dict(zip(trace.job_id, trace.vc, strict=True))
    result = lab.run(trace, policy, cluster=quotas(*vcs, nodes=3), clock="rounds")
    assert result.summary["completed"] == len(jobs)
    segments, jobs_of = result.segments, result.jobs
    moments = sorted(set(segments.start.tolist()))
    for now in moments:
        used = [0] * len(vcs)
        running = (segments.start <= now) & (now < segments.end)
        for job, gpus in zip(segments.job[running], segments.gpus[running], strict=True):
            place = int(owner[jobs_of.job_id[job]][1:])
            while place >= 0:
                used[place] += int(gpus)
                place = parents[place]
        assert all(vc.borrow or n <= vc.gpus for vc, n in zip(vcs, used, strict=True))
