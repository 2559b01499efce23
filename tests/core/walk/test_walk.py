"""The transactional walk: from an order to GPUs, by counting or by trying, and back again."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.allocation import Allocation, Grant, Misfit, Ranking, Rebuild, Refused
from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.errors import InvariantBroken, PolicyFailed
from dlsched.core.invariants import check_occupancy
from dlsched.core.stage import Entitlements, PlacementPolicy
from dlsched.core.walk.counting import choose_by_count, prefix_by_count
from dlsched.core.walk.following import follow
from dlsched.core.walk.walk import Walk
from dlsched.policies.registry import make, names
from simulate.published.blox import BLOX


def walk_of(
    ctx: RoundContext,
    placement: str = "first-free",
    *,
    preemptive: bool = True,
    entitlements: Entitlements | None = None,
) -> Walk:
    part: PlacementPolicy[Any] = make("placement", placement)
    return Walk(ctx, part, preemptive=preemptive, entitlements=entitlements)


def followed(
    ctx: RoundContext,
    order: list[int],
    *,
    placement: str = "first-free",
    misfit: Misfit = "skip",
    rebuild: Rebuild = "sticky",
    preemptive: bool = True,
    entitlements: Entitlements | None = None,
) -> Allocation:
    walk = walk_of(ctx, placement, preemptive=preemptive, entitlements=entitlements)
    ranking = Ranking(order=np.array(order, np.int64), misfit=misfit, rebuild=rebuild)
    follow(walk, ctx.units, ranking)
    check_occupancy(ctx.occupancy)
    return walk.answer()


def state(ctx: RoundContext) -> tuple[Any, ...]:
    o = ctx.occupancy
    return (o.free[:], o.level[:], o.free_total, dict(o.held), dict(o.reserved), o._blocked[:])


def greedy(gangs: list[int], capacity: int, *, stop: bool) -> list[bool]:
    chosen = []
    open_ = True
    for gang in gangs:
        fits = open_ and gang <= capacity
        open_ = open_ and (fits or not stop)
        capacity -= gang if fits else 0
        chosen.append(fits)
    return chosen


# -- counting -----------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(0, 40))
def test_choosing_by_count_is_the_greedy_loop(gangs: list[int], capacity: int) -> None:
    chosen = choose_by_count(np.array(gangs, np.int64), capacity)
    assert chosen.tolist() == greedy(gangs, capacity, stop=False)


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(0, 40))
def test_a_prefix_by_count_ends_at_the_first_misfit(gangs: list[int], capacity: int) -> None:
    chosen = prefix_by_count(np.array(gangs, np.int64), capacity)
    assert chosen.tolist() == greedy(gangs, capacity, stop=True)


# -- following an order -------------------------------------------------------------------------


def test_a_misfit_is_skipped_by_default(lab: Any) -> None:
    answer = followed(lab.context("1x4", [3, 2, 1]), [0, 1, 2])
    assert list(answer.launched) == [0, 2]


def test_a_misfit_ends_the_walk_when_told_to(lab: Any) -> None:
    answer = followed(lab.context("1x4", [3, 2, 1]), [0, 1, 2], misfit="stop")
    assert list(answer.launched) == [0]


def test_a_running_row_that_stays_selected_is_left_where_it_is(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2], holding={0: {0: 0b1100}})
    answer = followed(ctx, [1, 0])
    assert answer.suspended == {}
    assert answer.launched == {1: Placement((0,), (0b11,))}


def test_a_full_rebuild_places_every_selected_row_anew(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2], holding={0: {0: 0b1100}})
    answer = followed(ctx, [1, 0], rebuild="full")
    assert answer.launched == {1: Placement((0,), (0b11,))}
    assert ctx.occupancy.held[0] == Placement((0,), (0b1100,))
    assert answer.suspended == {}, "a row that gets its own GPUs back was never suspended"


def test_a_full_rebuild_leaves_protected_rows_alone(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2, 2], holding={0: {0: 0b11}, 1: {0: 0b1100}}, since=95, min_run=9)
    ctx.table.since[1] = 0
    answer = followed(ctx, [2, 1, 0], rebuild="full")
    assert list(answer.suspended) == [1]
    assert answer.launched == {2: Placement((0,), (0b1100,))}


@pytest.mark.parametrize("placement", ["first-free", "consolidated"])
def test_a_protected_row_keeps_its_gpus_whatever_its_rank(lab: Any, placement: str) -> None:
    ctx = lab.context("1x4", [4, 2], holding={1: {0: 0b11}}, since=95, min_run=10)
    answer = followed(ctx, [0, 1], placement=placement)
    assert (answer.suspended, answer.launched) == ({}, {})
    assert answer.wake_at == 105


def test_tail_preemption_passes_over_protected_rows(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2, 2], holding={1: {0: 0b11}, 2: {0: 0b1100}}, min_run=10)
    ctx.table.since[2] = 95
    answer = followed(ctx, [0, 1, 2], misfit="tail-preempt")
    assert list(answer.suspended) == [1]
    assert list(answer.launched) == [0]


def test_tail_preemption_takes_from_the_end_until_the_row_fits(lab: Any) -> None:
    holding = {1: {0: 0b1}, 2: {0: 0b10}, 3: {0: 0b1100}}
    ctx = lab.context("1x4", [3, 1, 1, 2], holding=holding, semantics=BLOX)
    answer = followed(ctx, [0, 1, 2, 3], misfit="tail-preempt")
    assert list(answer.suspended) == [3, 2]
    assert answer.launched == {0: Placement((0,), (0b1110,))}


def test_rows_suspended_for_nothing_stay_suspended_under_tail_preemption(lab: Any) -> None:
    ctx = lab.context("1x4", [1, 4, 1], holding={0: {0: 0b1}, 2: {0: 0b10}}, semantics=BLOX)
    answer = followed(ctx, [0, 1, 2], misfit="tail-preempt")
    assert list(answer.suspended) == [2]
    assert answer.launched == {}


def test_a_victim_met_later_may_start_again_in_the_same_walk(lab: Any) -> None:
    ctx = lab.context("1x4", [3, 1], holding={1: {0: 0b10}}, semantics=BLOX)
    answer = followed(ctx, [0, 1], misfit="tail-preempt")
    assert list(answer.launched) == [0]  # 3 are free: no job need leave
    ctx = lab.context("2x2", [2, 1, 1], holding={1: {0: 0b1}, 2: {1: 0b1}}, semantics=BLOX)
    answer = followed(ctx, [0, 1, 2], misfit="tail-preempt", placement="consolidated")
    assert list(answer.suspended) == [2]
    assert list(answer.launched) == [0, 2]
    assert 2 in answer.suspended  # met later, it starts again


def test_victims_suspended_in_vain_get_their_gpus_back_when_trying(lab: Any) -> None:
    ctx = lab.context("2x2", [4, 1, 1], holding={1: {0: 0b1}, 2: {1: 0b1}})
    before = state(ctx)
    answer = followed(ctx, [0, 1, 2], placement="consolidated")
    assert (answer.suspended, answer.launched) == ({}, {})
    assert state(ctx) == before
    assert answer.refused[0].reason == "Fragmented"


def test_a_suspended_row_goes_back_to_its_own_gpus_when_they_are_still_free(lab: Any) -> None:
    # 0 needs node 1 emptied; trying from the tail also suspends 2 on node 0, which then returns
    ctx = lab.context("2x2", [2, 2, 1], holding={1: {1: 0b11}, 2: {0: 0b10}})
    ctx.occupancy.take(99, Placement((0,), (0b1,)))
    answer = followed(ctx, [0, 1, 2], placement="consolidated")
    assert list(answer.suspended) == [1]
    assert answer.launched == {0: Placement((1,), (0b11,))}


def test_running_rows_are_frozen_in_a_fill(lab: Any) -> None:
    ctx = lab.context("1x4", [4, 2, 1], holding={1: {0: 0b11}}, mode="fill")
    walk = walk_of(ctx)
    follow(walk, ctx.waiting, Ranking(order=np.array([0, 1])))
    assert list(walk.answer().launched) == [2]
    with pytest.raises(PolicyFailed, match="frozen"):
        walk.suspend(1)


def test_an_empty_order_decides_nothing(lab: Any) -> None:
    ctx = lab.context("1x4", [2], holding={0: {0: 0b11}})
    answer = followed(ctx, [])
    assert (answer.suspended, answer.launched) == ({}, {})


# -- counting and trying agree ------------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[int], list[int], int, list[int]]:
    """Gangs, the order, how many of the cluster's 8 GPUs run, and which rows run."""
    gangs = draw(st.lists(st.integers(1, 5), min_size=1, max_size=9))
    order = draw(st.permutations(range(len(gangs))))
    running = draw(st.lists(st.sampled_from(range(len(gangs))), unique=True))
    return gangs, list(order), 8, running


