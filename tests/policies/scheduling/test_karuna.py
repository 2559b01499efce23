"""Karuna on GPUs: just enough for deadlines, queues for the others, and its place in a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.registry import make
from dlsched.policies.scheduling.karuna.just_enough import Division, divide
from dlsched.policies.scheduling.karuna.queues import Sample, best_limits, mean_response, queues_of

SHEET = {1: 5.0, 2: 10.0, 4: 18.0, 8: 36.1}  # steps per second by GPUs


def seconds(steps: list[float], rates: list[dict[int, float]], width: int = 8) -> Any:
    found = np.full((len(steps), width), np.inf)
    for job, (left, rate) in enumerate(zip(steps, rates, strict=True)):
        for gpus, speed in rate.items():
            found[job, gpus - 1] = left / speed
    return found


def divided(gpus: int, due_in: list[float], takes: Any, gang: list[int], **more: Any) -> Division:
    queue = more.pop("queue", [1] * len(gang))
    return divide(
        gpus,
        due_in=np.array(due_in),
        seconds=takes,
        gang=np.array(gang),
        queue=np.array(queue),
        **more,
    )


def test_the_worked_example_needs_four_gpus() -> None:
    takes = seconds([13311], [SHEET])
    found = divided(16, [964.0], takes, [1], work_conserving=False)
    assert (found.sizes.tolist(), found.free) == ([4], 12)
    assert divided(16, [964.0], takes, [1]).sizes.tolist() == [8]  # GPUs that are left help it


def test_a_deadline_that_does_not_fit_is_given_up_and_its_job_waits_as_others_do() -> None:
    takes = seconds([100, 900], [{1: 10.0}, {1: 10.0, 8: 100.0}])
    found = divided(
        8,
        [
            20.0,
            10.0,
        ],
        takes,
        [1, 8],
    )
    assert (found.sizes.tolist(), found.demoted.tolist()) == ([0, 8], [True, False])
    found = divided(8, [20.0, 5.0], takes, [1, 8])  # 900 steps in 5 s: not on 8 GPUs either
    assert (found.sizes.tolist(), found.demoted.tolist()) == ([1, 0], [False, True])


def test_of_a_table_that_is_not_monotone_the_smallest_number_that_is_enough_counts() -> None:
    takes = seconds([100], [{1: 1.0, 2: 10.0, 4: 5.0, 8: 20.0}])
    assert divided(8, [10.0], takes, [1], work_conserving=False).sizes.tolist() == [2]
    assert divided(8, [10.0], takes, [1]).sizes.tolist() == [8]  # over the dip at 4
    assert divided(7, [10.0], takes, [1]).sizes.tolist() == [2]


def test_the_others_are_served_by_queue_then_arrival_and_passed_where_they_do_not_fit() -> None:
    takes = seconds([1] * 4, [{1: 1.0}] * 4)
    never = [float("inf")] * 4
    found = divided(5, never, takes, [2, 4, 3, 1], queue=[2, 1, 2, 2])
    assert (found.sizes.tolist(), found.free) == ([0, 4, 0, 1], 0)


def test_a_job_changes_its_gpus_only_where_that_gains_more_than_a_restart_costs() -> None:
    takes = seconds([100], [{4: 1.0, 8: 1.25}])  # 100 s or 80 s
    here = {"present": np.array([4]), "restart_s": 30.0}
    assert divided(8, [200.0], takes, [4], **here).sizes.tolist() == [4]
    assert divided(8, [200.0], takes, [4], present=np.array([4])).sizes.tolist() == [8]
    assert divided(8, [90.0], takes, [4], present=np.array([4]), restart_s=5).sizes.tolist() == [8]


@given(
    gpus=st.integers(1, 16),
    jobs=st.lists(
        st.tuples(
            st.one_of(st.integers(-5, 60), st.just(float("inf"))),
            st.lists(st.integers(1, 80), min_size=8, max_size=8),
            st.integers(1, 8),
            st.integers(1, 3),
        ),
        min_size=1,
        max_size=8,
    ),
    keeps=st.booleans(),
)
def test_no_gpu_is_given_twice_and_admitted_jobs_are_in_time(
    gpus: int, jobs: list[Any], keeps: bool
) -> None:
    due, takes, gang, queue = map(list, zip(*jobs, strict=True))
    table = np.array(takes, np.float64)
    found = divided(gpus, due, table, gang, queue=queue, work_conserving=keeps)
    assert found.sizes.sum() + found.free == gpus
    for job, size in enumerate(found.sizes.tolist()):
        if due[job] < np.inf and not found.demoted[job]:
            assert table[job, size - 1] <= due[job]
        else:
            assert size in (0, gang[job])
            assert size or gang[job] > found.free  # no job waits beside GPUs that it could use
    calm = divided(gpus, [float("inf")] * len(jobs), table, gang, queue=queue)
    assert not calm.demoted.any()  # without deadlines only the queues count
    order = np.argsort(queue, kind="stable")
    free = gpus
    for job in order.tolist():
        assert bool(calm.sizes[job]) == (gang[job] <= free)
        free -= int(calm.sizes[job])


def test_queues_begin_at_their_limits() -> None:
    assert queues_of(np.array([0.0, 9.9, 10.0, 50.0]), (10.0, 40.0)).tolist() == [1, 1, 2, 3]


def test_limits_of_a_sample_are_those_of_its_distribution() -> None:
    shares = (np.arange(20_000) + 0.5) / 20_000
    sizes = Sample(-np.log(1 - shares))  # exponential, mean 1
    assert mean_response(sizes, 0.5, ()) == pytest.approx(2.0, rel=1e-3)
    limits, mean = best_limits(sizes, 0.5, 2)
    assert mean == pytest.approx(1.540, abs=2e-3)
    assert limits == pytest.approx((1.463,), rel=0.05)
    assert best_limits(sizes, 0.5, 1) == ((), mean_response(sizes, 0.5, ()))
    assert mean_response(sizes, 1.01, ()) == np.inf


def test_limits_follow_from_a_sample_of_past_jobs() -> None:
    none = make("scheduling", "karuna", {"sample": (0.0, 0.0)})
    assert none._beta == none.options.beta
    few = make("scheduling", "karuna", {"sample": (100.0, 200.0, 5000.0), "queues": "2"})
    assert len(few._beta) == 1
    assert few._alpha == few._beta
    assert 200 <= few._beta[0] <= 5000


# -- in a replay ----------------------------------------------------------------------------------

LINEAR = ThroughputTable(
    [Measurement(gpu_type="v100", scale=k, kind=JobKind("m"), rate=float(k)) for k in (1, 2, 4, 8)]
)


def elastic(
    lab: Any, jobs: list[tuple[float, int, float]], deadline: list[float], **more: Any
) -> Any:
    count = len(jobs)
    trace = lab.trace(
        jobs,
        model=["m"] * count,
        total_iterations=[work for _, _, work in jobs],
        min_gpus=[1] * count,
        max_gpus=[8] * count,
        deadline=deadline,
    )
    given = {"clock": "events", "cluster": "1x8:v100", "throughputs": LINEAR} | more
    return lab.run(trace, "karuna", **given)


def test_a_deadline_gets_what_it_needs_and_the_other_job_all_else(lab: Any) -> None:
    """800 steps in 400 s need 2 GPUs; the job without deadline has asked for 4."""
    result = elastic(
        lab, [(0, 1, 800), (0, 4, 800)], [400, np.nan], options=("work_conserving=false",)
    )
    assert result.jobs.finish_time.tolist() == [400, 200]
    assert result.summary["deadlines"]["met"] == 1
    eager = elastic(lab, [(0, 1, 800), (0, 4, 800)], [400, np.nan])
    assert eager.jobs.finish_time[0] < 400


def test_an_adaptive_job_may_have_any_number_of_gpus(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 800)],
        model=["m"],
        total_iterations=[800],
        min_gpus=[1],
        max_gpus=[1_000_000],
        deadline=[110],
    )
    result = lab.run(trace, "karuna", cluster="1x8:v100", clock="events", throughputs=LINEAR)
    assert result.jobs.finish_time.tolist() == [100]


def test_a_rigid_job_has_its_gang_or_waits(lab: Any) -> None:
    trace = lab.trace([(0, 4, 100), (0, 4, 100), (10, 4, 50)], deadline=[np.nan, np.nan, 60])
    result = lab.run(trace, "karuna", cluster="1x4", clock="events")
    assert lab.spans(result)["C"] == (10, 60)
    assert result.jobs.preemptions.sum() == 1


def test_what_a_start_costs_counts_against_the_deadline(lab: Any) -> None:
    trace = lab.trace([(0, 1, 100), (0, 1, 100)], deadline=[105, 110])
    result = lab.run(trace, "karuna", cluster="1x2", clock="events", overhead=10.0)
    columns = result.jobs.extra
    assert columns["demoted"].tolist() == [1.0, 0.0]


def test_skipping_rounds_changes_nothing(lab: Any) -> None:
    jobs = [(30.0 * k, 2 ** (k % 3), 300.0 + 40 * k) for k in range(12)]
    due = [np.nan if k % 3 == 0 else 900.0 + 10 * k for k in range(12)]
    ends = [
        elastic(lab, jobs, due, clock="rounds", overhead=5.0, skipping=skips).jobs.finish_time
        for skips in (True, False)
    ]
    assert ends[0].tolist() == ends[1].tolist()
