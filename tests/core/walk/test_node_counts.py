"""A plan of GPUs by node, carried out: which jobs stay, which leave, which come."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.core.allocation import Grant
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import PolicyFailed
from dlsched.core.walk.node_counts import counts_of, lay_out
from dlsched.core.walk.walk import Walk
from dlsched.policies.placement.spanning import FirstFree


def walk_of(lab: Any, holding: dict[int, dict[int, int]]) -> Walk:
    ctx = lab.context("2x4", [2, 2, 2], holding=holding)
    ctx.table.min_gpus[:], ctx.table.max_gpus[:] = 1, 8
    return Walk(ctx, FirstFree(FirstFree.Options()), preemptive=True)


def held(walk: Walk) -> dict[int, list[tuple[int, int]]]:
    return {row: counts_of(placement) for row, placement in walk.occupancy.held.items()}


def test_rows_whose_counts_stay_are_left_alone(lab: Any) -> None:
    walk = walk_of(lab, {0: {0: 0b1100}, 1: {1: 0b0011}})
    grants = {0: Grant(tunes_batch=True), 2: Grant(tunes_batch=True)}
    starts = lay_out(walk, {0: [(0, 2)], 2: [(0, 2), (1, 4)]}, grants)
    assert starts == [2]
    assert walk.occupancy.held[0] == Placement((0,), (0b1100,))
    assert held(walk) == {0: [(0, 2)], 2: [(0, 2), (1, 4)]}
    answer = walk.answer()
    assert list(answer.suspended) == [1]
    assert list(answer.grants) == [2]


def test_a_job_that_changes_gives_way_before_another_starts(lab: Any) -> None:
    walk = walk_of(lab, {0: {0: 0b1111}, 1: {1: 0b1111}})
    lay_out(walk, {0: [(1, 4)], 1: [(0, 3)], 2: [(0, 1)]})
    assert held(walk) == {0: [(1, 4)], 1: [(0, 3)], 2: [(0, 1)]}


def test_the_order_of_nodes_is_the_order_of_ranks(lab: Any) -> None:
    walk = walk_of(lab, {0: {0: 0b1, 1: 0b1}})
    assert lay_out(walk, {0: [(1, 1), (0, 1)]}) == [0]
    assert walk.occupancy.held[0].nodes == (1, 0)


def test_nothing_is_the_same_as_left_out(lab: Any) -> None:
    walk = walk_of(lab, {0: {0: 0b1}})
    assert lay_out(walk, {0: [], 1: []}) == []
    assert held(walk) == {}


@pytest.mark.parametrize("count", [5, 0])
def test_more_than_a_node_has_is_refused(lab: Any, count: int) -> None:
    walk = walk_of(lab, {})
    with pytest.raises(PolicyFailed, match=f"gave unit 0 {count} GPUs of node .*, which has 4"):
        lay_out(walk, {0: [(0, count)]})
