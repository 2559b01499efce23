"""What a live cluster asks of the round: shapes, whole nodes, homes, closed GPUs, packing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.allocation import Refused
from dlsched.core.arrays import carried
from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.cluster.pools import Pools
from dlsched.core.errors import InvariantBroken, PolicyFailed
from dlsched.core.invariants import check_occupancy
from dlsched.core.stage import Stage
from dlsched.core.walk.walk import Walk
from dlsched.policies.registry import find, make, names

PLACEMENTS = names("placement")


def walk_for(ctx: Any, placement: str = "min-nodes") -> Walk:
    return Walk(ctx, make("placement", placement), preemptive=True)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_shaped_gang_lies_as_it_asks_under_every_placement(lab: Any, placement: str) -> None:
    ctx = lab.context("3x4", [3, 4, 2], holding={0: {0: 0b111}})
    ctx.table.shapes = {1: (2, 2), 2: (1, 1)}
    walk = walk_for(ctx, placement)
    for row in (1, 2):
        got = walk.place(row)
        assert not isinstance(got, Refused)
        assert len(got.nodes) == 2
        assert len({mask.bit_count() for mask in got.masks}) == 1
    check_occupancy(ctx.occupancy)


def test_a_shape_that_fits_nowhere_is_refused_though_there_are_gpus_enough(lab: Any) -> None:
    ctx = lab.context("2x4", [1, 1, 6], holding={0: {0: 1}, 1: {1: 1}})
    ctx.table.shapes = {2: (4, 2)}
    assert str(walk_for(ctx).place(2)) == "Fragmented: needs 4, 2 GPUs on 2 nodes"


def test_whole_nodes_belong_to_no_other_job(lab: Any) -> None:
    ctx = lab.context("3x4", [1, 1, 5], holding={0: {0: 1}})
    ctx.table.whole_nodes = {1, 2}
    walk = walk_for(ctx)
    assert walk.place(1) == Placement((1,), (15,))
    assert str(walk.place(2)).startswith("Fragmented: needs 4, 1 GPUs on 2 idle nodes")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_whole_nodes_need_processors_for_what_is_asked_alone(lab: Any, placement: str) -> None:
    nodes = [Node(name=f"n{k}", gpus=4, cpus=2) for k in range(2)]
    ctx = lab.context(Cluster(nodes), [2])
    ctx.table.shapes, ctx.table.whole_nodes = {0: (1, 1)}, {0}
    ctx.table.cpus[0] = 2
    assert walk_for(ctx, placement).place(0) == Placement((0, 1), (15, 15))


def test_exact_gpus_must_lie_as_asked(lab: Any) -> None:
    ctx = lab.context("2x4", [2, 1])
    ctx.table.shapes, ctx.table.whole_nodes = {0: (1, 1)}, {1}
    walk = walk_for(ctx)
    for row, placement in ((0, Placement((0,), (3,))), (1, Placement((0,), (7,)))):
        with pytest.raises(PolicyFailed, match="lie otherwise"):
            walk.place_exactly(row, placement)
    walk.place_exactly(0, Placement((0, 1), (1, 8)))


def test_a_row_goes_home_when_home_is_free(lab: Any) -> None:
    ctx = lab.context("2x4", [2, 1], holding={1: {0: 1}})
    home = Placement((1,), (0b1010,))
    ctx.table.homes = {0: home}
    assert walk_for(ctx).place(0) == home
    ctx = lab.context("2x4", [2, 1], holding={1: {1: 8}})
    ctx.table.homes = {0: home}
    assert walk_for(ctx).place(0) != home


def test_a_closed_gpu_has_no_holder_whichever_job_held_it(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2, 1], holding={0: {0: 3}})
    occupancy = ctx.occupancy
    occupancy.close(0, 0b101)
    assert occupancy.free == [0b1000]
    assert occupancy.capacity_in(1) == 2
    occupancy.release(0)
    assert occupancy.free == [0b1010]
    assert occupancy.kept_idle == 0
    check_occupancy(occupancy)
    twin = occupancy.copy()
    twin.take(1, Placement((0,), (0b1010,)))
    check_occupancy(twin)
    with pytest.raises(InvariantBroken, match="not free"):
        occupancy.take(1, Placement((0,), (0b0101,)))
    with pytest.raises(InvariantBroken, match="reserved already"):
        occupancy.reserve(1, Placement((0,), (0b0001,)))


def test_pools_may_be_given_as_nodes(lab: Any) -> None:
    pools = Pools.of_nodes(lab.cluster("3x2"), [0b011, 0b110])
    assert not pools.disjoint
    assert not pools.whole
    assert Pools.of_nodes(lab.cluster("3x2"), [0b111]).whole


@given(old=st.lists(st.integers(-1, 9), max_size=12, unique_by=lambda x: (x, object())[x < 0]))
def test_columns_follow_a_packed_table(old: list[int]) -> None:
    column = carried(np.arange(7) * 10, np.array(old, np.int64), -5)
    assert column.tolist() == [10 * k if 0 <= k < 7 else -5 for k in old]


jobs_of = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 4), st.integers(1, 300)), min_size=3, max_size=10
)


@pytest.mark.parametrize(
    "policy", [p for p in names("scheduling") if p not in ("what-if",)] + ["what-if"]
)
@settings(max_examples=4)
@given(jobs=jobs_of)
def test_a_part_that_follows_a_packed_table_knows_what_it_knew(
    lab: Any, policy: str, jobs: list[tuple[int, int, int]]
) -> None:
    options = ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")
    given_to = {"options": options} if policy == "what-if" else {}
    engine = lab.engine(jobs, policy, cluster="2x2", clock="rounds", **given_to)
    engine.horizon = 150.0
    engine.run()
    part = engine.parts.scheduling
    before = part.state_dict()
    rows = len(engine.world.table)
    there_and_back = np.arange(rows)[::-1]
    part.renumber(there_and_back, 0)
    part.renumber(there_and_back, 0)
    after = part.state_dict()
    for key, value in before.items():
        if isinstance(value, np.ndarray):
            padded = np.resize(after[key], len(value)) if len(value) else value
            np.testing.assert_array_equal(padded, value, key)
        elif key != "learnt":
            assert after[key] == value, key


LIVE_STAGES = ("scheduling", "placement", "admission", "fairness", "estimator")


@pytest.mark.parametrize("stage", LIVE_STAGES)
def test_every_part_with_a_state_says_how_it_follows(stage: str) -> None:
    silent = [
        name
        for name in [*names(stage), *names(stage, for_tests=True)]
        if find(stage, name).load_state_dict is not Stage.load_state_dict
        and find(stage, name).renumber is Stage.renumber
    ]
    assert not silent
