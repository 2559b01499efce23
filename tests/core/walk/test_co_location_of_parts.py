"""Jobs that need part of a GPU, under policies that know nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.errors import PolicyFailed
from dlsched.core.invariants import check_occupancy
from dlsched.core.round.steps import Parts, decide
from dlsched.core.stage import Entitlements
from dlsched.core.walk.co_location import may_join, may_share
from dlsched.core.walk.walk import Walk
from dlsched.policies.registry import make

FIRST, SECOND = Placement((0,), (0b01,)), Placement((0,), (0b10,))


def parts(policy: str = "fifo") -> Parts:
    return Parts(
        scheduling=make("scheduling", policy),
        placement=make("placement", "first-free"),
        admission=make("admission", "accept-all"),
        estimator=make("estimator", "oracle"),
    )


def room(
    lab: Any,
    shares: Sequence[float],
    *,
    cluster: str | Cluster = "1x2",
    gangs: Sequence[int] | None = None,
    holding: Mapping[int, Mapping[int, int]] | None = None,
    beside: Mapping[int, int] | None = None,
    **more: Any,
) -> RoundContext:
    """Units that need such parts; `beside` names rows that run on another's GPUs."""
    ctx: RoundContext = lab.context(cluster, gangs or [1] * len(shares), holding=holding, **more)
    ctx.may_share = True
    ctx.table.gpu_share[:] = shares
    for row, holder in (beside or {}).items():
        placement = ctx.occupancy.join(row, holder)
        ctx.table.status[row] = ctx.table.status[holder]
        ctx.table.gpus_now[row] = placement.gpus
    return ctx


def test_a_job_without_a_free_gpu_joins_one_that_leaves_room(lab: Any) -> None:
    ctx = room(lab, [0.5, 0.6, 0.5, 0.4, 0.5])
    answer = decide(parts(), ctx)
    assert answer.launched == {0: FIRST, 1: SECOND, 2: FIRST, 3: SECOND}
    assert ctx.occupancy.beside == {0: (2,), 2: (0,), 1: (3,), 3: (1,)}
    check_occupancy(ctx.occupancy)


def test_no_job_shares_while_there_are_free_gpus(lab: Any) -> None:
    answer = decide(parts(), room(lab, [0.3, 0.3]))
    assert answer.launched == {0: FIRST, 1: SECOND}


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_job_without_a_share_is_not_joined_and_joins_none(lab: Any, share: float) -> None:
    assert list(decide(parts(), room(lab, [share, 0.5], cluster="1x1")).launched) == [0]
    assert list(decide(parts(), room(lab, [0.5, share], cluster="1x1")).launched) == [0]


def test_the_fullest_gpu_that_has_room_is_taken(lab: Any) -> None:
    ctx = room(lab, [0.3, 0.5, 0.4, 0.5], holding={0: {0: 0b01}, 1: {0: 0b10}})
    assert decide(parts(), ctx).launched == {2: SECOND, 3: FIRST}


def test_only_gangs_of_one_size_share(lab: Any) -> None:
    ctx = room(lab, [0.5, 0.5, 0.5], gangs=[2, 1, 2])
    assert decide(parts(), ctx).launched == {
        0: Placement((0,), (0b11,)),
        2: Placement((0,), (0b11,)),
    }


def test_a_policy_sees_one_holder_of_a_gpu_and_the_others_stay(lab: Any) -> None:
    ctx = room(lab, [0.5, 0.5, 1.0], holding={0: {0: 0b01}}, beside={1: 0})
    seen: list[list[int]] = []
    made = parts()
    allocate = made.scheduling.allocate

    def watch(units: Any, ctx: Any, walk: Any) -> None:
        seen.append(ctx.active.tolist())
        assert ctx.occupancy.beside == {}
        allocate(units, ctx, walk)

    made.scheduling.allocate = watch  # type: ignore[method-assign]
    answer = decide(made, ctx)
    assert seen == [[0, 2]]
    assert ctx.active.tolist() == [0, 1, 2]
    assert (answer.launched, answer.suspended) == ({2: SECOND}, {})
    assert ctx.occupancy.beside == {0: (1,), 1: (0,)}


def test_a_partner_whose_gpus_are_taken_for_a_whole_job_goes(lab: Any) -> None:
    """LAS takes the GPU of a job that has had much for one that has had nothing."""
    ctx = room(lab, [0.5, 0.5, 1.0], cluster="1x1", holding={0: {0: 1}}, beside={1: 0})
    ctx.table.attained[0] = 5000.0
    answer = decide(parts("las"), ctx)
    assert answer.launched == {2: FIRST}
    assert answer.suspended == {0: FIRST, 1: FIRST}
    assert ctx.occupancy.held == {2: FIRST}


