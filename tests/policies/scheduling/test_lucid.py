"""Lucid: the profiling stage, packing, and what must hold on any trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.core.speed.colocation import ColocationTable
from dlsched.policies.scheduling.lucid.arrivals import GivenSeries
from dlsched.policies.scheduling.lucid.classes import classes_of_pairs, classes_of_use
from dlsched.policies.scheduling.lucid.options import LucidOptions
from simulate.engine import Engine

PLAIN = ("profiling_nodes=0", "sharing=always", "check_s=1")
PAIRS = ColocationTable(
    ("model",),
    {((one,), (other,), 1): (0.5, 0.8) for one in "ab" for other in "ab"},
    frozenset({1}),
)


def with_traits(lab: Any, jobs: list[Any], **columns: Any) -> Any:
    count = len(jobs)
    given = {"model": ["a"] * count, "share_score": [0.0] * count, "gpu_memory_gib": [1.0] * count}
    return lab.trace(jobs, **(given | columns))


def run(lab: Any, trace: Any, *options: str, **given: Any) -> Any:
    given.setdefault("cluster", "1x2")
    return lab.run(trace, "lucid", options=options, clock="events", pairs=PAIRS, **given)


# -- the profiling stage --------------------------------------------------------------------------

STAGE = ("profiling_nodes=1", "profiling_s=100", "scaling=false", "sharing=never")


def test_a_short_job_ends_where_it_is_profiled_and_a_long_one_moves_to_the_cluster(lab) -> None:
    result = run(lab, [(0, 1, 50), (0, 1, 300)], *STAGE, cluster="3x1")
    assert lab.spans(result) == {"A": (0, 50), "B": (50, 350)}
    assert result.jobs.starts.tolist() == [1, 2]
    nodes = [result.segments.node[result.segments.job == job].tolist() for job in (0, 1)]
    assert nodes == [[2], [2, 0]]  # the last node profiles


def test_the_profiling_stage_goes_by_gpus_and_its_head_blocks(lab) -> None:
    jobs = [(0, 2, 30), (1, 3, 20), (1, 2, 20), (2, 1, 20)]
    spans = lab.spans(run(lab, jobs, *STAGE, cluster="3x3"))
    assert spans == {"A": (0, 30), "D": (2, 22), "C": (30, 50), "B": (50, 70)}


def test_a_job_with_too_many_gpus_is_not_profiled(lab) -> None:
    result = run(lab, [(0, 2, 300)], *STAGE, "profiling_gpus=1", cluster="3x2")
    assert result.segments.node.tolist() == [0]
    assert result.jobs.starts.tolist() == [1]


def test_the_stage_borrows_an_idle_node_while_many_wait_and_gives_it_back(lab) -> None:
    jobs = [(0, 1, 150)] * 26
    options = ("profiling_nodes=1", "profiling_s=100", "sharing=never")
    options += ("predicted_jobs=1", "predicted_gpus=0,0,0,0,0,0,0,0")
    engine = lab.engine(jobs, "lucid", cluster="3x4", options=options, clock="events")
    engine.run()
    changes = engine.parts.scheduling.changes
    assert [by for _, by in changes] == [1, -1]
    assert changes[0][0] == 0  # 22 wait at once
    assert changes[1][0] % 100 == 0


def test_a_host_that_profiles_must_exist(lab) -> None:
    with pytest.raises(BadInput, match="profiling_hosts: the cluster has no node 'x9'"):
        run(lab, [(0, 1, 5)], "profiling_hosts=x9")


# -- packing --------------------------------------------------------------------------------------


def test_a_job_joins_the_first_that_suits_it_though_gpus_are_idle(lab) -> None:
    trace = with_traits(lab, [(0, 1, 100), (5, 1, 300), (10, 1, 40), (11, 1, 30)])
    jobs = run(lab, trace, *PLAIN, cluster="1x4").jobs
    assert jobs.extra["packed"].tolist() == [0, 0, 1, 1]  # C joins A, then D joins B
    assert jobs.finish_time[2] == 10 + 40 / 0.5


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"share_score": [2.0, 1.0]}, "the classes are too heavy together"),
        ({"share_score": [np.nan, 0.0]}, "it was never profiled"),
        ({"gpu_memory_gib": [9.0, 8.0]}, "the memory does not fit"),
        ({"gpu_memory_gib": [np.nan, 1.0]}, "its memory is not known"),
        ({"model": ["a", "c"]}, "how fast they are together is not known"),
    ],
)
def test_jobs_are_not_packed_where(lab, columns: dict[str, Any], why: str) -> None:
    trace = with_traits(lab, [(0, 1, 100), (5, 1, 50)], **columns)
    result = run(lab, trace, *PLAIN, "memory_gib=16", cluster="1x1")
    assert lab.spans(result)["B"] == (100, 150), why
    unpaired = result.jobs.extra.get("unpaired", np.zeros(2)).tolist()
    told = [0, 0] if "heavy" in why or "fit" in why else [0, 1 + ("together" in why)]
    assert np.nan_to_num(unpaired).tolist() == told
    assert len(result.warnings) == (told[1] > 0)


def test_a_job_that_is_packed_later_is_not_counted_as_one_that_cannot_be(lab) -> None:
    trace = with_traits(lab, [(0, 1, 50), (5, 1, 150), (6, 1, 100)], share_score=[np.nan, 0.0, 0.0])
    result = run(lab, trace, *PLAIN, cluster="1x1")
    assert result.jobs.extra["packed"].tolist() == [0, 1, 0]  # B beside C, when A has ended
    assert [text.partition(":")[0] for text in result.warnings] == [
        "1 job could not be packed (first"
    ]


def test_a_long_job_does_not_join_a_much_shorter_one(lab) -> None:
    trace = with_traits(lab, [(0, 1, 100), (5, 1, 201)])
    assert lab.spans(run(lab, trace, *PLAIN, cluster="1x1"))["B"][0] == 100
    trace = with_traits(lab, [(0, 1, 100), (5, 1, 200)])
    assert lab.spans(run(lab, trace, *PLAIN, cluster="1x1"))["B"][0] == 5


def test_without_packing_the_head_blocks_and_with_it_smaller_jobs_pass(lab) -> None:
    jobs = [(0, 2, 100), (1, 3, 10), (2, 1, 90)]
    options = ("profiling_nodes=0", "check_s=1")
    assert lab.spans(run(lab, jobs, *options, "sharing=never", cluster="1x3"))["C"][0] > 2
    assert lab.spans(run(lab, jobs, *options, "sharing=always", cluster="1x3"))["C"][0] == 2


def test_a_job_that_lost_its_partner_may_get_another(lab) -> None:
    trace = with_traits(lab, [(0, 1, 50), (1, 1, 100), (60, 1, 20)])
    jobs = run(lab, trace, *PLAIN, cluster="1x1").jobs
    assert jobs.first_start_time.tolist() == [0, 1, jobs.first_start_time[2]]
    first_end = jobs.finish_time[0]
    assert first_end <= jobs.first_start_time[2] < jobs.finish_time[1]


def test_few_predicted_arrivals_switch_packing_off() -> None:
    series = GivenSeries([9, 9, 1, 2, 3, 1, 2, 50], [1] * 8, begin=1000.0)
    assert series.jobs(1700.0) == pytest.approx((1 + 2 + 3 + 1 + 2) / 5)  # slots 2 to 6
    assert series.jobs(1000.0 + 6 * 600) == 50
    assert series.jobs(1000.0 + 7 * 600) == 10  # the series is over


# -- what must hold on any trace ------------------------------------------------------------------

JOBS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 4), st.integers(1, 500)), min_size=1, max_size=25
)
SCORES = st.lists(st.sampled_from([0.0, 1.0, 2.0, np.nan]), min_size=25, max_size=25)


@given(jobs=JOBS, scores=SCORES, memory=st.integers(2, 14), profiles=st.booleans())
@settings(max_examples=40)
def test_packs_keep_the_rules_and_only_the_end_of_profiling_interrupts(
    lab, jobs, scores, memory, profiles
) -> None:
    count = len(jobs)
    trace = with_traits(
        lab,
        jobs,
        share_score=scores[:count],
        gpu_memory_gib=[float(1 + k % memory) for k in range(count)],
    )
    options = ("memory_gib=12", "check_s=1", "profiling_s=60", "sharing=always")
    options += (f"profiling_nodes={int(profiles)}",)

    def look(engine: Engine, _: Any) -> None:
        table, beside = engine.world.table, engine.world.occupancy.beside
        score = table.extra["share_score"]
        for row, others in beside.items():
            assert len(others) == 1
            assert score[row] + score[others[0]] <= 2
            assert table.gpu_memory[row] + table.gpu_memory[others[0]] < 12
            assert table.gang[row] == table.gang[others[0]]

    runs = []
    for _ in range(2):
        engine = lab.engine(
            trace, "lucid", cluster="3x4", options=options, clock="events", pairs=PAIRS
        )
        engine.observers.append(look)
        engine.run()
        table = engine.world.table
        assert (table.preemptions + table.migrations <= int(profiles)).all()
        runs.append((table.first_start.tolist(), table.finish.tolist()))
    assert runs[0] == runs[1]


# -- packing classes ------------------------------------------------------------------------------


def test_classes_follow_from_pairs_and_from_the_use_of_gpus() -> None:
    assert classes_of_pairs(np.array([0.0, 0.849, 0.85, 0.949, 0.95, 1.2])).tolist() == [
        2, 2, 1, 1, 0, 0,
    ]  # fmt: skip
    use = classes_of_use(
        np.array([10.0, 40.0, 10.0, 70.0, 50.0, np.nan]),
        np.array([5.0, 30.5, 31.0, np.nan, np.nan, 10.0]),
        LucidOptions(),
    )
    assert use[:5].tolist() == [0, 1, 2, 2, 1]
    assert np.isnan(use[5])


def test_a_job_is_packed_by_its_measured_use_where_no_class_is_said(lab) -> None:
    trace = with_traits(
        lab, [(0, 1, 100), (5, 1, 50)], share_score=[np.nan, np.nan], gpu_util=[10.0, 20.0]
    )
    assert lab.spans(run(lab, trace, *PLAIN, cluster="1x1"))["B"][0] == 5
    trace = with_traits(
        lab, [(0, 1, 100), (5, 1, 50)], share_score=[np.nan, np.nan], gpu_util=[99.0, 30.0]
    )
    assert lab.spans(run(lab, trace, *PLAIN, cluster="1x1"))["B"][0] == 100