@settings(max_examples=150)
@given(situations(), st.sampled_from(["skip", "stop"]), st.booleans())
def test_counting_and_trying_select_the_same_rows(
    lab: Any,
    situation: tuple[list[int], list[int], int, list[int]],
    misfit: Misfit,
    protect: bool,
) -> None:
    gangs, order, _, running = situation
    selected = []
    for by_count in (True, False):
        ctx = lab.context("2x4", gangs, min_run=10.0 if protect else 0.0)
        free = list(range(8))
        for row in running:
            if gangs[row] > len(free):
                continue
            mine = [free.pop() for _ in range(gangs[row])]
            masks = {n: sum(1 << (g % 4) for g in mine if g // 4 == n) for n in (0, 1)}
            masks = {node: mask for node, mask in masks.items() if mask}
            ctx.occupancy.take(row, Placement(tuple(masks), tuple(masks.values())))
            ctx.table.status[row] = 3
            ctx.table.gpus_now[row] = gangs[row]
            ctx.table.since[row] = 95.0 if row % 2 else 0.0
        walk = walk_of(ctx)
        ranking = Ranking(order=np.array(order), misfit=misfit)
        with pytest.MonkeyPatch.context() as patch:
            if not by_count:
                patch.setattr(Walk, "counting_decides", property(lambda walk: False))
            follow(walk, ctx.units, ranking)
        check_occupancy(ctx.occupancy)
        selected.append(sorted(ctx.occupancy.held))
    assert selected[0] == selected[1]


@given(situations(), st.sampled_from(["skip", "stop"]))
def test_a_rebuild_selects_what_fits_from_empty(
    lab: Any, situation: tuple[list[int], list[int], int, list[int]], misfit: Misfit
) -> None:
    gangs, order, capacity, _ = situation
    ctx = lab.context("2x4", gangs)
    followed(ctx, order, misfit=misfit)
    chosen = greedy([gangs[row] for row in order], capacity, stop=misfit == "stop")
    assert sorted(ctx.occupancy.held) == sorted(itertools.compress(order, chosen))


# -- what a policy may not do -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "placement", "why"),
    [
        (1, Placement((0,), (0b11,)), "may not use"),
        (1, Placement((0,), (0b110000,)), "may not use"),
        (1, Placement((1,), (0b1,)), "gang of 2"),
        (1, Placement((1,), (0b111,)), "gang of 2"),
        (1, Placement((1, 1), (0b1, 0b1)), "twice"),
        (1, Placement((1,), (0,)), "may not use"),
        (0, Placement((1,), (0b11,)), "twice"),
        (2, Placement((1,), (0b11,)), "not waiting"),
        (3, Placement((1,), (0b11,)), "not waiting"),
    ],
    ids=[
        "GPUs of another",
        "GPUs that do not exist",
        "part of a gang",
        "more than the gang",
        "one node twice",
        "no GPU",
        "a row that holds some",
        "a row that has ended",
        "a row that is not admitted",
    ],
)
def test_exact_gpus_are_checked(lab: Any, row: int, placement: Placement, why: str) -> None:
    ctx = lab.context("2x4", [4, 2, 2, 2], holding={0: {0: 0b1111}})
    ctx.table.status[2], ctx.table.status[3] = 4, 1
    before = state(ctx)
    with pytest.raises((PolicyFailed, InvariantBroken), match=why):
        walk_of(ctx).place_exactly(row, placement)
    assert state(ctx) == before


def test_an_exchange_is_suspending_and_placing(lab: Any) -> None:
    here, there = Placement((0,), (0b0011,)), Placement((1,), (0b1100,))
    both = []
    for at_once in (True, False):
        ctx = lab.context("2x4", [2, 2, 4], holding={0: {0: 0b0011}, 1: {1: 0b1100}})
        before = state(ctx)
        walk = walk_of(ctx)
        if at_once:
            walk.exchange([0, 1], {1: here, 0: there})
        else:
            for row in (0, 1):
                walk.suspend(row)
            walk.place_exactly(1, here)
            walk.place_exactly(0, there)
        check_occupancy(ctx.occupancy)
        both.append((state(ctx), list(walk.suspended.items()), list(walk.launched.items())))
        walk.rollback(0)
        assert state(ctx) == before
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("leaving", "coming", "why"),
    [
        ([], {1: Placement((0,), (0b0011,))}, "not free|may not use"),
        ([0], {1: Placement((0,), (0b0111,))}, "gang of 2"),
        ([0], {1: Placement((0, 0), (0b01, 0b10))}, "twice"),
        ([0], {2: Placement((0,), (0b0011,))}, "not waiting"),
        ([1], {}, "does not run"),
    ],
    ids=["GPUs of another", "more than the gang", "one node twice", "has ended", "runs not"],
)
def test_an_exchange_is_checked(
    lab: Any, leaving: list[int], coming: dict[int, Placement], why: str
) -> None:
    ctx = lab.context("2x4", [2, 2, 2], holding={0: {0: 0b0011}})
    ctx.table.status[2] = 4
    before = state(ctx)
    walk = walk_of(ctx)
    with pytest.raises((PolicyFailed, InvariantBroken), match=why):
        walk.exchange(leaving, coming)
    walk.rollback(0)
    assert state(ctx) == before


