"""The policy `pollux`: from a snapshot to GPUs, and what it may not touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlsched.core.allocation import Allocation
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.goodput.params import BatchLimits
from dlsched.core.walk.walk import Walk
from dlsched.policies.registry import make

A = (0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5)
B = (0.2, 0.01, 0.30, 0.03, 0.05, 0.005, 1.2)
UNKNOWN = (np.nan,) * 7


class Belief:
    """What is believed of jobs: the one of the worked instance, or another, each."""

    oracle = None

    def __init__(self, models: str, profiled: Sequence[int]) -> None:
        perf = {"A": A, "B": B, "?": UNKNOWN}
        noise = {"A": (0.5, 4.0), "B": (0.05, 5.0), "?": (0.0, 1.0)}
        limits = {"A": (128, 4096, 32, 256), "B": (20, 640, 10, 80), "?": (128, 4096, 32, 256)}
        self._perf = np.array([perf[model] for model in models])
        self._noise = np.array([noise[model] for model in models])
        self._limits = np.array([limits[model] for model in models], np.float64)
        self._profiled = np.array(profiled)

    def perf(self, rows: Rows, gpu_type: str = "") -> Floats:
        return self._perf[rows]

    def grads(self, rows: Rows) -> Floats:
        return self._noise[rows]

    def limits(self, rows: Rows, gpu_type: str = "") -> BatchLimits:
        return BatchLimits(*self._limits[rows].T)

    def profiled(self, rows: Rows, gpu_type: str = "") -> Ints:
        return self._profiled[rows]

    def one_gpu_step(self, rows: Rows, gpu_type: str = "") -> Floats:
        return np.full(len(rows), np.nan)

    def restart_s(self, rows: Rows) -> Floats:
        return np.full(len(rows), 30.0)

    def replica_gpus(self, rows: Rows, gpu_type: str = "") -> Ints:
        return np.ones(len(rows), np.int64)

    def version(self, rows: Rows) -> Ints:
        return np.zeros(len(rows), np.int64)


def elastic(
    lab: Any,
    models: str,
    *,
    cluster: str = "2x4",
    profiled: Sequence[int] | None = None,
    ages: Sequence[float] | None = None,
    **given: Any,
) -> RoundContext:
    """A snapshot of elastic jobs."""
    count = len(models)
    ctx: RoundContext = lab.context(cluster, [1] * count, now=10_000.0, **given)
    table = ctx.table
    table.min_gpus[:] = 1
    table.max_gpus[:] = 64
    table.submit_time[:] = ctx.now - np.array(ages or [1000.0] * count)
    ctx.perf = replace(ctx.perf, goodput=Belief(models, profiled or [4] * count))
    return ctx


def decided(lab: Any, ctx: RoundContext, policy: Any = None, **options: Any) -> Allocation:
    """What the policy does with it."""
    policy = policy or make("scheduling", "pollux", {k: str(v) for k, v in options.items()})
    walk = Walk(ctx, make("placement", "min-nodes", {}), preemptive=True)
    policy.allocate(ctx.units, ctx, walk)
    return walk.answer()


def counts(where: Mapping[int, Placement], row: int) -> dict[int, int]:
    """GPUs by node of a row; nothing where it has none."""
    held = where.get(row)
    if held is None:
        return {}
    return {n: mask.bit_count() for n, mask in zip(held.nodes, held.masks, strict=True)}


def test_the_worked_instance_is_decided_at_its_best(lab: Any) -> None:
    ctx = elastic(
        lab,
        "AB?",
        profiled=[4, 4, 0],
        ages=[600.0, 1200.0, 45.0],
        holding={0: {0: 0b0011}, 1: {0: 0b1100}},
    )
    ctx.table.starts[:2] = [2, 1]
    answer = decided(lab, ctx)
    found = [counts(ctx.occupancy.held, row) for row in range(3)]
    assert found in ([{0: 3}, {1: 4}, {0: 1}], [{1: 3}, {0: 4}, {1: 1}])
    assert set(answer.launched) == {0, 1, 2}
    assert all(answer.grants[row].tunes_batch for row in answer.launched)


def test_no_job_grows_beyond_twice_what_was_seen(lab: Any) -> None:
    ctx = elastic(lab, "AB?", cluster="8x4", profiled=[1, 2, 0])
    decided(lab, ctx)
    held = [ctx.occupancy.held[row].gpus for row in range(3)]
    assert held[2] == 1
    assert 1 <= held[0] <= 2
    assert 1 <= held[1] <= 4


def test_a_job_s_own_bounds_hold(lab: Any) -> None:
    ctx = elastic(lab, "A?", cluster="8x4", profiled=[16, 0])
    ctx.table.min_gpus[:] = [1, 3]
    ctx.table.max_gpus[:] = [5, 8]
    decided(lab, ctx)
    assert ctx.occupancy.held[0].gpus <= 5
    assert ctx.occupancy.held[1].gpus == 3


def test_what_runs_well_is_left_alone(lab: Any) -> None:
    ctx = elastic(lab, "AB", holding={0: {0: 0b1111}, 1: {1: 0b1111}})
    answer = decided(lab, ctx)
    assert not answer.suspended
    assert not answer.launched


def test_a_fill_freezes_running_jobs_and_starts_new_ones(lab: Any) -> None:
    given: dict[str, Any] = {"ages": [500.0, 0.0], "holding": {0: {0: 0b0001}}, "profiled": [4, 0]}
    full = elastic(lab, "A?", **given)
    decided(lab, full)
    assert 1 not in full.occupancy.held  # a change now would cost all that it has lived
    fill = elastic(lab, "A?", mode="fill", **given)
    answer = decided(lab, fill)
    assert not answer.suspended
    assert fill.occupancy.held[1].gpus == 1


def test_a_job_that_has_just_started_or_is_on_a_draining_node_stays(lab: Any) -> None:
    given: dict[str, Any] = {"holding": {0: {0: 0b0001}}, "since": 9_990.0}
    free = elastic(lab, "A", **given)
    assert decided(lab, free).suspended
    young = elastic(lab, "A", min_run=60.0, **given)
    assert not decided(lab, young).suspended
    draining = elastic(lab, "AA", **given)
    draining.occupancy.draining = 0b01
    answer = decided(lab, draining)
    assert not answer.suspended
    assert list(counts(draining.occupancy.held, 1)) == [1]


def test_pools_are_kept_to(lab: Any) -> None:
    cluster = "1x4:v100+1x4:k80"
    ctx = elastic(lab, "AA", cluster=cluster, pool=[0, 1], keys=[("", "v100"), ("", "k80")])
    decided(lab, ctx)
    assert [list(counts(ctx.occupancy.held, row)) for row in (0, 1)] == [[0], [1]]


def test_no_job_spans_gpu_types(lab: Any) -> None:
    ctx = elastic(lab, "A", cluster="2x2:v100+2x2:k80", profiled=[8])
    decided(lab, ctx)
    nodes = set(counts(ctx.occupancy.held, 0))
    assert nodes
    assert nodes <= {0, 1} or nodes <= {2, 3}


def test_jobs_that_span_nodes_do_not_meet(lab: Any) -> None:
    apart = elastic(lab, "AAB", cluster="6x2", profiled=[8, 8, 8])
    decided(lab, apart)
    spanning = [
        set(where) for row in range(3) if len(where := counts(apart.occupancy.held, row)) > 1
    ]
    assert len(spanning) > 1
    assert sum(map(len, spanning)) == len(set().union(*spanning))


def test_gangs_of_fixed_size_are_whole_or_absent(lab: Any) -> None:
    ctx = lab.context("2x4", [4, 4, 4, 2], now=10_000.0)
    answer = decided(lab, ctx)
    held = {row: held.gpus for row, held in ctx.occupancy.held.items()}
    assert all(gpus == ctx.table.gang[row] for row, gpus in held.items())
    assert sum(held.values()) >= 6
    assert set(answer.refused) == set(range(4)) - set(held)


def test_the_same_snapshot_is_decided_alike(lab: Any) -> None:
    found = []
    for _ in range(2):
        ctx = elastic(lab, "ABAB?A", cluster="4x4", profiled=[8, 4, 2, 1, 0, 8])
        decided(lab, ctx)
        found.append(dict(ctx.occupancy.held))
    assert found[0] == found[1]


def test_the_library_s_sum_prefers_jobs_that_scale(lab: Any) -> None:
    ctx = elastic(lab, "AB", cluster="1x4", profiled=[4, 4])
    decided(lab, ctx, variant="library")
    assert sum(held.gpus for held in ctx.occupancy.held.values()) == 4


@pytest.mark.parametrize("variant", ["published", "library"])
def test_the_cluster_size_follows_utility(lab: Any, variant: str) -> None:
    crowded = elastic(lab, "A" * 8, cluster="1x4", profiled=[8] * 8)
    options = {"variant": variant, "autoscale": "every-round", "most_nodes": 16}
    answer = decided(lab, crowded, **options)
    assert answer.nodes_wanted is not None
    assert 2 < answer.nodes_wanted <= 16
    idle = elastic(lab, "?", cluster="8x4", profiled=[0])
    answer = decided(lab, idle, variant=variant, autoscale="every-round")
    assert answer.nodes_wanted == 1


def test_the_mean_of_some_rounds_decides_and_outlives_a_restart(lab: Any) -> None:
    options = {"autoscale": "rolling", "window": "3"}
    policy = make("scheduling", "pollux", options)
    wanted = []
    for _ in range(4):
        ctx = elastic(lab, "?", cluster="8x4", profiled=[0])
        wanted.append(decided(lab, ctx, policy).nodes_wanted)
        state = policy.state_dict()
        policy = make("scheduling", "pollux", options)
        policy.load_state_dict(state)
    assert wanted == [8, 8, 1, 8]


def test_a_cluster_without_room_is_not_a_problem(lab: Any) -> None:
    ctx = elastic(lab, "A", cluster="1x4")
    ctx.occupancy.set_service(0, serving=False)
    assert 0 in decided(lab, ctx).refused
