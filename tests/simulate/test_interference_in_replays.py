"""Any number of jobs on the same GPUs in a replay: speeds follow partners and limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.speed.colocation import ColocationTable
from dlsched.core.units import Units
from simulate.checking import check_records
from simulate.results.outcomes import result_of


class Together(SchedulingPolicy[NoOptions]):
    """Any job that comes joins any that is there."""

    name = "together"

    def __init__(self) -> None:
        super().__init__(NoOptions())

    @property
    def pairs_units(self) -> bool:
        return True

    def allocate(self, units: Units, ctx: Any, walk: Any) -> None:
        for row in units.rows.tolist():
            if row in ctx.occupancy.held:
                continue
            if ctx.occupancy.held:
                walk.share(row, min(ctx.occupancy.held))
            else:
                walk.place(row)


def engine_of(lab: Any, trace: Any, source: str, **given: Any) -> Any:
    engine = lab.engine(trace, cluster="1x1", clock="events", interference=source, **given)
    engine.parts.scheduling = Together()
    return engine


def test_speeds_follow_partners_that_come_and_go(lab: Any) -> None:
    """Each uses 0.8 of the GPU alone: two run at 1/1.6 of their speed, three at 1/2.4."""
    trace = lab.trace([(0, 1, 100), (20, 1, 100), (36, 1, 10)], gpu_util=[80.0] * 3)
    engine = engine_of(lab, trace, "utilisation")
    stopped = engine.run()
    # A: 20 alone, 16 in two -> 30 done; three until C has done its 10, at 36 + 24 = 60
    # A then has 100 − 40 = 60 left, B 100 − 10 − 10 = 80; both at 1/1.6: A ends at 60 + 96 = 156
    # B has 20 left then, alone
    assert engine.world.table.finish.tolist() == pytest.approx([156, 176, 60])
    result = result_of(trace, lab.cluster("1x1"), lab.settings(), engine, stopped)
    check_records(result)
    figures = result.summary
    assert figures["shared_gpu_seconds"] == pytest.approx(136), "from 20 to 156"
    assert figures["counted_twice_gpu_seconds"] == pytest.approx(136 + 24)
    assert (figures["jobs_with_partners"], figures["most_jobs_together"]) == (3, 3)
    jobs = result.jobs.extra
    assert jobs["beside"].tolist() == ["B C", "A C", "A B"]
    assert jobs["shared_seconds"].tolist() == pytest.approx([136, 136, 24])
    assert jobs["shared_speed"].tolist() == pytest.approx([80 / 136, 80 / 136, 1 / 2.4])
    assert np.isnan(jobs["gpu_memory_peak"]).all()


def test_jobs_without_interference_are_as_fast_as_alone(lab: Any) -> None:
    engine = engine_of(lab, lab.trace([(0, 1, 100), (0, 1, 50), (10, 1, 50)]), "none")
    engine.run()
    assert engine.world.table.finish.tolist() == [100, 50, 60]


def test_a_limit_changes_the_speeds_of_all_on_the_gpu_until_its_job_leaves(lab: Any) -> None:
    trace = lab.trace([(0, 1, 100), (0, 1, 100)], gpu_util=[70.0, 80.0])
    engine = engine_of(lab, trace, "utilisation")
    world = engine.world

    def throttle(engine: Any, allocation: Any) -> None:
        world.limit({1: 0.5}, engine.now)

    engine.observers.append(throttle)
    engine.run()
    # k = 0.7 + 0.4 − 1 = 0.1: A takes 1.05 times as long, B (1.1 / 0.5) times
    assert world.table.finish[0] == pytest.approx(105)
    # B alone is still throttled: 100 − 105·0.5/1.1 at half speed
    assert world.table.finish[1] == pytest.approx(105 + (100 - 105 * 0.5 / 1.1) / 0.5)
    assert world.table.gpu_limit.tolist() == [1, 1]


def test_a_policy_that_packs_what_is_not_known_fails_with_the_reason(lab: Any) -> None:
    table = ColocationTable(("model",), {(("A",), ("A",), 1): (0.9, 0.9)}, frozenset({1}))
    trace = lab.trace([(0, 1, 100), (0, 1, 100)], model=["A", "B"])
    engine = engine_of(lab, trace, "measured", pairs=table)
    with pytest.raises(Exception, match="how fast they run together is not known"):
        engine.run()


def test_the_world_says_which_jobs_it_knows_nothing_of(lab: Any) -> None:
    """The belief is gone, so that the walk lets the policy do it."""
    table = ColocationTable(("model",), {(("A",), ("A",), 1): (0.9, 0.9)}, frozenset({1}))
    trace = lab.trace([(0, 1, 100), (0, 1, 100)], model=["A", "B"])
    engine = engine_of(lab, trace, "measured", pairs=table)
    engine.cycle.ctx.perf = type(engine.cycle.ctx.perf)()
    with pytest.raises(BadInput, match="jobs A and B share GPUs, and --interference measured"):
        engine.run()


def test_parts_of_gpus_are_joined_only_where_speeds_are_known(lab: Any) -> None:
    """`--share`: the second half finds a partner that it was measured with."""
    table = ColocationTable(("model",), {(("A",), ("B",), 1): (0.8, 0.5)}, frozenset({1}))
    trace = lab.trace([(0, 1, 80), (0, 1, 50), (0, 1, 50)], model=["A", "C", "B"])
    trace.columns["gpu_share"] = np.array([0.5, 0.5, 0.5])
    engine = lab.engine(trace, cluster="1x1", clock="events", interference="measured", pairs=table)
    engine.run()
    # B joins A at once: both are slowed; C waits until the GPU is its own
    assert engine.world.table.finish.tolist() == pytest.approx([100, 150, 100])
