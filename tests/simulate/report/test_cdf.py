"""Distributions: exact when small, on the exact curve when thinned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulate.report.cdf import at_least, cdf, marker_places

values = st.lists(st.floats(0, 1e7, allow_nan=False), min_size=1, max_size=60)


@given(values)
def test_small_distributions_are_exact(found: list[float]) -> None:
    column = np.array(found)
    curve = cdf(column)
    expected = [(column <= v).mean() for v in np.unique(column)]
    assert curve.value.tolist() == np.unique(column).tolist()
    assert curve.share == pytest.approx(expected)


@given(values, st.integers(4, 20))
def test_thinned_points_lie_on_the_exact_curve(found: list[float], points: int) -> None:
    column = np.array(found)
    curve = cdf(column, points)
    for value, share in zip(curve.value, curve.share, strict=True):
        assert share == pytest.approx((column <= value).mean())
    assert curve.value[0] == column.min()
    assert curve.value[-1] == column.max()
    assert curve.share[-1] == 1.0


def test_thinning_keeps_percentiles_of_a_heavy_tail() -> None:
    column = np.random.default_rng(3).lognormal(7.0, 2.0, 100_000)
    curve = cdf(column, 400)
    assert curve.value.shape[0] <= 402
    for p in (0.01, 0.1, 0.5, 0.9, 0.99, 0.999):
        read = float(np.interp(p, curve.share, curve.value))
        assert read == pytest.approx(float(np.quantile(column, p)), rel=0.02)


def test_unknown_values_are_left_out() -> None:
    curve = cdf(np.array([np.nan, 1.0, np.inf, 2.0]))
    assert curve.known == 2
    assert curve.share.tolist() == [0.5, 1.0]
    assert cdf(np.array([np.nan])).known == 0


def test_markers_stand_where_the_curve_reaches_the_percentiles() -> None:
    curve = cdf(np.arange(1.0, 101.0))
    assert curve.value[marker_places(curve)].tolist() == [50.0, 90.0, 99.0]


def test_at_least_counts_jobs_with_so_many_or_more() -> None:
    curve = at_least(np.array([0.0, 0.0, 1.0, 3.0]))
    assert curve.value.tolist() == [1.0, 3.0, 4.0]
    assert curve.share.tolist() == [0.5, 0.25, 0.0]