def test_an_elastic_row_may_have_any_size_in_its_range(lab: Any) -> None:
    ctx = lab.context("2x4", [2])
    ctx.table.min_gpus[0], ctx.table.max_gpus[0] = 1, 4
    walk = walk_of(ctx)
    walk.place_exactly(0, Placement((0,), (0b111,)))
    assert walk.launched[0].gpus == 3


def test_a_row_that_has_ended_is_not_placed(lab: Any) -> None:
    ctx = lab.context("1x4", [2])
    ctx.table.status[0] = 4
    with pytest.raises(PolicyFailed, match="not waiting"):
        walk_of(ctx).place(0)


def test_a_gang_is_not_placed_in_part(lab: Any) -> None:
    with pytest.raises(PolicyFailed, match="gang of 4"):
        walk_of(lab.context("1x4", [4])).place(0, 2)


def test_nodes_out_of_service_or_draining_get_nothing(lab: Any) -> None:
    for change in ("set_service", "set_draining"):
        ctx = lab.context("2x4", [2])
        getattr(ctx.occupancy, change)(
            0, **({"serving": False} if change == "set_service" else {"draining": True})
        )
        with pytest.raises(PolicyFailed, match="n1"):
            walk_of(ctx).place_exactly(0, Placement((0,), (0b11,)))
        placed = walk_of(ctx).place(0)
        assert placed == Placement((1,), (0b11,))


