"""Losses that fall, and how many epochs are left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.nonnegative import nonnegative_fit
from dlsched.policies.estimators.convergence import (
    LossCurve,
    converges_at,
    fit_losses,
    inverse_fit,
    spreads,
)

EPOCHS = np.arange(1.0, 11)
LOSSES = 1 / (0.4 * EPOCHS + 0.9) + 0.15


def test_the_curve_of_the_example_is_found() -> None:
    assert np.round(LOSSES, 6).tolist()[:3] == [0.919231, 0.738235, 0.62619]
    curve = fit_losses(EPOCHS, LOSSES)
    assert curve is not None
    assert curve[:3] == pytest.approx((0.4, 0.9, 0.15), abs=1e-4)
    assert curve.error < 1e-6


@pytest.mark.parametrize(
    ("floor", "falls", "begins", "left"),
    [(0.15, 0.4, 0.9, 0.0), (0.0, 0.19109, 1.00048, 0.182545)],
)
def test_with_a_given_floor_the_rest_is_a_line(
    floor: float, falls: float, begins: float, left: float
) -> None:
    found = inverse_fit(EPOCHS, LOSSES, floor)
    assert found[:2] == pytest.approx((falls, begins), abs=5e-6)
    assert found[2] == pytest.approx(left, abs=5e-7)


def test_recent_losses_count_more() -> None:
    assert spreads(10).tolist() == [1.0] * 4 + [0.25] * 4 + [1 / 16] * 2


def test_the_training_of_the_example_converges_after_24_epochs() -> None:
    curve = LossCurve(0.4, 0.9, 0.15, 0.0)
    assert converges_at(curve, 10) == 24
    assert curve.at(15) - curve.at(24) == pytest.approx(0.0496894, abs=5e-8)
    assert converges_at(LossCurve(0.001, 0.1, 0.0, 0.0), 10) == -1


@pytest.mark.parametrize(
    ("epochs", "losses"),
    [([1, 2], [0.9, 0.7]), ([1, 1, 1, 1], [1, 2, 3, 4]), ([1, 2, 3], [np.nan, 1, 0.5]), ([], [])],
    ids=["two points", "one epoch", "nonsense", "none"],
)
def test_too_little_tells_nothing(epochs: list[float], losses: list[float]) -> None:
    assert fit_losses(np.array(epochs, float), np.array(losses, float)) is None


@given(
    st.floats(0.01, 2),
    st.floats(0.2, 5),
    st.floats(0, 1),
    st.integers(5, 60),
    st.integers(0, 2**16),
)
def test_it_follows_what_is_measured_with_noise(
    falls: float, begins: float, floor: float, count: int, seed: int
) -> None:
    epochs = np.arange(1.0, count + 1)
    noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(count)
    truth = LossCurve(falls, begins, floor, 0.0)
    losses = np.array([truth.at(k) for k in epochs.tolist()])
    curve = fit_losses(epochs, losses * noise)
    assert curve is not None
    assert min(curve[:3]) >= 0
    fitted = np.array([curve.at(k) for k in epochs.tolist()])
    weights = 1 / spreads(count)
    assert (((fitted - losses * noise) * weights) ** 2).sum() <= (
        ((losses - losses * noise) * weights) ** 2
    ).sum() * 1.001 + 1e-12


@given(st.integers(1, 4), st.integers(4, 12), st.integers(0, 2**16))
def test_no_other_coefficients_fit_better(count: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns, wanted = rng.standard_normal((rows, count)), rng.standard_normal(rows)
    found, left = nonnegative_fit(columns, wanted)
    assert (found >= 0).all()
    slope = columns.T @ (columns @ found - wanted)
    assert (slope >= -1e-8).all()
    assert slope[found > 0] == pytest.approx(np.zeros(int((found > 0).sum())), abs=1e-8)
    assert left == pytest.approx(float(np.linalg.norm(columns @ found - wanted)))
