"""Quantiles and chances over the scenarios of a prediction."""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.scenarios import SCENARIOS, chance_by, verdict_of, weighted_quantile


def chance(ends: list[float], deadline: float) -> float:
    return float(chance_by(np.array(ends)[:, None], np.array([deadline]))[0])


def test_a_deadline_is_at_risk_when_one_scenario_in_four_misses_it() -> None:
    """The example of the what-if sheet: 60 s until the GPUs are free, then 40 s of work."""
    ends = [factor * (60.0 + 40.0) for factor, _ in SCENARIOS]
    assert sorted(ends) == [50.0, 100.0, 150.0]
    assert chance(ends, 100.0) == 0.75  # at the deadline is on time
    assert verdict_of(0.75) == "at-risk"
    found = [float(weighted_quantile(np.array(ends)[:, None], q)[0]) for q in (0.1, 0.5, 0.9)]
    assert found == [50.0, 100.0, 150.0]


def test_verdicts_begin_at_nine_and_at_five_of_ten() -> None:
    assert [verdict_of(chance) for chance in (1.0, 0.9, 0.89, 0.5, 0.49, 0.0)] == [
        *("ok", "ok", "at-risk", "at-risk", "unlikely", "unlikely")
    ]


def test_a_scenario_without_an_end_counts_as_later_than_all() -> None:
    columns = np.array([[10.0, 10.0], [5.0, 5.0], [math.nan, 15.0]])
    assert weighted_quantile(columns, 0.5).tolist() == [10.0, 10.0]
    late = weighted_quantile(columns, 0.9)
    assert (math.isnan(late[0]), late[1]) == (True, 15.0)
    assert chance(columns[:, 0].tolist(), 1e12) == 0.75


def test_the_likeliest_scenario_weighs_most_wherever_it_stands() -> None:
    """Under some policies a longer job makes another one earlier."""
    lowest = np.array([[1.0], [2.0], [3.0]])
    assert [float(weighted_quantile(lowest, q)[0]) for q in (0.1, 0.5, 0.9)] == [1.0, 1.0, 3.0]
    highest = np.array([[3.0], [2.0], [1.0]])
    assert [float(weighted_quantile(highest, q)[0]) for q in (0.1, 0.5, 0.9)] == [1.0, 2.0, 3.0]


def test_a_job_without_a_deadline_has_no_chance_to_meet_it() -> None:
    assert math.isnan(chance([1.0, 2.0, 3.0], math.nan))