def test_a_row_that_does_not_run_cannot_be_suspended(lab: Any) -> None:
    with pytest.raises(PolicyFailed, match="does not run"):
        walk_of(lab.context("1x4", [2])).suspend(0)


def test_a_protected_row_cannot_be_suspended(lab: Any) -> None:
    ctx = lab.context("1x4", [2], holding={0: {0: 0b11}}, since=95, min_run=10)
    with pytest.raises(PolicyFailed, match="minimum"):
        walk_of(ctx).suspend(0)


@pytest.mark.parametrize("preemptive", [True, False])
def test_a_row_ranked_twice_is_refused(lab: Any, preemptive: bool) -> None:
    ctx = lab.context("1x4", [2, 1])
    with pytest.raises((PolicyFailed, InvariantBroken)):
        followed(ctx, [0, 0], preemptive=preemptive)


@pytest.mark.parametrize("method", ["wake_at", "stable_until"])
def test_a_time_that_is_not_a_number_is_refused(lab: Any, method: str) -> None:
    with pytest.raises(PolicyFailed, match="not a number"):
        getattr(walk_of(lab.context("1x4", [1])), method)(float("nan"))


# -- pools --------------------------------------------------------------------------------------


def partitioned() -> Cluster:
    nodes = [Node(name=f"n{k}", gpus=4) for k in range(3)]
    return Cluster(nodes, [VirtualCluster(name="a", nodes=("n0",))])


