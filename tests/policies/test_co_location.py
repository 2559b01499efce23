"""Guessing pairs: completion, matching, memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.estimators.co_location import CoLocation, completed, nearest

# two types, three references: the first slows others down, the third is harmless
REFERENCES = np.array(
    [
        [[0.5, 0.8, 0.9], [0.4, 0.7, 0.9]],
        [[0.2, 0.5, 0.6], [0.3, 0.6, 1.0]],
        [[1.0, 1.0, 1.0], [0.9, 1.0, 1.0]],
    ]
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_reference_is_matched_to_itself() -> None:
    pairs = CoLocation(REFERENCES)
    for number, profile in enumerate(REFERENCES):
        match = pairs.arrive(f"job {number}", profile, rng())
        assert match.reference == number
        assert match.distance == pytest.approx(0, abs=1e-12)
        assert match.runner_up > 0


def test_direction_counts_and_not_length() -> None:
    assert CoLocation(REFERENCES).arrive("job", REFERENCES[1] * 0.5, rng()).reference == 1


def test_a_match_lends_its_pairs_scaled_by_ones_own_speed() -> None:
    pairs = CoLocation(REFERENCES)
    pairs.arrive("slow", REFERENCES[1], rng())
    pairs.arrive("hog", REFERENCES[0], rng())
    assert pairs.beside("slow", "hog", np.array([10.0, 20.0])).tolist() == [2.0, 6.0]
    pairs.measured("slow", "hog", 1, 5.0)
    assert pairs.beside("slow", "hog", np.array([10.0, 20.0])).tolist() == [2.0, 5.0]
    assert pairs.beside("hog", "slow", np.array([1.0, 1.0])).tolist() == [0.8, 0.7]
    again = CoLocation(REFERENCES)
    again.load_state_dict(pairs.state_dict())
    assert again.beside("slow", "hog", np.array([10.0, 20.0])).tolist() == [2.0, 5.0]


def test_a_job_about_which_nothing_is_known_is_matched_by_lot() -> None:
    zeros, unknown = np.zeros((2, 3)), np.full((2, 3), np.nan)
    for profile in (zeros, unknown):
        drawn = {
            CoLocation(REFERENCES).arrive("job", profile, rng(seed)).reference for seed in range(30)
        }
        assert drawn == {0, 1, 2}
    assert CoLocation(REFERENCES, 0.0).arrive("job", REFERENCES[1], rng(1)) is not None


def test_nearest_takes_the_first_of_equals() -> None:
    match = nearest(np.ones(2), np.array([[1.0, 0.0], [2.0, 2.0], [3.0, 3.0]]), rng())
    assert match.reference == 1
    assert match.distance == pytest.approx(match.runner_up)


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_a_matrix_of_low_rank_is_completed_to_what_it_was(seed: int, rank: int) -> None:
    draw = rng(seed)
    whole = draw.uniform(0.3, 1, (20, rank)) @ draw.uniform(0.3, 1, (rank, 18)) / rank
    holes = np.where(draw.random(whole.shape) < 0.15, np.nan, whole)
    filled = completed(holes, rng(1), rank=rank, regularisation=1e-6)
    known = ~np.isnan(holes)
    assert (filled[known] == whole[known]).all()
    assert np.abs(filled - whole).mean() < 0.02
    assert ((filled >= 0) & (filled <= 1)).all()


def test_completion_is_repeatable() -> None:
    holes = REFERENCES.reshape(3, -1).copy()
    holes[2, 1] = np.nan
    assert (completed(holes, rng(4)) == completed(holes, rng(4))).all()


def test_wrong_references_are_refused() -> None:
    with pytest.raises(BadInput, match="must be 0 to 1 times those alone"):
        CoLocation(REFERENCES * 2)
    with pytest.raises(BadInput, match="at least one reference"):
        CoLocation(np.zeros((0, 2, 0)))
    with pytest.raises(BadInput, match="a probability from 0 to 1, not 2"):
        CoLocation(REFERENCES, 2.0)
