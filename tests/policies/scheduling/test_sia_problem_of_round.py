"""From a snapshot to Sia's program: what moves cost, what gangs are worth, and the order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.walk.walk import Walk
from dlsched.policies.highs import Limits
from dlsched.policies.registry import make
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations
from dlsched.policies.scheduling.sia.goodput_matrix import worth_of
from dlsched.policies.scheduling.sia.integer_program import MISSING, Program
from dlsched.policies.scheduling.sia.options import SiaOptions
from dlsched.policies.scheduling.sia.solving import solve
from tests.policies.scheduling.test_sia_goodput_matrix import MODEL, Belief

TYPES = "1x4:fast+1x4:slow"
ROOM = Configurations.of(["fast", "slow"], [1, 1], [4, 4])
FAST_1, FAST_2, FAST_4, SLOW_1, SLOW_2, SLOW_4 = range(6)


class Speeds:
    """Gangs run three times as fast on the fast type; the job of the third row runs on it alone."""

    def alone(self, rows: Rows, gang: Ints, types: Any) -> Floats:
        rates = np.array([[6.0, 2.0], [3.0, 1.0], [3.0, 0.0]])[rows]
        return rates if tuple(types) == ("fast", "slow") else rates[:, ::-1]


def test_a_gang_is_worth_its_gpus_times_what_its_type_is_faster(lab: Any) -> None:
    ctx = lab.context(TYPES, [4, 2, 1], now=1000.0)
    ctx.perf = replace(ctx.perf, by_type=Speeds())
    worth = worth_of(ctx.units, ctx, ROOM, SiaOptions()).worth
    expected = np.full((3, 6), MISSING)
    expected[0, [FAST_4, SLOW_4]] = 12.0, 4.0
    expected[1, [FAST_2, SLOW_2]] = 6.0, 2.0
    expected[2, FAST_1] = 1.0
    assert worth.tolist() == expected.tolist()


def test_a_type_that_is_not_in_the_job_s_pool_is_worth_nothing(lab: Any) -> None:
    keys = [("", "fast"), ("", "slow")]
    ctx = lab.context(TYPES, [4, 4], now=1000.0, pool=[0, 1], keys=keys)
    worth = worth_of(ctx.units, ctx, ROOM, SiaOptions()).worth
    assert (worth > MISSING).tolist() == [
        [False, False, True, False, False, False],
        [False, False, False, False, False, True],
    ]


class Measured(Belief):
    """Restarts of two jobs take 30 s, that of the third was never measured."""

    def restart_s(self, rows: Rows) -> Floats:
        return np.array([30.0, 30.0, 400.0, np.nan])[rows]


def test_a_move_costs_what_the_job_s_own_restarts_take(lab: Any) -> None:
    ctx = lab.context(TYPES, [1, 1, 1, 1], now=1000.0)
    table = ctx.table
    table.submit_time[:] = 1000.0 - np.array([300.0, 300.0, 300.0, 300.0])
    table.starts[:] = [3, 1, 2, 5]
    table.attained[:] = [300.0, 10.0, 300.0, 300.0]
    table.min_gpus[2], table.max_gpus[2] = 1, 4
    ctx.perf = replace(ctx.perf, goodput=Measured({"slow": MODEL}, {"slow": 2}))
    found = worth_of(ctx.units, ctx, ROOM, SiaOptions())
    assert found.elastic.tolist() == [False, False, True, False]
    assert found.adapts.tolist() == [False, False, True, False]
    # (T - N·S) / (T + S); a gang that has had less service than a restart takes moves for nothing,
    # one that adapts while it is younger; what was never measured costs nothing
    assert found.factor.tolist() == pytest.approx([240 / 330, 1.0, 1.0, 1.0])
    bare = lab.context(TYPES, [1, 1, 1, 1], now=1000.0)
    bare.table.submit_time[:] = 700.0
    bare.table.attained[:] = 300.0
    bare.restart_overhead = 60.0
    assert worth_of(bare.units, bare, ROOM, SiaOptions()).factor.tolist() == pytest.approx(
        [300 / 360] * 4
    )


def test_no_fewer_gpus_than_an_elastic_job_says(lab: Any) -> None:
    ctx = lab.context(TYPES, [1], now=1000.0)
    ctx.table.min_gpus[0], ctx.table.max_gpus[0] = 2, 4
    ctx.perf = replace(
        ctx.perf, goodput=Belief({"slow": MODEL, "fast": MODEL}, {"slow": 4, "fast": 4})
    )
    worth = worth_of(ctx.units, ctx, ROOM, SiaOptions()).worth
    assert (worth[0] > MISSING).tolist() == [False, True, True, False, True, True]


def decided(ctx: RoundContext) -> dict[int, list[int]]:
    """The nodes of each row that holds GPUs after a round."""
    walk = Walk(ctx, make("placement", "min-nodes", {}), preemptive=True)
    make("scheduling", "sia", {}).allocate(ctx.units, ctx, walk)
    return {row: list(held.nodes) for row, held in ctx.occupancy.held.items()}


def test_a_job_on_a_draining_node_is_left_there(lab: Any) -> None:
    for draining, node in ((0, 0), (0b10, 1)):
        ctx = lab.context(TYPES, [4], now=1000.0, holding={0: {1: 0b1111}})
        ctx.perf = replace(ctx.perf, by_type=Speeds())
        ctx.occupancy.draining = draining
        assert decided(ctx) == {0: [node]}


def test_weights_decide_where_only_one_can_run(lab: Any) -> None:
    for weights, runs in (([1.0, 5.0], 1), ([5.0, 1.0], 0), ([np.nan, 5.0], 1)):
        ctx = lab.context("1x4", [4, 4], now=1000.0)
        ctx.table.weight[:] = weights
        assert list(decided(ctx)) == [runs]


def chosen(worth: list[list[float]], **more: Any) -> list[int]:
    problem = Program.of(ROOM, np.array(worth), power=1.0, penalty=1.1, **more)
    found: list[int] = solve(problem, Limits()).choice.tolist()
    return found


def test_a_restarting_job_keeps_its_gpus_whatever_others_are_worth() -> None:
    worth = [[9.0, 9.0, 9.0, 1.0, 1.0, 1.0]]
    now = np.array([SLOW_1])
    assert chosen(worth, now=now, pinned=np.array([False])) == [FAST_1]
    assert chosen(worth, now=now, pinned=np.array([True])) == [SLOW_1]
    lost = [[9.0, 9.0, 9.0, MISSING, 1.0, 1.0]]  # what it is worth is no longer known
    assert chosen(lost, now=now, pinned=np.array([True])) == [SLOW_1]


def test_a_reservation_outweighs_all_others_together() -> None:
    small = [3.0, MISSING, MISSING, 3.0, MISSING, MISSING]
    large = [MISSING] * 5 + [1.0]
    worth = [large, *[small] * 8]
    assert chosen(worth)[0] == NONE
    must = np.array([True, *[False] * 8])
    found = chosen(worth, must=must)
    assert found[0] == SLOW_4
    assert found[1:].count(FAST_1) == 4