def test_rows_of_a_partition_use_its_nodes_only(lab: Any) -> None:
    ctx = lab.context(partitioned(), [4, 4, 4], pool=[0, 0, 1], keys=[("a", ""), ("", "")])
    answer = followed(ctx, [0, 1, 2])
    assert answer.launched == {0: Placement((0,), (15,)), 2: Placement((1,), (15,))}


def test_a_partition_is_kept_even_when_all_rows_belong_to_it(lab: Any) -> None:
    ctx = lab.context(partitioned(), [4, 4, 4], keys=[("a", "")])
    answer = followed(ctx, [0, 1, 2])
    assert answer.launched == {0: Placement((0,), (15,))}


def test_overlapping_pools_are_tried_row_by_row(lab: Any) -> None:
    cluster = lab.cluster("1x4:a+1x4:b")
    ctx = lab.context(cluster, [4, 4], pool=[0, 1], keys=[("", "a|b"), ("", "a")])
    answer = followed(ctx, [1, 0])
    assert answer.launched == {1: Placement((0,), (15,)), 0: Placement((1,), (15,))}


def test_a_misfit_ends_the_walk_of_its_own_pool_only(lab: Any) -> None:
    ctx = lab.context("1x4:a+1x4:b", [5, 2, 2], pool=[0, 0, 1], keys=[("", "a"), ("", "b")])
    for rows in (followed(ctx, [0, 1, 2], misfit="stop").launched,):
        assert list(rows) == [2]


def test_victims_of_another_pool_are_not_touched(lab: Any) -> None:
    ctx = lab.context(
        "1x4:a+1x4:b",
        [4, 4],
        pool=[0, 1],
        keys=[("", "a"), ("", "b")],
        holding={1: {1: 0b1111}},
    )
    ctx.occupancy.take(9, Placement((0,), (0b1,)))
    answer = followed(ctx, [0, 1], placement="consolidated")
    assert answer.suspended == {}


# -- quotas -------------------------------------------------------------------------------------


def with_tenants(ctx: RoundContext, vc: list[int]) -> RoundContext:
    ctx.table.vc[:] = vc
    ctx.table.names["vc"] = ("red", "blue")
    return ctx


def entitled(entitlement: tuple[float, float], ceiling: tuple[float, float]) -> Entitlements:
    return Entitlements(np.array(entitlement), np.array(ceiling))


def test_no_job_gets_more_than_its_ceiling(lab: Any) -> None:
    ctx = with_tenants(lab.context("2x4", [2, 2, 2]), [0, 0, 1])
    answer = followed(ctx, [0, 1, 2], entitlements=entitled((3, 8), (3, 8)))
    assert list(answer.launched) == [0, 2]
    assert answer.refused[1].reason == "Quota"


def test_borrowers_come_last_and_leave_first(lab: Any) -> None:
    # red borrows everything; blue asks for its guaranteed half back
    holding = {0: {0: 0b1111}, 1: {1: 0b1111}}
    ctx = with_tenants(lab.context("2x4", [4, 4, 4], holding=holding), [0, 0, 1])
    answer = followed(ctx, [0, 1, 2], entitlements=entitled((4, 4), (np.inf, np.inf)))
    assert list(answer.suspended) == [1]
    assert list(answer.launched) == [2]


