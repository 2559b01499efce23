"""Two jobs on the same GPUs: how fast they run, when they end, and that no GPU is counted twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.context import RoundContext
from dlsched.core.errors import InvariantBroken, PolicyFailed
from dlsched.core.invariants import check_occupancy
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.semantics import Semantics
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.placement.spanning import FirstFree
from simulate.checking import check_records
from simulate.results.outcomes import result_of

HALF = ("A", "B", "gpu")


class Together(SchedulingPolicy[NoOptions]):
    """Any job that comes joins any that is there."""

    name = "together"

    def __init__(self) -> None:
        super().__init__(NoOptions())

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        for row in units.rows.tolist():
            if ctx.occupancy.held:
                walk.share(row, min(ctx.occupancy.held))
            else:
                walk.place(row)


def engine_of(lab: Any, jobs: list[tuple[float, float, float]], **given: Any) -> Any:
    """Jobs of models A and B in turn; alone 10 steps/s, together A does 6 and B does 5."""
    table = lab.throughputs({("A", "gpu"): 10.0, ("B", "gpu"): 10.0}, {HALF: (6.0, 5.0)})
    steps = [steps for _, _, steps in jobs]
    models = ["AB"[k % 2] for k in range(len(jobs))]
    trace = lab.trace(jobs, total_iterations=steps, model=models)
    given.setdefault("clock", "events")
    engine = lab.engine(trace, cluster="1x2", throughputs=table, **given)
    engine.parts.scheduling = Together()
    return engine


def test_each_runs_at_the_pace_of_the_pair_while_there_is_one(lab: Any) -> None:
    # A does 1000 steps: 100 in 10 s alone, then 6/s beside B; B needs 500/5 = 100 s
    engine = engine_of(lab, [(0, 1, 1000), (10, 1, 500)])
    engine.run()
    table = engine.world.table
    # B ends at 110; by then A has 100 + 600 = 700 steps and does the rest alone
    assert table.finish.tolist() == pytest.approx([140, 110])
    assert engine.world.shared.counted_twice == pytest.approx(100)
    assert table.attained.tolist() == pytest.approx([140, 100])


def test_an_overhead_is_counted_once_when_the_pace_changes(lab: Any) -> None:
    engine = engine_of(lab, [(0, 1, 1000), (10, 1, 500)], overhead=30.0)
    engine.run()
    table = engine.world.table
    # A works from 30 on beside B (which restarts till 40, and ends at 140), then alone
    assert table.finish[1] == pytest.approx(140)
    assert table.finish[0] == pytest.approx(140 + (1000 - 6 * 110) / 10)
    assert table.restart_s.tolist() == pytest.approx([30, 30])
    assert table.overhead_s.tolist() == pytest.approx([30, 30])


def test_whole_steps_end_with_the_later_of_two(lab: Any) -> None:
    steps = Semantics(name="steps", grid=60.0, drift=True, release="tick", between="none")
    engine = engine_of(lab, [(0, 1, 100), (0, 1, 200)], clock="", semantics=steps)
    engine.run()
    # in one round, at 0.6 and 0.5 of their pace alone: A is done after 16.7 s, B after 40
    assert engine.world.table.finish.tolist() == pytest.approx([40, 40])


def test_results_count_every_gpu_once(lab: Any) -> None:
    engine = engine_of(lab, [(0, 1, 1000), (10, 1, 500)])
    stopped = engine.run()
    trace = lab.trace([(0, 1, 1000), (10, 1, 500)])
    result = result_of(trace, engine.world.occupancy.cluster, lab.settings("fifo"), engine, stopped)
    check_records(result)
    assert result.summary["gpu_utilization"] == pytest.approx(140 / (2 * 140))
    assert result.summary["shared_gpu_seconds"] == pytest.approx(100)


# -- the records ----------------------------------------------------------------------------------


def test_gpus_are_free_when_the_last_job_that_shares_them_has_left(lab: Any) -> None:
    occupancy = Occupancy(lab.cluster("1x4"))
    where = Placement((0,), (0b11,))
    occupancy.take(5, where)
    assert occupancy.join(3, 5) == where
    occupancy.join(7, 3)
    check_occupancy(occupancy)
    assert occupancy.beside == {3: (5, 7), 5: (3, 7), 7: (3, 5)}
    assert occupancy.free_total == 2
    occupancy.release(5)
    check_occupancy(occupancy)
    assert occupancy.beside == {3: (7,), 7: (3,)}
    twin = occupancy.copy()
    occupancy.take_again(5, where)
    assert occupancy.beside[5] == (3, 7)
    twin.release(3)
    assert twin.beside == {}
    twin.release(7)
    check_occupancy(twin)
    assert twin.free_total == 4


def test_sharing_with_no_job_or_twice_is_refused(lab: Any) -> None:
    occupancy = Occupancy(lab.cluster("1x4"))
    with pytest.raises(InvariantBroken, match="which has none"):
        occupancy.join(0, 1)
    occupancy.take(1, Placement((0,), (1,)))
    occupancy.take(0, Placement((0,), (2,)))
    with pytest.raises(InvariantBroken, match="holds GPUs already"):
        occupancy.join(0, 1)


def test_a_walk_takes_sharing_back(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2], holding={0: {0: 0b11}})
    ctx.may_share = True
    walk = Walk(ctx, FirstFree(NoOptions()), preemptive=True)
    mark = walk.mark()
    walk.share(1, 0)
    walk.suspend(0)
    assert ctx.occupancy.held == {1: Placement((0,), (0b11,))}
    walk.rollback(mark)
    check_occupancy(ctx.occupancy)
    assert ctx.occupancy.held == {0: Placement((0,), (0b11,))}
    assert ctx.occupancy.beside == {}


@pytest.mark.parametrize(("last", "ends"), [(30, (60, 90)), (50, (150, 200))])
def test_jobs_of_a_trace_share_where_it_says_so(lab: Any, last: int, ends: Any) -> None:
    """One GPU, halves but for job C; behind it a half joins only if it keeps no job waiting."""
    trace = lab.trace([(0, 1, 100), (0, 1, 60), (0, 1, 50), (0, 1, last)])
    trace.columns["gpu_share"] = np.array([0.5, 0.5, np.nan, 0.5])
    spans = lab.spans(lab.run(trace, "fifo", cluster="1x1"))
    assert spans == {"A": (0, 100), "B": (0, 60), "C": (100, 150), "D": ends}


def test_a_world_without_sharing_refuses_it(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2, 1], holding={0: {0: 0b11}})
    walk = Walk(ctx, FirstFree(NoOptions()), preemptive=True)
    with pytest.raises(PolicyFailed, match="which this cluster does not do"):
        walk.share(1, 0)
    ctx.may_share = True
    with pytest.raises(PolicyFailed, match="2 GPUs of a gang of 1"):
        walk.share(2, 0)
    with pytest.raises(PolicyFailed, match="which has none"):
        walk.share(1, 2)


def test_a_row_is_placed_on_some_nodes_only(lab: Any) -> None:
    ctx = lab.context("1x2:a+1x2:b", [1, 2, 1], holding={0: {0: 0b1}})
    walk = Walk(ctx, FirstFree(NoOptions()), preemptive=True)
    assert walk.place(1, nodes=0b10) == Placement((1,), (0b11,))
    refused = walk.place(2, nodes=0b10)
    assert getattr(refused, "reason", "") == "Resources"
    walk.suspend(0)
    assert getattr(walk.place(0, nodes=0b10), "reason", "") == "Resources", "not back to its own"
    assert walk.place(0) == Placement((0,), (0b1,))
