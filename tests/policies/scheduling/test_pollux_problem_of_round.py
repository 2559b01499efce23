"""The problem that Pollux solves in a round: bounds, costs, models by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.core.semantics import EVENTS, ROUNDS
from dlsched.core.walk.walk import Walk
from dlsched.policies.registry import make
from dlsched.policies.scheduling.pollux.options import PolluxOptions
from dlsched.policies.scheduling.pollux.policy import _carry_out as carry_out
from dlsched.policies.scheduling.pollux.problem_of_round import RoundProblem, problem_of_round
from dlsched.policies.scheduling.pollux.speedups import Model, Tables
from tests.policies.scheduling.test_pollux import UNKNOWN, A, B, Belief, decided, elastic


def asked(ctx: RoundContext, **options: Any) -> RoundProblem:
    """The problem, jobs in order of their rows."""
    walk = Walk(ctx, make("placement", "min-nodes", {}), preemptive=True)
    found = problem_of_round(ctx, walk, PolluxOptions(**options), Tables())
    assert found is not None
    return found


def by_row(found: RoundProblem, column: Any) -> list[Any]:
    return [column[place].tolist() for place in np.argsort(found.rows)]


class Measured(Belief):
    """What starts took, as far as it was measured."""

    def __init__(self, models: str, seconds: Sequence[float]) -> None:
        super().__init__(models, [4] * len(models))
        self._seconds = np.array(seconds)

    def restart_s(self, rows: Rows) -> Floats:
        return self._seconds[rows]


def test_a_change_costs_what_the_job_s_own_restarts_were_measured_to_take(lab: Any) -> None:
    ctx = elastic(lab, "AAAA", ages=[1000.0, 1000.0, 1000.0, 0.0])
    ctx.table.starts[:] = [3, 1, 0, 0]
    ctx.perf = replace(ctx.perf, goodput=Measured("AAAA", [10.0, 90.0, np.nan, 10.0]))
    ctx.restart_overhead = 50.0
    found = asked(ctx)
    factor = by_row(found, found.problem.factor)
    # (T - R·δ) / (T + δ): two restarts after the first start, none, none of unknown length; new
    assert factor == pytest.approx([980 / 1010, 1000 / 1090, 1000 / 1050, 0.0])
    told = asked(ctx, restart_s=20.0)
    assert by_row(told, told.problem.factor) == pytest.approx([960 / 1020, *[1000 / 1020] * 2, 0])
    library = asked(ctx, variant="library", keep=0.75)
    assert library.problem.factor.tolist() == [0.75] * 4


def test_a_job_has_no_more_gpus_than_its_batch_has_parts_or_than_it_may_grow_to(lab: Any) -> None:
    ctx = elastic(lab, "AB?A", cluster="8x8", profiled=[40, 40, 0, 3])
    belief = ctx.perf.goodput
    assert isinstance(belief, Belief)
    belief._limits = np.array(
        [[128, 1000, 32, 256], [20, 640, 10, 80], [128, 4096, 32, 256], [128, 4096, 32, 256]],
        np.float64,
    )
    ctx.table.max_gpus[1] = 50
    found = asked(ctx)
    # 1000 // 32 parts; what it says itself; seen on none; seen on 3
    assert by_row(found, found.problem.most) == [31, 50, 1, 6]
    wide = asked(ctx, growth=3.0, most_gpus=8)
    assert by_row(wide, wide.problem.most) == [8, 8, 1, 8]
    small = elastic(lab, "A", cluster="1x4", profiled=[40])
    assert asked(small).problem.most.tolist() == [4]
    assert asked(small).problem.speedup.shape[2] == 5  # no tables beyond the cluster


def test_a_job_that_must_stay_is_no_problem_whatever_its_bounds_are(lab: Any) -> None:
    holding = {0: {0: 0b1111}, 1: {1: 0b0001}}
    ctx = elastic(lab, "AAA", holding=holding, since=9_990.0, min_run=60.0)
    ctx.table.min_gpus[:] = [1, 3, 1]  # row 1 runs on fewer than it says by now
    ctx.table.max_gpus[:] = [2, 8, 8]  # row 0 on more
    found = asked(ctx)
    problem = found.problem
    assert by_row(found, problem.pinned) == [True, True, False]
    assert by_row(found, problem.least) == [1, 1, 1]
    assert by_row(found, problem.most) == [4, 8, 8]


class Types(Belief):
    """Of one job by GPU type: it has run on v100 more widely, and best is known of k80."""

    def __init__(self, on_k80: int, known: str = "both") -> None:
        super().__init__("A", [4])
        self._on_k80, self._both = on_k80, known == "both"

    def perf(self, rows: Rows, gpu_type: str = "") -> Floats:
        v100 = A if self._both else UNKNOWN
        return np.array([B if gpu_type == "k80" else v100])[rows]

    def profiled(self, rows: Rows, gpu_type: str = "") -> Ints:
        return np.array([self._on_k80 if gpu_type == "k80" else 4])[rows]

    def limits(self, rows: Rows, gpu_type: str = "") -> BatchLimits:
        return BatchLimits(128, 4096, 32 if gpu_type == "k80" else 64, 256)


@pytest.mark.parametrize(
    ("on_k80", "known", "perf", "local_min"),
    [(1, "both", A, 64), (6, "both", B, 32), (1, "k80", B, 32)],
)
def test_of_several_types_that_counts_on_which_it_has_run_most_widely(
    lab: Any, on_k80: int, known: str, perf: tuple[float, ...], local_min: int
) -> None:
    ctx = elastic(lab, "A", cluster="2x4:v100+2x4:k80")
    ctx.perf = replace(ctx.perf, goodput=Types(on_k80, known))
    one = elastic(lab, "A", cluster="4x4")
    alone = Belief("A", [max(on_k80, 4)])
    alone._perf = np.array([perf])
    alone._limits = np.array([[128, 4096, local_min, 256]], np.float64)
    one.perf = replace(one.perf, goodput=alone)
    assert asked(ctx).problem.speedup == pytest.approx(asked(one).problem.speedup)


def test_a_job_that_cannot_have_its_new_gpus_keeps_its_old_ones_if_they_are_free(lab: Any) -> None:
    holding = {0: {0: 0b0011}, 1: {1: 0b0001}}

    def carried_out(plan: dict[int, list[tuple[int, int]]]) -> tuple[dict[int, int], list[int]]:
        ctx = elastic(lab, "AAA", holding=holding)
        walk = Walk(ctx, make("placement", "min-nodes", {}), preemptive=True)
        refused = carry_out(plan, ctx, walk)
        return {row: held.gpus for row, held in ctx.occupancy.held.items()}, list(refused)

    # row 0 is to have more than the node has, row 1 moves, row 2 starts
    assert carried_out({0: [(0, 5)], 1: [(0, 2)], 2: [(1, 4)]}) == ({0: 2, 1: 2, 2: 4}, [])
    # row 2 has come to where row 0 was
    assert carried_out({2: [(0, 4)], 0: [(1, 5)]}) == ({1: 1, 2: 4}, [0])


def test_without_rounds_it_asks_to_be_woken_as_jobs_grow_older(lab: Any) -> None:
    for semantics, wakes in ((ROUNDS, np.inf), (EVENTS, 10_030.0)):
        ctx = elastic(lab, "A", cluster="1x4", semantics=semantics)
        assert decided(lab, ctx, interval_s=30.0).wake_at == wakes
    idle = elastic(lab, "A", cluster="1x4", semantics=EVENTS)
    idle.active = idle.active[:0]
    assert decided(lab, idle).wake_at == np.inf


def model(*perf: tuple[float, ...]) -> Model:
    """Of jobs that differ in speed."""
    noise, limits = [(0.5, 4.0)] * len(perf), [(128.0, 4096.0, 32.0, 256.0, 1.0, 0.0)] * len(perf)
    return Model(
        PerfParams(*np.array(perf).T),
        GradParams(*np.array(noise).T),
        BatchLimits(*np.array(limits).T),
    )


def test_tables_are_kept_until_something_new_is_believed_or_more_is_needed() -> None:
    tables, ids, most = Tables(), np.array([7, 9]), np.array([4, 4])

    def made(version: int, *perf: tuple[float, ...], most: Ints = most) -> Floats:
        return tables.goodput(ids, np.array([1, version]), model(*perf), most)

    first = made(1, A, B)
    assert made(1, B, A).tolist() == first.tolist()  # nothing new was reported
    fresh = Tables().goodput(ids, np.array([1, 1]), model(B, A), most)
    second = made(2, B, A)
    assert second[0].tolist() == first[0].tolist()
    assert second[1].tolist() == fresh[1].tolist() != first[1].tolist()
    wider = made(2, B, B, most=np.array([6, 4]))
    assert wider[0, :, :5].tolist() == fresh[0].tolist()  # more is needed of it, so it is made anew
    assert wider[1, :, :5].tolist() == second[1].tolist()
