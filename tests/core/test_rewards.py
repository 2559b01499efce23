"""Reward curves: values, presets, and what is no function."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.rewards import RewardCurve


def test_a_soft_deadline_falls_within_its_grace() -> None:
    soft = RewardCurve.of_text("soft:20,100,40")
    assert [soft.at(time) for time in (10, 20, 40, 60, 1e9)] == [100, 100, 50, 0, 0]
    assert (soft.deadline, soft.is_strict, soft.never) == (20.0, False, 0)


def test_at_a_jump_the_left_value_counts() -> None:
    step = RewardCurve.of_text("step:20,100")
    assert [step.at(time) for time in (0, 20, 20.001)] == [100, 100, 0]
    assert (step.deadline, step.is_strict, step.worth) == (20.0, True, 100)


def test_a_penalty_is_due_also_for_a_job_that_never_ends() -> None:
    penalty = RewardCurve.of_text("penalty:20,100,-50")
    assert (penalty.at(21), penalty.never, penalty.is_strict) == (-50, -50, False)


def test_the_sooner_the_better_has_no_deadline() -> None:
    asap = RewardCurve.of_text("asap:10,100")
    assert (asap.at(0), asap.at(50), asap.deadline) == (10, 5, None)
    assert RewardCurve.of_text("0:5").deadline is None  # it is worth the same for ever


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("step:20,100", ((20, 100),)),
        ("soft:20,100,40", ((20, 100), (40, 50))),
        ("0:10 60:10 60:8 120:8 120:0", ((60, 10), (120, 8))),
        ("penalty:20,100,-50", ((20, 100),)),
        ("asap:10,5", ()),
        ("0:5 10:5 20:7 30:0", ((20, 7), (25, 3.5))),
    ],
)
def test_deadlines_of_falling_value_stand_for_a_curve(text: str, steps: object) -> None:
    assert RewardCurve.of_text(text).steps == steps


def test_a_rising_curve_is_noticed() -> None:
    assert RewardCurve.of_text("0:1 10:2 20:0").rises
    assert not RewardCurve.of_text("step:5,1").rises


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5:1 3:1", "no function of time: 3 s comes after 5 s"),
        ("5:1 5:2 5:3", "no function of time: it has three values at 5 s"),
        ("1:2 3", "'3' is not TIME:VALUE; points are separated by spaces"),
        ("9:1,5:0", "'9:1,5:0' is not TIME:VALUE; points are separated by spaces"),
        ("2x:1", "'2x' is not a number"),
        ("1:x", "'x' is not a number"),
        ("-1:2", "it begins at -1 s, before the submit"),
        ("1:inf", "1:inf is not a point"),
        ("", "a curve has at least one point"),
        ("stairs:1,2", "no preset 'stairs'; there are step, soft, penalty, asap"),
        ("soft:1,2", "soft is soft:D,V,G"),
        ("step:0,1", "step: D is a time after the submit, not 0 s"),
        ("penalty:1,2,3", "penalty: N is below 0, not 3"),
    ],
)
def test_what_is_no_curve_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="^" + why.replace("(", r"\(") + "$"):
        RewardCurve.of_text(text)


points = st.lists(
    st.tuples(st.integers(0, 50), st.integers(-9, 9)),
    min_size=1,
    max_size=6,
    unique_by=lambda p: p[0],
)


@given(
    of=points, time=st.integers(0, 60), weights=st.lists(st.integers(1, 5), min_size=3, max_size=3)
)
def test_a_value_lies_between_the_least_and_the_most(
    of: list[tuple[int, int]], time: int, weights: list[int]
) -> None:
    curve = RewardCurve(tuple((Fraction(at), Fraction(value)) for at, value in sorted(of)))
    values = [value for _, value in curve.points]
    assert min(values) <= curve.at(time) <= max(values)
    ends = [time, 2 * time, 3 * time]
    expected = sum(w * curve.at(end) for w, end in zip(weights, ends, strict=True)) / sum(weights)
    assert min(values) <= expected <= max(values)
    assert RewardCurve.of_text(curve.to_text()).points == tuple(
        (float(at), float(value)) for at, value in curve.points
    )
