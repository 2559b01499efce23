"""Opportunistic jobs that use what is idle in the iterations of guaranteed ones."""

from __future__ import annotations

import numpy as np
import pytest

from dlsched.core.speed.overlap import OverlappingJobs, iterations_beside
from dlsched.core.speed.stages import Stages


@pytest.mark.parametrize(
    ("job", "guaranteed", "iterations"),
    [
        ((30, 0, 0), (10, 10, 10), 2),  # 20 ms of each iteration leave the storage idle
        ((40, 0, 0), (10, 10, 10), 2),
        ((30, 30, 0), (10, 10, 10), 3),  # 10 ms of the GPU stage fit into the second iteration
        ((0, 40, 5), (10, 10, 10), 2),  # the network stage ends before storage is busy
        ((0, 45, 30), (10, 10, 10), 4),  # the GPU is left 5 ms in the third: 15 of 30 ms follow
        ((0, 0, 0), (10, 10, 10), 0),
    ],
)
def test_an_iteration_takes_as_many_as_its_stages_need(
    job: tuple[float, ...], guaranteed: tuple[float, ...], iterations: int
) -> None:
    assert iterations_beside(Stages(*job), Stages(*guaranteed)) == iterations


def speeds(rows: list[int], limits: list[float] | None = None) -> list[float]:
    """Rows 0 and 1 are guaranteed, the others opportunistic; of 4 nothing is known."""
    stages = np.array([[10, 10, 10], [10, 10, 10], [30, 0, 0], [10, 0, 0], [np.nan] * 3])
    jobs = OverlappingJobs(stages, np.array([30.0, 30, 30, 60, 30]), np.arange(5) >= 2)
    given = np.array(limits or [1.0] * len(rows))
    return [float(each) for each in jobs.relative(rows, given, "v100", 1)]


def test_a_guaranteed_job_is_as_fast_as_alone_and_the_other_waits_for_its_iterations() -> None:
    assert speeds([2, 0]) == [0.5, 1.0]
    assert speeds([3, 0]) == [1.0, 1.0]  # one iteration of 30 ms is no longer than its own 60
    assert speeds([0]) == [1.0]


def test_two_opportunistic_jobs_take_twice_as_long() -> None:
    assert speeds([2, 3]) == [0.5, 0.5]
    assert speeds([3, 2, 0]) == [0.5, 0.5, 1.0]


def test_two_guaranteed_jobs_and_unknown_stages_are_not_known() -> None:
    assert np.isnan(speeds([0, 1])).all()
    assert np.isnan(speeds([4, 0])[0])