def test_a_partner_stays_beside_a_new_host_with_room(lab: Any) -> None:
    ctx = room(lab, [0.5, 0.4, 0.6], cluster="1x1", holding={0: {0: 1}}, beside={1: 0})
    ctx.table.attained[0] = 5000.0
    answer = decide(parts("las"), ctx)
    assert answer.launched == {2: FIRST}
    assert answer.suspended == {0: FIRST}
    assert ctx.occupancy.beside == {1: (2,), 2: (1,)}


def test_a_decision_that_fails_leaves_every_job_where_it_was(lab: Any) -> None:
    ctx = room(lab, [0.5, 0.5], cluster="1x1", holding={0: {0: 1}}, beside={1: 0})
    made = parts()

    def fails(units: Any, ctx: Any, walk: Any) -> None:
        walk.suspend(0) if walk.may_preempt else None
        raise ValueError("no")

    made.scheduling.allocate = fails  # type: ignore[method-assign]
    with pytest.raises(PolicyFailed):
        decide(made, ctx)
    assert ctx.occupancy.beside == {0: (1,), 1: (0,)}
    assert ctx.active.tolist() == [0, 1]
    check_occupancy(ctx.occupancy)


@pytest.mark.parametrize(
    ("pool", "left", "joins"),
    [([0, 0, 0], 900.0, True), ([0, 0, 0], 1100.0, False), ([0, 1, 0], 1100.0, True)],
)
def test_behind_a_whole_job_for_these_gpus_no_partner_stays_longer_than_its_host(
    lab: Any, pool: list[int], left: float, *, joins: bool
) -> None:
    ctx = room(
        lab, [0.5, 1.0, 0.5], cluster="1x1:a+1x1:b", gangs=[1, 2, 1], holding={0: {0: 1}},
        keys=(("", "a"), ("", "b")), pool=pool,
    )  # fmt: skip
    ctx.table.predicted_work[:] = [1100.0, 500.0, left]  # the first has run for 100 s
    assert (2 in decide(parts("first-fit"), ctx).launched) is joins


def test_a_pool_a_home_and_a_reservation_are_respected(lab: Any) -> None:
    pools = {"keys": (("", ""), ("b", "")), "pool": [0, 1]}
    ctx = room(lab, [0.5, 0.5], cluster="1x1:a+1x1:b", holding={0: {0: 1}}, **pools)
    assert decide(parts(), ctx).launched == {1: Placement((1,), (1,))}, "its own pool"
    ctx = room(lab, [0.5, 0.5], cluster="1x1", holding={0: {0: 1}})
    ctx.table.homes[1] = Placement((0,), (0b10,))
    assert decide(parts(), ctx).launched == {}, "it is resident elsewhere"
    ctx = room(lab, [0.5, 0.5, 1.0], cluster="1x1", holding={0: {0: 1}})
    ctx.occupancy.reserve(2, FIRST)
    assert decide(parts(), ctx).launched == {}, "a job waits for that GPU to be left"
    ctx = room(lab, [0.5, 0.5], cluster="1x1", holding={0: {0: 1}})
    ctx.occupancy.set_draining(0, draining=True)
    assert decide(parts(), ctx).launched == {}, "the node is draining"


def test_a_partner_on_a_draining_node_stays(lab: Any) -> None:
    ctx = room(lab, [0.5, 0.5], cluster="1x1", holding={0: {0: 1}}, beside={1: 0})
    ctx.occupancy.set_draining(0, draining=True)
    assert decide(parts(), ctx).suspended == {}
    assert ctx.occupancy.beside == {0: (1,), 1: (0,)}


def test_of_those_behind_a_whole_job_a_short_one_joins_though_a_long_one_may_not(lab: Any) -> None:
    ctx = room(lab, [0.4, 1.0, 0.3, 0.3], cluster="1x1", holding={0: {0: 1}})
    ctx.table.predicted_work[:] = [1100.0, 500.0, 2000.0, 900.0]
    assert list(decide(parts("first-fit"), ctx).launched) == [3]


def test_a_job_that_has_just_joined_counts_as_present(lab: Any) -> None:
    ctx = room(lab, [0.3, 0.3, 1.0, 0.3], cluster="1x1", holding={0: {0: 1}})
    ctx.table.predicted_work[:] = [1100.0, 2000.0, 500.0, 1500.0]
    assert list(decide(parts("first-fit"), ctx).launched) == [1, 3]