def test_a_tenant_at_its_quota_does_not_block_the_others(lab: Any) -> None:
    ctx = with_tenants(lab.context("2x4", [4, 4, 2, 4]), [0, 0, 0, 1])
    answer = followed(
        ctx,
        [0, 1, 2, 3],
        misfit="stop",
        preemptive=False,
        entitlements=entitled((5, 0), (5, 8)),
    )
    assert list(answer.launched) == [0, 3]


# -- CPUs and memory ----------------------------------------------------------------------------


def test_a_node_without_enough_cores_is_passed_over(lab: Any) -> None:
    cluster = Cluster([Node(name="a", gpus=4, cpus=4), Node(name="b", gpus=4, cpus=32)])
    ctx = lab.context(cluster, [2, 2])
    ctx.table.cpus[:] = 8
    answer = followed(ctx, [0, 1], placement="consolidated")
    assert [p.nodes for p in answer.launched.values()] == [(1,), (1,)]


def test_cores_are_given_back_with_the_gpus(lab: Any) -> None:
    cluster = Cluster([Node(name="a", gpus=4, cpus=8)])
    ctx = lab.context(cluster, [2, 2], holding={1: {0: 0b11}})
    ctx.table.cpus[:] = 8
    walk = walk_of(ctx)
    assert isinstance(walk.place(0), Refused)
    walk.suspend(1)
    assert not isinstance(walk.place(0), Refused)


def test_exact_gpus_must_leave_cores_for_the_others(lab: Any) -> None:
    cluster = Cluster([Node(name="a", gpus=4, cpus=8)])
    ctx = lab.context(cluster, [2, 2])
    ctx.table.cpus[:] = 8
    walk = walk_of(ctx)
    walk.place_exactly(0, Placement((0,), (0b11,)))
    with pytest.raises(PolicyFailed, match="cores"):
        walk.place_exactly(1, Placement((0,), (0b1100,)))


@pytest.mark.parametrize("placement", names("placement"))
def test_cores_in_odd_shares_never_run_below_zero(lab: Any, placement: str) -> None:
    cluster = Cluster([Node(name="a", gpus=4, cpus=2), Node(name="b", gpus=4, cpus=2)])
    ctx = lab.context(cluster, [3, 3, 1, 1, 2])
    ctx.table.cpus[:] = [1, 1, 1 / 3, 0.7, 0.1]
    answer = followed(ctx, [0, 1, 2, 3, 4], placement=placement)
    assert list(answer.launched)[:1] == [0]


# -- taking back --------------------------------------------------------------------------------


def test_a_rollback_restores_exactly(lab: Any) -> None:
    ctx = lab.context("2x4", [2, 2, 3, 1], holding={0: {0: 0b11}, 1: {1: 0b1100}})
    before = state(ctx)
    walk = walk_of(ctx)
    walk.suspend(0)
    walk.place(2)
    mark = walk.mark()
    middle = state(ctx)
    walk.suspend(1)
    walk.place(0)
    walk.reserve(3, Placement((1,), (0b1000,)))
    walk.rollback(mark)
    assert state(ctx) == middle
    assert (list(walk.suspended), list(walk.launched)) == ([0], [2])
    walk.rollback(0)
    assert state(ctx) == before
    assert (walk.suspended, walk.launched, walk.answer().reserved) == ({}, {}, {})


def test_a_rollback_undoes_a_reservation_over_a_victim(lab: Any) -> None:
    ctx = lab.context("1x4", [4, 2], holding={1: {0: 0b11}})
    before = state(ctx)
    walk = walk_of(ctx)
    walk.reserve(0, Placement((0,), (0b1111,)))
    walk.suspend(1)
    walk.claim(0)
    walk.rollback(0)
    assert state(ctx) == before


def test_a_rollback_gives_a_claimed_reservation_back(lab: Any) -> None:
    ctx = lab.context("1x4", [4])
    ctx.occupancy.reserve(0, Placement((0,), (0b1111,)))
    before = state(ctx)
    walk = walk_of(ctx)
    walk.claim(0)
    walk.rollback(0)
    assert state(ctx) == before


