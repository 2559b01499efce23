"""Whose iteration runs next in a lane, in each order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.node.salus.turns import Order, Turns
from tests.policies.node.lane_run import Iterations, run_lane

ORDERS: list[Order] = ["fifo", "srtf", "fair", "rr", "pack"]


def test_three_sessions_in_each_order() -> None:
    sessions = [Iterations("a", 0, 3, 10), Iterations("b", 5, 1, 4), Iterations("c", 10, 2, 10)]
    found = {order: "".join(run_lane(sessions, order).order) for order in ORDERS}
    assert found == {
        "fifo": "aaabcc",
        "srtf": "abccaa",  # after b, c and a have 20 left: the one that entered last
        "fair": "abcaca",
        "rr": "abcaca",
        "pack": "abcaca",
    }


def test_a_change_of_session_costs_what_it_is_said_to_cost() -> None:
    sessions = [Iterations("a", 0, 2, 10), Iterations("b", 0, 2, 10)]
    assert run_lane(sessions, "pack", switch=5).ends == {"a": 40, "b": 55}
    assert run_lane(sessions, "fifo", switch=5).ends == {"a": 20, "b": 45}


@pytest.mark.parametrize("order", ["fifo", "srtf"])
def test_a_lane_idles_for_the_picked_session_unless_it_conserves_work(order: Order) -> None:
    for conserves in (False, True):
        turns = Turns(order, conserves_work=conserves)
        turns.enter("first", total=10)
        turns.enter("second", total=100)
        turns.want("second")
        assert turns.pick() == ("second" if conserves else None)
        turns.want("first")
        assert turns.pick() == (None if conserves else "first")


@pytest.mark.parametrize("order", ORDERS)
def test_one_iteration_runs_at_a_time_and_a_session_that_leaves_frees_the_lane(
    order: Order,
) -> None:
    turns = Turns(order)
    for name in ("a", "b"):
        turns.enter(name, total=10)
        turns.want(name)
    running = turns.pick()
    assert running is not None
    assert turns.pick() is None
    turns.leave(running)
    assert turns.pick() == ({"a", "b"} - {running}).pop()


def test_counts_begin_anew_when_a_session_enters_under_rr() -> None:
    turns = Turns("rr")
    turns.enter("old")
    for _ in range(5):
        turns.want("old")
        assert turns.pick() == "old"
        turns.end(1)
    turns.enter("new")
    turns.want("old")
    turns.want("new")
    assert turns.pick() == "old"  # it came first, and both have no iteration now


SESSIONS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=6
)


@given(given_sessions=SESSIONS, order=st.sampled_from(ORDERS))
def test_every_iteration_runs_once_and_the_lane_never_idles_while_there_is_work(
    given_sessions: list[tuple[int, int, int]], order: Order
) -> None:
    sessions = [Iterations(str(n), *each) for n, each in enumerate(given_sessions)]
    found = run_lane(sessions, order)
    for each in sessions:
        assert found.order.count(each.name) == each.number
        assert found.ends[each.name] >= each.arrival + each.number * each.each
    begun, end = 0, 0
    for each in sorted(sessions, key=lambda each: each.arrival):
        begun = max(end, each.arrival)
        end = begun + each.number * each.each
    assert max(found.ends.values()) == end  # of any order that never idles


@given(given_sessions=SESSIONS)
def test_srtf_is_never_worse_than_fifo_for_sessions_that_come_together(
    given_sessions: list[tuple[int, int, int]],
) -> None:
    sessions = [
        Iterations(str(n), 0, count, each) for n, (_, count, each) in enumerate(given_sessions)
    ]
    fifo, srtf = run_lane(sessions, "fifo"), run_lane(sessions, "srtf")
    assert srtf.mean_jct(sessions) <= fifo.mean_jct(sessions) + 1e-9
