"""MLFS' choice of servers and of jobs that move: the sheet's toys, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.scheduling.mlfs.hosts import (
    best_server,
    distances,
    least_urgent,
    leaving_task,
    load_of_cluster,
)

SERVERS = np.array([[0.5, 0.2], [0.3, 0.6], [0.95, 0.1]])  # of GPU and CPU; C is overloaded
UNDER = np.array([True, True, False])


def test_without_traffic_the_server_nearest_to_the_least_loads_is_best() -> None:
    assert best_server(distances(SERVERS, np.zeros(3), UNDER), UNDER) == 0  # 0.2 off; B is 0.4 off


def test_traffic_draws_a_task_to_what_it_talks_to() -> None:
    off = distances(SERVERS, np.array([0.0, 7.5, 0.0]), UNDER)
    assert off[:2].tolist() == pytest.approx([1.0198, 0.4], abs=1e-4)
    assert best_server(off, UNDER) == 1


def test_of_equal_servers_the_lowest_is_chosen_and_none_where_none_fits() -> None:
    alike = np.full((3, 2), 0.25)
    every = np.ones(3, np.bool_)
    off = distances(alike, np.zeros(3), every)
    assert best_server(off, np.array([False, True, True])) == 1
    assert best_server(off, ~every) == -1


USES = np.array([[0.5, 0.1], [0.3, 0.2], [0.17, 0.1]])  # of a, b, c
PRIORITIES = np.array([3.0, 1.0, 2.0])
GPU_IS_OVER = np.array([True, False])


def test_the_task_that_uses_most_of_what_is_short_leaves() -> None:
    every = np.arange(3)
    assert leaving_task(USES, np.zeros(3), GPU_IS_OVER, every) == 0  # the ideal one is (0.5, 0.1)


def test_where_a_gpu_is_overloaded_the_least_urgent_part_of_its_tasks_may_leave() -> None:
    candidates = least_urgent(PRIORITIES, [0, 1, 2], 0.1)
    assert candidates.tolist() == [1]  # a tenth of three, and at least one
    assert leaving_task(USES, np.zeros(3), GPU_IS_OVER, candidates) == 1
    assert least_urgent(PRIORITIES, [0, 1, 2], 0.7).tolist() == [1, 2]


def test_a_task_that_talks_to_its_server_stays() -> None:
    alike = np.array([[0.5, 0.1], [0.5, 0.1]])
    assert leaving_task(alike, np.array([4.0, 1.0]), GPU_IS_OVER, np.arange(2)) == 1


def test_the_load_of_a_cluster_by_hand() -> None:
    found = load_of_cluster(np.array([[0.9, 0.8], [0.2, 0.1]]))
    assert found == pytest.approx((0.851469 + 0.158114) / 2, abs=1e-6)
    assert load_of_cluster(np.zeros((0, 2))) == 0.0


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_the_load_of_a_cluster_is_between_nothing_and_one(rows: list[list[float]]) -> None:
    found = load_of_cluster(np.array(rows))
    assert 0.0 <= found <= 1.0 + 1e-12


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), min_size=1, max_size=8))
def test_the_best_server_fits_and_none_that_fits_is_nearer(
    given_servers: list[tuple[float, float, bool]],
) -> None:
    utilisation = np.array([each[:2] for each in given_servers])
    fits = np.array([each[2] for each in given_servers])
    every = np.ones(len(fits), np.bool_)
    best = best_server(distances(utilisation, np.zeros(len(fits)), every), fits)
    if not fits.any():
        assert best == -1
        return
    ideal = utilisation.min(axis=0)
    off = np.linalg.norm(utilisation - ideal, axis=1)
    assert fits[best]
    assert off[best] == pytest.approx(off[fits].min())
