"""Successive halving as a function of values: examples worked by hand, and what always holds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.daemon.training.halving import Verdict, to_stop
from dlsched.jobs.sweep import Halving

RULE = Halving(rung=100)  # the lowest loss, a third at 100, 300, 900, … steps


def at(rung: int, *values: float) -> dict[str, dict[int, float]]:
    """Jobs a, b, … with a value at one rung each."""
    return {chr(ord("a") + k): {rung: value} for k, value in enumerate(values)}


def test_of_six_the_best_two_go_on() -> None:
    reached = at(100, 0.9, 0.2, 0.5, 0.3, 0.7, 1.5)
    stopped = to_stop(RULE, reached, reached)
    assert stopped.keys() == {"a", "c", "e", "f"}
    assert stopped["a"] == Verdict(rung=100, value=0.9, rank=5, among=6)
    told = "stopped by successive halving at step 100: loss 0.9, rank 5 of 6"
    assert stopped["a"].text("loss") == told


@pytest.mark.parametrize(
    ("values", "stopped"),
    [
        ((), ""),
        ((3.0,), ""),
        ((3.0, 1.0), ""),  # two say nothing about a third
        ((3.0, 1.0, 2.0), "ac"),
        ((3.0, 1.0, 2.0, 4.0), "ad"),  # a third of four, rounded up, is two
        ((1.0, 1.0, 1.0, 1.0), ""),  # equal values have equal ranks
        ((1.0, 1.0, 1.0, 2.0), "d"),
        ((math.nan, 1.0, 2.0), "ac"),
        ((math.nan, math.inf, 2.0, -math.inf), ""),  # three share rank 2, which goes on
        ((math.nan, math.nan, math.nan), ""),
    ],
)
def test_small_rungs(values: tuple[float, ...], stopped: str) -> None:
    reached = at(100, *values)
    found = to_stop(RULE, reached, reached)
    assert "".join(sorted(found)) == stopped


def test_the_largest_is_the_best_of_an_accuracy() -> None:
    rule = Halving(rung=100, metric="accuracy", mode="max")
    reached = at(100, 0.9, 0.2, 0.5)
    assert to_stop(rule, reached, reached).keys() == {"b", "c"}


def test_a_job_is_judged_at_its_farthest_rung_with_all_that_have_reached_it() -> None:
    reached = {
        "a": {100: 9.0, 300: 1.0},  # the last at 100, and judged at 300 alone
        "b": {100: 1.0, 300: 2.0},
        "c": {100: 2.0, 300: 3.0},  # has ended: it counts, and is not stopped
        "d": {100: 3.0},
    }
    stopped = to_stop(RULE, reached, ["a", "b", "d"])
    assert stopped == {
        "b": Verdict(rung=300, value=2.0, rank=2, among=3),
        "d": Verdict(rung=100, value=3.0, rank=3, among=4),
    }


def test_a_job_that_has_reached_no_rung_is_not_judged() -> None:
    reached: dict[str, dict[int, float]] = at(100, 1.0, 2.0, 3.0) | {"x": {}}
    assert "x" not in to_stop(RULE, reached, [*reached, "y"])


# -- what always holds -----------------------------------------------------------------------------

numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
rules = st.builds(
    Halving, rung=st.just(10), eta=st.integers(2, 5), mode=st.sampled_from(["min", "max"])
)
tables = st.dictionaries(
    st.integers(0, 30),
    st.integers(0, 3).flatmap(
        lambda count: st.lists(numbers, min_size=count, max_size=count).map(
            lambda values: {10 * 4**k: value for k, value in enumerate(values)}
        )
    ),
    max_size=14,
)


@given(rules, tables)
def test_the_best_of_a_rung_goes_on_and_at_least_its_share(
    rule: Halving, reached: dict[int, dict[int, float]]
) -> None:
    stopped = to_stop(rule, reached, reached)
    for rung in {rung for values in reached.values() for rung in values}:
        there = {job: values[rung] for job, values in reached.items() if rung in values}
        finite = [value for value in there.values() if math.isfinite(value)]
        mine = {job for job, verdict in stopped.items() if verdict.rung == rung}
        assert len(there) - len(mine) >= math.ceil(len(there) / rule.eta)
        assert not mine or len(there) >= rule.eta
        best = (max if rule.mode == "max" else min)(finite, default=None)
        for job, value in there.items():
            if value == best:
                assert job not in mine


@given(rules, tables, st.randoms(use_true_random=False))
def test_only_values_matter_not_the_order_in_which_they_came(
    rule: Halving, reached: dict[int, dict[int, float]], random: object
) -> None:
    stopped = to_stop(rule, reached, reached)
    jobs = list(reached)
    random.shuffle(jobs)  # type: ignore[attr-defined]
    again = to_stop(rule, {job: reached[job] for job in jobs}, jobs)
    assert {job: each.rank for job, each in again.items()} == {
        job: each.rank for job, each in stopped.items()
    }


@given(rules, st.lists(numbers, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_whatever_comes_first_the_best_survives_and_the_last_stop_is_never_repeated(
    rule: Halving, values: list[float], random: object
) -> None:
    """Values come in any order; after each, what is stopped stays stopped."""
    order = list(enumerate(values))
    random.shuffle(order)  # type: ignore[attr-defined]
    reached: dict[int, dict[int, float]] = {}
    running: set[int] = set()
    for job, value in order:
        reached[job] = {rule.rung: value}
        running.add(job)
        running -= to_stop(rule, reached, running).keys()
        assert not to_stop(rule, reached, running)  # the same values say nothing new
    finite = [value for value in values if math.isfinite(value)]
    if finite:
        best = (max if rule.mode == "max" else min)(finite)
        assert {job for job, value in order if value == best} <= running
    assert running
    together = to_stop(rule, reached, reached)
    assert running <= reached.keys() - together.keys()  # no more survive than of all at once
