"""Usage that fades: by hand, against an integral, and whatever the order of what happens."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.sharing.decayed_usage import DecayedUsage, held_for

DAY = 86400.0
ANN = ("ann", "lab", "")
segments = st.lists(
    st.tuples(st.floats(0, 5e5), st.floats(1, 5e5), st.integers(1, 64)), min_size=1, max_size=8
)


def used(
    segment: tuple[float, float, int], now: float, half_life: float, steps: int = 4000
) -> float:
    """The integral of 2^(−age/h) over the time on GPUs, by the middles of small steps."""
    begin, length, gpus = segment
    width = length / steps
    middles = begin + width * (np.arange(steps) + 0.5)
    return float(gpus * width * np.exp2(-(now - middles) / half_life).sum())


def test_usage_counts_half_after_one_half_life_and_a_quarter_after_two() -> None:
    usage = DecayedUsage(7 * DAY)
    owner = usage.number(ANN)
    usage.restore(ANN, 3600.0, at=0.0)
    for lives, left in ((0, 3600.0), (1, 1800.0), (2, 900.0), (10, 3600.0 / 1024)):
        assert usage.as_of(lives * 7 * DAY)[owner] == left


def test_eight_gpus_for_a_day_by_hand() -> None:
    """8 · h/ln 2 · (1 − 2^(−1/7)) GPU-seconds after a day with a half-life of seven."""
    usage = DecayedUsage(7 * DAY)
    owner = usage.number(ANN)
    usage.change(owner, 8, 0.0)
    by_hand = 8 * 7 * DAY / math.log(2) * (1 - 2 ** (-1 / 7))
    assert usage.as_of(DAY)[owner] == pytest.approx(by_hand, rel=1e-12)
    assert by_hand == pytest.approx(658_080, rel=1e-5)  # of 691,200 that were received
    usage.change(owner, -8, DAY)
    assert usage.as_of(8 * DAY)[owner] == pytest.approx(by_hand / 2, rel=1e-12)


def test_without_a_half_life_usage_is_the_gpu_time() -> None:
    usage = DecayedUsage(math.inf)
    owner = usage.number(ANN)
    usage.change(owner, 4, 10.0)
    usage.change(owner, -4, 110.0)
    assert usage.as_of(1e9)[owner] == 400.0
    assert held_for(5.0, math.inf) == 5.0


@given(some=segments, half_life=st.floats(1e4, 1e6))
def test_it_is_the_integral_of_what_was_held(
    some: list[tuple[float, float, int]], half_life: float
) -> None:
    usage = DecayedUsage(half_life)
    owner = usage.number(ANN)
    events = [(begin, gpus) for begin, _, gpus in some]
    events += [(begin + length, -gpus) for begin, length, gpus in some]
    for time, gpus in sorted(events):
        usage.change(owner, gpus, time)
    now = max(time for time, _ in events) + 1000.0
    expected = sum(used(each, now, half_life) for each in some)
    assert usage.as_of(now)[owner] == pytest.approx(expected, rel=1e-5)
    assert usage.gpus[owner] == 0


@given(some=segments, data=st.data())
def test_the_order_in_which_it_is_told_does_not_matter(
    some: list[tuple[float, float, int]], data: st.DataObject
) -> None:
    """A daemon that begins anew learns of running jobs after what ended later than they began."""
    events = [(begin, gpus) for begin, _, gpus in some]
    events += [(begin + length, -gpus) for begin, length, gpus in some]
    one, other, at_once = (DecayedUsage(7 * DAY, [ANN]) for _ in range(3))
    for time, gpus in sorted(events):
        one.change(0, gpus, time)
    for time, gpus in data.draw(st.permutations(events)):
        other.change(0, gpus, time)
    times, gpus_of = np.array(events).T
    at_once.change_all(np.zeros(len(events), np.int64), gpus_of, times)
    now = 2e6
    expected = one.as_of(now)[0]
    assert other.as_of(now)[0] == pytest.approx(expected, rel=1e-9)
    assert at_once.as_of(now)[0] == pytest.approx(expected, rel=1e-9)


@given(gpus=st.integers(1, 64), hours=st.floats(0.1, 1000))
def test_more_gpus_or_more_time_is_more_usage(gpus: int, hours: float) -> None:
    def after(gpus: int, hours: float) -> float:
        usage = DecayedUsage(7 * DAY, [ANN])
        usage.change(0, gpus, 0.0)
        return float(usage.as_of(hours * 3600)[0])

    assert after(gpus + 1, hours) > after(gpus, hours)
    assert after(gpus, hours + 1) > after(gpus, hours)
    assert after(gpus, hours) <= gpus * hours * 3600


def test_a_copy_goes_on_by_itself() -> None:
    usage = DecayedUsage(DAY, [ANN])
    usage.change(0, 2, 0.0)
    fork = usage.copy()
    fork.change(0, -2, 10.0)
    assert usage.gpus[0] == 2
    assert fork.number(("bob", "", "")) == 1
    assert usage.owners == [ANN]