def test_a_rollback_closes_an_opened_reservation_again(lab: Any) -> None:
    ctx = lab.context("1x4", [4, 2], holding={1: {0: 0b11}})
    ctx.occupancy.reserve(0, Placement((0,), (0b111,)))
    before = state(ctx)
    walk = walk_of(ctx)
    walk.unreserve(0)
    assert ctx.occupancy.free == [0b1100]
    walk.rollback(0)
    assert state(ctx) == before


def test_a_rollback_takes_the_grants_of_launched_rows_back(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2])
    walk = walk_of(ctx)
    walk.place(0)
    mark = walk.mark()
    walk.place(1)
    walk.grant(1, Grant(batch_size=64))
    walk.rollback(mark)
    assert list(walk.answer().grants) == []


operations = st.lists(
    st.tuples(st.sampled_from(["place", "suspend", "exact", "reserve", "claim", "unreserve"]),
              st.integers(0, 5), st.integers(0, 1), st.integers(1, 15)),
    max_size=14,
)  # fmt: skip


@given(operations, st.integers(0, 14))
def test_any_walk_can_be_rolled_back_to_any_mark(
    lab: Any, steps: list[tuple[str, int, int, int]], at: int
) -> None:
    ctx = lab.context("2x4", [1, 2, 2, 3, 1, 4], holding={0: {0: 0b1}, 2: {1: 0b11}})
    walk = walk_of(ctx)
    before, mark, middle = state(ctx), 0, state(ctx)
    for k, (what, row, node, mask) in enumerate(steps):
        if k == at:
            mark, middle = walk.mark(), state(ctx)
        try:
            if what == "place":
                walk.place(row)
            elif what == "suspend":
                walk.suspend(row)
            elif what == "exact":
                walk.place_exactly(row, Placement((node,), (mask,)))
            elif what == "reserve":
                walk.reserve(row, Placement((node,), (mask,)))
            elif what == "claim":
                walk.claim(row)
            else:
                walk.unreserve(row)
        except (PolicyFailed, InvariantBroken):
            pass
        check_occupancy(ctx.occupancy)
    walk.rollback(mark)
    assert state(ctx) == middle
    walk.rollback(0)
    assert state(ctx) == before


# -- reservations -------------------------------------------------------------------------------


def test_reserved_gpus_are_given_to_no_other_job(lab: Any) -> None:
    ctx = lab.context("1x4", [4, 1], holding={})
    walk = walk_of(ctx)
    walk.reserve(0, Placement((0,), (0b1111,)))
    assert isinstance(walk.place(1), Refused)


def test_a_claim_waits_for_the_victims(lab: Any) -> None:
    ctx = lab.context("1x4", [4, 2], holding={1: {0: 0b11}})
    walk = walk_of(ctx)
    walk.reserve(0, Placement((0,), (0b1111,)))
    claimed = walk.claim(0)
    assert isinstance(claimed, Refused)
    walk.suspend(1)
    assert walk.claim(0) == Placement((0,), (0b1111,))


@pytest.mark.parametrize("act", ["claim", "unreserve"])
def test_nothing_can_be_claimed_or_opened_that_was_not_reserved(lab: Any, act: str) -> None:
    with pytest.raises(PolicyFailed, match="reserve"):
        getattr(walk_of(lab.context("1x4", [1])), act)(0)


def test_gpus_outside_the_pool_cannot_be_reserved(lab: Any) -> None:
    ctx = lab.context("1x4:a+1x4:b", [4], keys=[("", "a")])
    with pytest.raises(PolicyFailed, match="may not use"):
        walk_of(ctx).reserve(0, Placement((1,), (0b1111,)))


def test_a_tenant_at_its_quota_preempts_no_job_under_tail_preemption(lab: Any) -> None:
    ctx = with_tenants(lab.context("1x4", [2, 2, 2], holding={0: {0: 3}, 2: {0: 12}}), [0, 0, 1])
    answer = followed(ctx, [0, 1, 2], misfit="tail-preempt", entitlements=entitled((2, 2), (2, 2)))
    assert (answer.suspended, answer.launched) == ({}, {})
    assert answer.refused[1].reason == "Quota"
