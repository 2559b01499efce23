"""Sums in the middle of their optima: jobs that are alike have alike shares.

The middle maximises the sum of logarithms of all slacks that some optimum leaves open, so small
cases are worked by hand.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.scheduling.gavel.problem import Problem
from dlsched.policies.scheduling.gavel.solver import Solver

ANY = np.random.default_rng(0)


def shares(
    speed: list[list[float]], gpus: list[int], scale: list[int], *, centred: bool = True
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], float]:
    solver = Solver("max-throughput", centred=centred)
    found = solver.solve(Problem.of(speed, gpus, scale=scale), ANY).shares
    return found.x, found.objective


def test_jobs_that_are_alike_have_the_same_time() -> None:
    x, value = shares([[2.0], [2.0], [2.0]], [2], [1, 1, 1])
    assert x == pytest.approx(np.full((3, 1), 2 / 3), abs=1e-6)
    assert value == pytest.approx(4.0, abs=1e-5)


def test_what_only_one_corner_reaches_is_that_corner() -> None:
    x, value = shares([[40, 10], [12, 4], [100, 50]], [1, 1], [1, 1, 1])
    assert x == pytest.approx(np.array([[0, 1], [0, 0], [1, 0]]), abs=1e-5)
    assert value == pytest.approx(110.0, abs=1e-3)


def test_open_time_is_shared_with_idle_gpus() -> None:
    """Two alike gangs of 2 on 3 GPUs of a fast type and 2 of a slow one, and no other job.

    A GPU is worth 1/2 there and 1/4 here, so both types and both jobs are full: x = 3/4 and 1/4.
    """
    x, _ = shares([[2.0, 1.0], [2.0, 1.0]], [3, 2], [2, 2])
    assert x == pytest.approx(np.array([[0.75, 0.25], [0.75, 0.25]]), abs=1e-5)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([0.1, 1.0, 2.0])),
        min_size=1,
        max_size=6,
    ),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(0, 2**31),
)
def test_the_middle_is_as_good_as_a_corner(
    speed: list[tuple[float, float]], gpus: tuple[int, int], seed: int
) -> None:
    scale = np.random.default_rng(seed).integers(1, 4, len(speed)).tolist()
    given_speed = [list(each) for each in speed]
    middle, best = shares(given_speed, list(gpus), scale)
    _, corner = shares(given_speed, list(gpus), scale, centred=False)
    assert best == pytest.approx(corner, rel=1e-4)
    assert (np.array(scale) @ middle <= np.array(gpus) + 1e-6).all()
    assert (middle.sum(axis=1) <= 1 + 1e-6).all()
    for one in range(len(speed)):
        for other in range(one):
            if speed[one] == speed[other] and scale[one] == scale[other]:
                assert middle[one] == pytest.approx(middle[other], abs=1e-5)
