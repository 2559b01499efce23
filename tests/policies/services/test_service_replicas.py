"""Which replicas start when gateways ask, and which end by themselves."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.services.replicas import Replicas, Warmth


def started(replicas: Replicas, needed: int, now: float) -> None:
    for number in replicas.ask([needed], now):
        replicas.warmed(number, now)


def test_a_replica_ends_when_it_has_been_quiet_not_when_fewer_are_needed() -> None:
    replicas = Replicas(most=8, idle_s=600)
    started(replicas, 3, 0)
    for number in (1, 2, 3):
        replicas.used(number, 99)
    assert replicas.ask([2], 100) == []
    assert replicas.usable(2) == [1, 2]
    replicas.used(2, 698)
    assert replicas.end_quiet(500) == []
    assert replicas.ask([3], 500) == []  # still warm: no cold start
    assert replicas.next_end() == 699
    assert replicas.end_quiet(699) == [3]
    assert replicas.numbers(Warmth.WARM) == [1, 2]


def test_gateways_that_ask_for_the_same_replicas_ask_once() -> None:
    replicas = Replicas(most=4)
    assert replicas.ask([2, 3, 2], 0) == [1, 2, 3]
    assert replicas.ask([3], 1) == []
    replicas.gone(2)  # it was killed
    assert replicas.ask([3], 2) == [2]


def test_reserves_stay_warm_without_requests() -> None:
    replicas = Replicas(most=8, idle_s=10, reserve=2)
    started(replicas, 1, 0)
    assert replicas.numbers(Warmth.WARM) == [1, 2, 3]
    assert replicas.usable(1) == [1]
    replicas.ask([1], 8)
    assert replicas.end_quiet(12) == []
    assert replicas.end_quiet(18) == [2, 3]


def test_the_lowest_never_end_by_themselves() -> None:
    replicas = Replicas(least=2, most=4, idle_s=10)
    started(replicas, 1, 0)
    assert replicas.next_end() == math.inf
    assert replicas.end_quiet(1000) == []


steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "warmed", "used", "gone", "wait"]),
        st.integers(1, 9),
        st.integers(1, 9),
        st.floats(0, 30),
    ),
    max_size=60,
)


@given(steps=steps, least=st.integers(1, 3), reserve=st.integers(0, 2))
def test_none_ends_soon_after_a_request_and_none_is_beyond_the_most(
    steps: list[tuple[str, int, int, float]], least: int, reserve: int
) -> None:
    most, idle_s, now = 6, 20.0, 0.0
    replicas = Replicas(least=least, most=most, idle_s=idle_s, reserve=reserve)
    last: dict[int, float] = {}
    for what, one, other, passes in steps:
        now += passes
        for number in replicas.end_quiet(now):
            assert number > least
            assert now - last[number] >= idle_s
        if what == "ask":
            for number in replicas.ask([one, other], now):
                assert number <= most
        elif what == "wait" or one > most:
            continue
        elif what == "warmed" and replicas[one].warmth is Warmth.WARMING:
            replicas.warmed(one, now)
            last[one] = now
        elif what == "used" and replicas[one].warmth is Warmth.WARM:
            replicas.used(one, now)
            last[one] = now
        elif what == "gone":
            replicas.gone(one)
        assert replicas.next_end() > now
