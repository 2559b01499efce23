"""Which jobs Muri interleaves: matchings against brute force, and groups worked by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dlsched.policies.scheduling.muri.grouping import (
    InterleavedJobs,
    Interleaving,
    consecutive_groups,
    matched_groups,
    unpacked,
)
from dlsched.policies.scheduling.muri.matching import best_pairs

FREE = Interleaving(factors=(1.0, 1.0, 1.0, 1.0))  # nothing is lost by sharing
DATA, GPU, NET = (8.0, 1.0, 1.0), (1.0, 8.0, 1.0), (1.0, 1.0, 8.0)


def jobs_of(*stages: tuple[float, ...], share: float = 0.0) -> InterleavedJobs:
    known = np.array(stages)
    return InterleavedJobs(known, known.sum(axis=1), np.full(len(known), share), FREE)


def members(groups: list[tuple[int, tuple[int, ...]]]) -> list[tuple[int, tuple[int, ...]]]:
    return sorted((gang, tuple(sorted(group))) for gang, group in groups)


# -- matching -------------------------------------------------------------------------------------


def matchings(left: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    if len(left) < 2:
        yield []
        return
    first, *others = left
    yield from matchings(tuple(others))
    for other in others:
        for rest in matchings(tuple(each for each in others if each != other)):
            yield [(first, other), *rest]


@given(st.integers(2, 7).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.floats(0, 1))))
def test_no_matching_weighs_more(weight: np.ndarray) -> None:
    weight = np.triu(weight, 1) + np.triu(weight, 1).T
    found = best_pairs(weight)
    assert len({job for pair in found for job in pair}) == 2 * len(found)
    best = max(sum(weight[pair] for pair in each) for each in matchings(tuple(range(len(weight)))))
    assert sum(weight[pair] for pair in found) == pytest.approx(best, abs=1e-9)


def test_a_pair_without_weight_is_never_formed() -> None:
    assert best_pairs(np.zeros((4, 4))) == []
    weight = np.zeros((3, 3))
    weight[0, 2] = weight[2, 0] = 0.1
    assert best_pairs(weight) == [(0, 2)]


def test_an_odd_circle_is_solved() -> None:
    """The blossom: the heaviest edge of a triangle with tails is not taken."""
    weight = np.zeros((5, 5))
    for one, other, value in ((0, 1, 1.0), (1, 2, 1.1), (2, 0, 1.0), (1, 3, 0.7), (2, 4, 0.7)):
        weight[one, other] = weight[other, one] = value
    # 1-2 alone and 0 left: 1.1; 0-1 with 2-4: 1.7; and so is 2-0 with 1-3
    assert sum(weight[pair] for pair in best_pairs(weight)) == pytest.approx(1.7)


# -- groups ---------------------------------------------------------------------------------------


def test_jobs_that_all_fit_are_not_grouped() -> None:
    groups = matched_groups([(1, [0, 1])], 2, jobs_of(DATA, GPU), 4)
    assert members(groups) == [(1, (0,)), (1, (1,))]


def test_complements_are_matched() -> None:
    """Two jobs of each kind on two GPUs: each group has one that reads and one that computes."""
    groups = matched_groups([(1, [0, 1, 2, 3])], 2, jobs_of(DATA, DATA, GPU, GPU), 4)
    assert sorted(len(group) for _, group in groups) == [2, 2]
    assert all(len({job // 2 for job in group}) == 2 for _, group in groups)


def test_only_as_many_are_merged_as_must_be() -> None:
    groups = matched_groups([(1, [0, 1, 2, 3])], 3, jobs_of(DATA, DATA, GPU, GPU), 4)
    assert sorted(len(group) for _, group in groups) == [1, 1, 2]


def test_groups_grow_round_by_round_up_to_four() -> None:
    groups = matched_groups([(2, [0, 1, 2, 3])], 2, jobs_of(DATA, GPU, NET, GPU), 4)
    assert members(groups) == [(2, (0, 1, 2, 3))]


def test_jobs_of_different_sizes_stay_apart() -> None:
    groups = matched_groups([(4, [0]), (2, [1, 2])], 4, jobs_of(DATA, GPU, DATA), 4)
    assert members(groups) == [(2, (1, 2)), (4, (0,))]


def test_parts_of_a_gpu_are_at_most_the_whole() -> None:
    groups = matched_groups([(1, [0, 1, 2, 3])], 1, jobs_of(DATA, GPU, NET, GPU, share=0.5), 4)
    assert sorted(len(group) for _, group in groups) == [2, 2]
    groups = matched_groups([(1, [0, 1])], 1, jobs_of(DATA, GPU, share=0.6), 4)
    assert members(groups) == [(1, (0,)), (1, (1,))]


def test_a_job_whose_stages_are_not_known_is_never_grouped() -> None:
    jobs = jobs_of(DATA, (np.nan, 8.0, 1.0), GPU)
    assert members(matched_groups([(1, [0, 1, 2])], 1, jobs, 4)) == [(1, (0, 2)), (1, (1,))]
    assert members(consecutive_groups([(1, [0, 1, 2])], 1, jobs, 4)) == [(1, (0, 2)), (1, (1,))]


def test_without_blossom_neighbours_in_the_order_are_grouped() -> None:
    jobs = jobs_of(DATA, DATA, GPU, GPU, NET)
    groups = consecutive_groups([(1, [0, 1, 2, 3, 4])], 3, jobs, 4)
    assert members(groups) == [(1, (0, 1, 2)), (1, (3,)), (1, (4,))]


def test_a_group_that_loses_is_split() -> None:
    jobs = InterleavedJobs(np.array([GPU, GPU, DATA]), np.array([8.0, 8.0, 8.0]), np.zeros(3), FREE)
    # the GPU work of two alike is 16 of the 16 s, and the network comes on top
    assert members(unpacked([(1, (0, 1))], jobs)) == [(1, (0,)), (1, (1,))]
    assert members(unpacked([(1, (0, 2))], jobs)) == [(1, (0, 2))]