@pytest.mark.parametrize(("beside", "promises"), [({}, True), ({1: 0}, False)])
def test_where_some_share_no_decision_promises_to_stand(
    lab: Any, beside: dict[int, int], *, promises: bool
) -> None:
    count = 1 + len(beside)
    ctx = room(lab, [0.5] * count, cluster="1x1", holding={0: {0: 1}}, beside=beside)
    assert (decide(parts("las"), ctx).stable_until > -np.inf) is promises


def test_a_job_with_exclusive_nodes_shares_nothing(lab: Any) -> None:
    for row in (0, 1):
        ctx = room(lab, [0.5, 0.5], cluster="1x1", holding={0: {0: 1}})
        ctx.table.whole_nodes = {row}
        assert decide(parts(), ctx).launched == {}


def walk_of(ctx: RoundContext, entitlements: Entitlements | None = None) -> Walk:
    placement = make("placement", "first-free")
    return Walk(ctx, placement, preemptive=True, entitlements=entitlements)


def test_a_job_that_shares_needs_cores_like_every_other(lab: Any) -> None:
    cluster = Cluster([Node(name="a", gpus=1, gpu_type="gpu", cpus=8.0)])
    ctx = room(lab, [0.5, 0.5], cluster=cluster, holding={0: {0: 1}})
    for cores, joins in ((4.0, True), (5.0, False)):
        ctx.table.cpus[:] = [4.0, cores]
        assert may_join(1, 0, walk_of(ctx)) is joins


def test_cores_of_a_lifted_partner_are_its_own_until_it_has_lost_its_gpus(lab: Any) -> None:
    cluster = Cluster([Node(name="a", gpus=1, gpu_type="gpu", cpus=8.0)])
    ctx = room(lab, [0.5, 0.5, 0.5], cluster=cluster, holding={0: {0: 1}}, beside={1: 0})
    ctx.table.cpus[:] = 4.0
    walk = walk_of(ctx)
    walk.set_aside(1)
    assert not walk.has_host_for(2, FIRST)
    mark = walk.mark()
    walk.give_up(1)
    assert walk.has_host_for(2, FIRST)
    walk.rollback(mark)
    assert not walk.has_host_for(2, FIRST)


def test_a_job_that_shares_counts_against_its_tenants_ceiling(lab: Any) -> None:
    ctx = room(lab, [0.5, 0.5], cluster="1x1", holding={0: {0: 1}})
    ctx.table.names["vc"] = ("lab",)
    ctx.table.vc[:] = 0
    for ceiling, joins in ((1, True), (0.75, False)):
        bounds = np.array([float(ceiling)])
        limits = Entitlements(entitlement=bounds, ceiling=bounds)
        assert may_join(1, 0, walk_of(ctx, limits)) is joins


def test_beside_a_whole_job_there_is_no_room_even_for_a_job_without_a_share(lab: Any) -> None:
    ctx = room(lab, [1.0, 0.0, 0.7], cluster="1x1", holding={0: {0: 1}})
    assert not walk_of(ctx).has_room(1, 0)
    ctx = room(lab, [0.7, 0.0, 0.0], cluster="1x1", holding={0: {0: 1}})
    assert walk_of(ctx).has_room(1, 0)


def test_pairs_by_their_parts(lab: Any) -> None:
    table = room(lab, [0.0, 1.0, 1 / 3, 2 / 3, 0.0]).table
    first, second = np.array([0, 1, 2, 1, 0, 0]), np.array([1, 2, 3, 1, 2, 4])
    found = may_share(table, first, second).tolist()
    assert found == [False, False, True, False, True, True]


@settings(max_examples=60)
@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 300),
            st.sampled_from([1, 1, 2]),
            st.integers(10, 400),
            st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 0.7, 1.0]),
        ),
        min_size=1,
        max_size=14,
    ),
    policy=st.sampled_from(["fifo", "las", "srtf", "easy", "conservative", "tiresias"]),
)
def test_in_a_whole_run_no_gpu_is_overfull_and_every_job_ends(
    lab: Any, jobs: list[tuple[int, int, int, float]], policy: str
) -> None:
    jobs.sort(key=lambda job: job[0])
    engine = lab.engine([job[:3] for job in jobs], policy, cluster="2x2", clock="events")
    table, occupancy = engine.world.table, engine.world.occupancy
    table.gpu_share[:] = [job[3] for job in jobs]
    looks: list[int] = []

    def look(*_: Any) -> None:
        looks.append(len(occupancy.beside))
        check_occupancy(occupancy)
        for row, others in occupancy.beside.items():
            assert all(0 < table.gpu_share[each] < 1 for each in (row, *others))
            assert table.gpu_share[[row, *others]].sum() <= 1.0 + 1e-6

    engine.observers.append(look)
    engine.run()
    assert not np.isnan(table.finish).any()
    assert looks
