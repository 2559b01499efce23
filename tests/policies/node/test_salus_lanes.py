"""Lanes of a GPU's memory: which session gets into which, and what always holds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.node.salus.lanes import Admission, Lanes, Memory
from simulate.published.salus.lanes import ArtifactLanes


def check(lanes: Lanes) -> None:
    """The safety inequality, and nothing admitted or kept out against it."""
    assert lanes.used <= lanes.capacity
    admitted = [name for lane in lanes.lanes.values() for name in lane.sessions]
    assert len(admitted) == len(set(admitted))
    assert not set(admitted) & set(lanes.pending)
    for lane in lanes.lanes.values():
        assert lane.size >= max(need.ephemeral for need in lane.sessions.values())
        assert lane.sessions
    for need in lanes.pending.values():
        assert lanes.find(need) is None


def test_sessions_open_join_and_enlarge_lanes() -> None:
    lanes = Lanes(16_000)
    done = [
        *lanes.submit("a", Memory(1000, 7000)),
        *lanes.submit("b", Memory(500, 3500)),
        *lanes.submit("c", Memory(2000, 6000)),
        *lanes.submit("d", Memory(1000, 2500)),
        *lanes.submit("e", Memory(300, 4000)),
    ]
    assert done == [
        Admission("a", 1, "new"),
        Admission("b", 2, "new"),
        Admission("c", 1, "join"),
        Admission("d", 2, "join"),
        Admission("e", 1, "join"),
    ]
    assert lanes.used == 15_300
    lanes = Lanes(10_000)
    lanes.submit("a", Memory(1000, 4000))
    assert lanes.submit("b", Memory(1000, 5000)) == [Admission("b", 1, "enlarge")]
    assert lanes.lanes[1].size == 5000


def test_a_large_session_that_waits_lets_small_ones_pass_and_gets_in_after_a_departure() -> None:
    lanes = Lanes(10_000)
    lanes.submit("a", Memory(2000, 5000))
    assert lanes.submit("large", Memory(1000, 9000)) == []
    assert lanes.submit("small", Memory(500, 500)) == [Admission("small", 2, "new")]
    assert lanes.finish("small") == []
    assert lanes.finish("a") == [Admission("large", 3, "new")]


def test_memory_outside_the_lanes_is_not_given_away() -> None:
    lanes = Lanes(10_000)
    lanes.outside = 4000
    assert lanes.submit("a", Memory(1000, 6000)) == []
    assert lanes.submit("b", Memory(1000, 5000)) == [Admission("b", 1, "new")]


@pytest.mark.slow
def test_ten_thousand_random_operations_keep_the_inequality() -> None:
    chance = random.Random(14)
    lanes, count = Lanes(16_384), 0
    waited = 0
    for _ in range(10_000):
        names = [n for lane in lanes.lanes.values() for n in lane.sessions] + list(lanes.pending)
        if names and chance.random() < 0.48:
            lanes.finish(chance.choice(names))
        else:
            count += 1
            need = Memory(chance.randrange(0, 2500), chance.randrange(1, 12_000))
            waited += not lanes.submit(str(count), need)
        check(lanes)
    assert waited > 100, "nothing ever waited: the inequality was not put to the test"


OPERATIONS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 60), st.integers(0, 120), st.integers(0, 9)),
    max_size=60,
)


@given(operations=OPERATIONS, capacity=st.integers(1, 150))
def test_the_inequality_holds_after_every_operation(
    operations: list[tuple[bool, int, int, int]], capacity: int
) -> None:
    lanes = Lanes(capacity)
    for number, (comes, persistent, ephemeral, which) in enumerate(operations):
        names = [n for lane in lanes.lanes.values() for n in lane.sessions] + list(lanes.pending)
        if comes or not names:
            lanes.submit(str(number), Memory(persistent, ephemeral))
        else:
            lanes.finish(names[which % len(names)])
        check(lanes)


@given(operations=OPERATIONS, capacity=st.integers(1, 150))
def test_lanes_of_the_published_code_have_room_for_their_sessions(
    operations: list[tuple[bool, int, int, int]], capacity: int
) -> None:
    lanes = ArtifactLanes(capacity)
    for number, (comes, persistent, ephemeral, which) in enumerate(operations):
        names = [name for lane in lanes.lanes for name in lane.sessions]
        if comes or not names:
            lanes.submit(str(number), Memory(persistent, ephemeral))
        else:
            lanes.finish(names[which % len(names)])
        assert lanes.free >= 0
        for lane in lanes.lanes:
            assert sum(m.persistent for m in lane.sessions.values()) + lane.largest <= lane.size
            assert lanes.lane_of(next(iter(lane.sessions))) == lane.number


def test_the_published_code_opens_lanes_that_no_session_can_join() -> None:
    lanes = ArtifactLanes(16_000)
    lanes.submit("a", Memory(1000, 7000))
    lanes.submit("b", Memory(500, 3500))
    assert lanes.submit("c", Memory(2000, 6000)) == []
    assert lanes.submit("d", Memory(1000, 2500)) == [Admission("d", 3, "new")]
    assert lanes.submit("e", Memory(300, 4000)) == []
    assert lanes.finish("e") == []
    assert list(lanes.pending) == ["c"]


def test_the_published_code_reserves_margins_and_without_a_profile_all() -> None:
    assert ArtifactLanes.reserved(Memory(1000, 7000), 16_000) == Memory(1100, 7405)
    assert ArtifactLanes.reserved(Memory(8000, 9000), 16_000) == Memory(8800, 7200)
    assert ArtifactLanes.reserved(None, 16_000) == Memory(16_000, 0)
