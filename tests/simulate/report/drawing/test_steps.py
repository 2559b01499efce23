"""Series over time: thinning keeps their time-weighted mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulate.report.drawing.steps import bin_edges, bin_means, time_weighted_mean, utilization
from simulate.results.tables import Timeline


@given(
    st.lists(st.tuples(st.floats(0.01, 1e5), st.integers(0, 500)), min_size=1, max_size=80),
    st.integers(1, 40),
)
def test_bins_keep_the_time_weighted_mean(steps: list[tuple[float, int]], bins: int) -> None:
    time = np.concatenate([[0.0], np.cumsum([gap for gap, _ in steps])])
    value = np.array([v for _, v in steps] + [0], dtype=np.float64)
    means = bin_means(time, value, bin_edges(0.0, float(time[-1]), bins))
    assert means.mean() == pytest.approx(time_weighted_mean(time, value), abs=1e-6)


def test_a_bin_half_covered_averages_the_covered_half() -> None:
    means = bin_means(np.array([0.0, 5.0]), np.array([8.0, 0.0]), np.array([0.0, 10.0, 20.0]))
    assert means[0] == 8.0
    assert np.isnan(means[1])


def test_utilisation_weighs_by_gpus_in_service() -> None:
    line = Timeline(
        time=np.array([0.0, 10.0, 20.0]),
        allocated_gpus=np.array([4, 4, 0]),
        total_gpus=np.array([4, 12, 12]),
        running_jobs=np.array([1, 1, 0]),
        waiting_jobs=np.array([0, 0, 0]),
        waiting_gpus=np.array([0, 0, 0]),
    )
    assert utilization(line, np.array([0.0, 20.0])).tolist() == [0.5]
