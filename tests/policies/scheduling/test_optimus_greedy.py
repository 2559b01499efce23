"""Optimus' speed models and its greedy, on examples worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dlsched.policies.scheduling.optimus.marginal_gain import divide_gpus
from dlsched.policies.scheduling.optimus.speed_models import fit_ring, ring_step_s
from tests.policies.scheduling.optimus_tasks import TaskJob, divide_tasks, fit_speed, speed

SYNC = np.array([1e-3, 0.05, 0.02, 0.004, 0.003])
ASYNC = np.array([0.12, 0.03, 0.004, 0.003])
PAIRS = np.array([(1, 1), (2, 1), (1, 2), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8)])
SYNC_RATES = [4.87805, 5.05051, 6.06061, 6.75676, 6.94444, 7.69231, 6.66667, 7.04225]
ASYNC_RATES = [6.36943, 6.89655, 10.4712, 12.1951, 19.802, 22.4719, 35.7143]


def test_speeds_of_the_examples() -> None:
    servers, workers = PAIRS.T
    sync = speed("sync", SYNC, servers, workers, batch=128)
    assert sync == pytest.approx(SYNC_RATES, rel=1e-6)
    seven = PAIRS[:7].T
    assert speed("async", ASYNC, *seven) == pytest.approx(ASYNC_RATES, rel=3e-6)


def test_coefficients_are_found_again() -> None:
    servers, workers = np.concatenate([PAIRS, [(1, 4), (4, 2), (8, 3)]]).T
    sync = speed("sync", SYNC, servers, workers, batch=128)
    assert fit_speed("sync", servers, workers, sync, batch=128) == pytest.approx(SYNC, rel=1e-6)
    rates = speed("async", ASYNC, servers, workers)
    assert fit_speed("async", servers, workers, rates) == pytest.approx(ASYNC, rel=1e-6)


def test_all_reduce_is_found_again() -> None:
    gpus, truth = np.array([1, 2, 4, 8]), np.array([1.2, 0.1, 0.01])
    assert fit_ring(gpus, ring_step_s(truth, gpus)) == pytest.approx(truth, rel=1e-6)


def two_jobs() -> list[TaskJob]:
    one = np.ones(1)

    def sync(p: int, w: int) -> float:
        return speed("sync", SYNC, np.array([p]), np.array([w]), batch=128).item()

    def async_(p: int, w: int) -> float:
        return speed("async", ASYNC, np.array([p]), np.array([w])).item()

    return [TaskJob(1000, sync, one, one), TaskJob(2000, async_, one, one)]


@pytest.mark.parametrize(
    ("capacity", "tasks"), [(8, [(1, 2), (2, 3)]), (12, [(2, 2), (3, 5)]), (16, [(3, 3), (3, 7)])]
)
def test_servers_and_workers_of_the_example(capacity: int, tasks: list[tuple[int, int]]) -> None:
    assert divide_tasks(two_jobs(), np.array([capacity]))[0] == tasks


def test_tasks_are_given_to_the_job_that_they_save_most() -> None:
    _, order = divide_tasks(two_jobs(), np.array([16]))
    told = [(added.job, "worker" if added.is_worker else "ps") for added in order]
    assert told == [
        (1, "worker"), (1, "worker"), (0, "worker"), (1, "ps"), (1, "worker"), (0, "ps"),
        (1, "worker"), (1, "ps"), (1, "worker"), (0, "worker"), (0, "ps"), (1, "worker"),
    ]  # fmt: skip
    gains = [added.gain for added in order]
    expected = [123, 41, 40, 28, 21, 17, 12.6, 8.8, 8.6, 7.33333, 7, 6.14286]
    assert gains == pytest.approx(expected, rel=1e-5)


def test_it_ends_at_the_first_task_that_does_not_fit() -> None:
    jobs = two_jobs()
    large = [jobs[0], jobs[1]._replace(worker=np.array([3.0]))]
    tasks, _ = divide_tasks(large, np.array([7]))
    assert tasks == [(1, 1), (1, 1)]


STEPS = {
    0: [1.40364, 0.837972, 0.546091, 0.394457, 0.346655, 0.268777],
    1: [14.5388, 6.96961, 4.9719, 3.54987, 4.47825, 3.98149],
    2: [10.1579, 5.19583, 3.22001, 2.6229, 2.11692, 1.83447, 1.6],
    3: [0.0295983],
}


def test_a_job_whose_next_gpu_does_not_help_stops() -> None:
    def step(job: int, gpus: int) -> float:
        return STEPS[job][gpus - 1]

    sizes = divide_gpus([1] * 4, [6, 6, 7, 1], [3066, 462, 873, 1377], 16, step)
    assert sizes == [4, 4, 7, 1]


def test_later_jobs_get_nothing_when_there_are_more_jobs_than_gpus() -> None:
    assert divide_gpus([1, 2, 1, 1], [4] * 4, [1] * 4, 2, lambda job, gpus: 1 / gpus) == [
        1,
        0,
        1,
        0,
    ]
    assert divide_gpus([], [], [], 2, lambda job, gpus: 1.0) == []


def test_a_gang_that_cannot_change_has_what_it_asked_for() -> None:
    assert divide_gpus([3, 1], [3, 8], [1, 1], 8, lambda job, gpus: 1 / gpus) == [3, 5]
