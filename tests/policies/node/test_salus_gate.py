"""Turns of jobs on the same GPUs, as they ask for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.node.salus.gate import Gate, Turn
from dlsched.policies.node.salus.turns import Order

GB = 1_000_000_000


def names(turns: list[Turn]) -> list[str]:
    return [turn.session for turn in turns]


def known(gate: Gate, *jobs: tuple[str, float, float]) -> float:
    """Let jobs do their first step, which is measured; returns the time by then."""
    now = 0.0
    for name, persistent, ephemeral in jobs:
        assert names(gate.wants(name, now)) == [name]
        now += 1.0
        assert gate.ended(name, now, persistent, persistent + ephemeral) == []
    return now


def test_a_first_step_runs_alone_and_then_each_job_has_a_lane() -> None:
    gate = Gate(16 * GB)
    now = known(gate, ("a", 1 * GB, 6 * GB))
    assert names(gate.wants("a", now)) == ["a"]
    assert gate.wants("b", now) == []  # nothing is known of it: not beside a
    assert names(gate.ended("a", now + 1, 1 * GB, 7 * GB)) == ["b"]
    assert gate.wants("a", now + 1) == []
    assert names(gate.ended("b", now + 2, 1 * GB, 3 * GB)) == ["a"]
    assert names(gate.wants("b", now + 2)) == ["b"]  # in a lane of its own, beside a
    assert gate.running() == ["a", "b"]
    assert gate.lane_of("a") != gate.lane_of("b")


def test_two_jobs_whose_steps_do_not_fit_together_take_turns_in_one_lane() -> None:
    gate = Gate(12 * GB, "pack")
    now = known(gate, ("a", 1 * GB, 8 * GB), ("b", 1 * GB, 7 * GB))
    assert gate.lane_of("a") == gate.lane_of("b") == 1
    assert names(gate.wants("a", now)) == ["a"]
    assert gate.wants("b", now) == []
    turns = gate.ended("a", now + 1, 1 * GB, 9 * GB)
    assert names(turns) == ["b"]
    assert turns[0].shared
    assert turns[0].memory <= 12 * GB - 1 * GB


def test_a_job_without_room_for_a_lane_gets_its_turns_alone() -> None:
    gate = Gate(10 * GB, "pack")
    now = known(gate, ("a", 2 * GB, 4 * GB), ("b", 2 * GB, 6 * GB))
    assert gate.lane_of("b") == 0  # 2 + 2 + 6 with the margins is more than 10
    assert names(gate.wants("a", now)) == ["a"]
    assert gate.wants("b", now) == []
    assert names(gate.ended("a", now + 1, 2 * GB, 6 * GB)) == ["b"]
    assert gate.wants("a", now + 1) == []
    assert names(gate.ended("b", now + 2, 2 * GB, 8 * GB)) == ["a"]


def test_jobs_alternate_when_one_of_them_has_no_lane() -> None:
    gate = Gate(10 * GB, "pack")
    now = known(gate, ("a", 2 * GB, 4 * GB), ("b", 2 * GB, 6 * GB))
    order = names(gate.wants("a", now)) + names(gate.wants("b", now))
    needs = {"a": (2 * GB, 6 * GB), "b": (2 * GB, 8 * GB)}
    for _ in range(8):
        now += 1
        running = gate.running()[0]
        order += names(gate.ended(running, now, *needs[running]))
        order += names(gate.wants(running, now))
    assert order == ["a", "b"] * 4 + ["a"]


def test_a_job_that_never_fits_beside_the_others_waits_until_they_have_left() -> None:
    gate = Gate(10 * GB)
    now = known(gate, ("a", 4 * GB, 4 * GB), ("b", 3 * GB, 5 * GB))
    assert gate.wants("b", now) == []
    assert names(gate.wants("a", now)) == ["a"]
    assert gate.ended("a", now + 1, 4 * GB, 8 * GB) == []
    assert names(gate.gone("a", now + 2)) == ["b"]


def test_the_oldest_job_goes_on_whatever_comes_beside_it() -> None:
    gate = Gate(10 * GB)
    now = known(gate, ("a", 4 * GB, 4 * GB), ("b", 7 * GB, 1 * GB))
    assert gate.lanes.used <= gate.lanes.capacity or not gate.lanes.lanes
    assert gate.wants("b", now) == []
    assert names(gate.wants("a", now)) == ["a"]


def test_a_turn_that_lasts_too_long_is_taken_away_and_the_others_go_on() -> None:
    gate = Gate(12 * GB, "pack", patience_s=60)
    now = known(gate, ("a", 1 * GB, 8 * GB), ("b", 1 * GB, 7 * GB))
    gate.wants("a", now)
    gate.wants("b", now)
    assert gate.wake_at == now + 60
    assert gate.look(now + 59) == []
    assert names(gate.look(now + 60)) == ["b"]
    assert gate.late() == ["a"]
    gate.ended("b", now + 61, 1 * GB, 8 * GB)
    gate.ended("a", now + 70, 1 * GB, 9 * GB)
    assert gate.late() == []
    assert names(gate.wants("a", now + 71)) == ["a"]
    assert gate.wake_at == now + 71 + 10 * 69 + 10  # it has shown that its steps may take 70 s


def test_a_job_that_is_frozen_holds_up_no_other_job() -> None:
    gate = Gate(12 * GB, "pack")
    now = known(gate, ("a", 1 * GB, 8 * GB), ("b", 1 * GB, 7 * GB), ("c", 1 * GB, 7 * GB))
    gate.wants("a", now)
    gate.wants("b", now)
    gate.wants("c", now)
    assert gate.freezes("b", now) == []
    assert names(gate.freezes("a", now)) == ["c"]
    assert gate.ended("c", now + 1, 1 * GB, 8 * GB) == []  # b wants nothing now
    assert names(gate.wants("b", now + 2)) == ["b"]


def test_a_job_that_dies_in_its_turn_frees_the_lane() -> None:
    gate = Gate(12 * GB)
    now = known(gate, ("a", 1 * GB, 8 * GB), ("b", 1 * GB, 7 * GB))
    gate.wants("a", now)
    gate.wants("b", now)
    assert names(gate.gone("a", now)) == ["b"]
    gate.gone("b", now)
    assert gate.is_empty()
    assert gate.lanes.used == 0
    assert gate.wake_at == math.inf


def test_a_job_that_must_stop_gets_the_next_turn() -> None:
    gate = Gate(12 * GB, "pack")
    now = known(gate, ("a", 1 * GB, 6 * GB), ("b", 1 * GB, 6 * GB), ("c", 1 * GB, 6 * GB))
    for name in ("a", "b", "c"):
        gate.wants(name, now)
    gate.must_stop("c", now)
    assert names(gate.ended("a", now + 1, 1 * GB, 7 * GB)) == ["c"]


def test_a_new_agent_hears_which_jobs_run_before_it_gives_turns() -> None:
    gate = Gate(12 * GB, opens=5.0)
    gate.resumes("b", 1.0, runs=False, persistent=1 * GB, ephemeral=7 * GB)
    assert gate.wants("b", 1.0) == []
    assert gate.wake_at == 5.0
    gate.resumes("a", 2.0, runs=True, persistent=1 * GB, ephemeral=8 * GB)
    assert gate.look(5.0) == []  # b has its lane, but a still runs
    assert names(gate.ended("a", 6.0, 1 * GB, 9 * GB)) == ["b"]


def test_memory_that_a_job_loads_between_its_steps_takes_lanes_from_others() -> None:
    gate = Gate(16 * GB)
    now = known(gate, ("a", 1 * GB, 5 * GB), ("b", 1 * GB, 5 * GB))
    assert gate.lane_of("a") != gate.lane_of("b")
    gate.wants("c", now, persistent=4 * GB)
    assert gate.lanes.used <= gate.lanes.capacity
    assert gate.lane_of("a") == gate.lane_of("b")


@dataclass
class Program:
    """A job that runs steps as it may."""

    persistent: int
    ephemeral: int
    left: int
    took: float = 1.0
    ends: float = math.inf


PROGRAMS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 30), st.integers(1, 5), st.integers(1, 9)),
    min_size=1,
    max_size=6,
)


@given(
    shapes=PROGRAMS,
    spare=st.integers(0, 40),
    order=st.sampled_from(["fifo", "srtf", "fair", "rr", "pack"]),
    conserves=st.booleans(),
)
def test_no_step_lacks_memory_and_every_job_does_all_its_steps(
    shapes: list[tuple[int, int, int, int]], spare: int, order: Order, conserves: bool
) -> None:
    """Jobs that fit one lane all end, and what runs at once always fits the memory."""
    programs = {str(n): Program(p, e, left, took) for n, (p, e, left, took) in enumerate(shapes)}
    persistent = sum(math.ceil(each.persistent * 1.05) + 1 for each in programs.values())
    largest = max(math.ceil(each.ephemeral * 1.05) for each in programs.values())
    gate = Gate(persistent + largest + spare, order, conserves_work=conserves, patience_s=1e6)
    now, steps = 0.0, sum(each.left for each in programs.values())
    begun: list[str] = []
    for name, each in programs.items():
        begun += names(gate.wants(name, now, persistent=each.persistent, left=each.left))
    while programs:
        for name in begun:
            programs[name].ends = now + programs[name].took
        running = {name: each for name, each in programs.items() if each.ends < math.inf}
        assert running, "jobs wait for each other"
        assert set(gate.running()) == set(running)
        held = sum(each.persistent for each in programs.values())
        assert held + sum(each.ephemeral for each in running.values()) <= gate.lanes.capacity
        now, name = min((each.ends, name) for name, each in running.items())
        done = programs[name]
        done.ends, done.left, steps = math.inf, done.left - 1, steps - 1
        begun = names(gate.ended(name, now, done.persistent, done.persistent + done.ephemeral))
        if done.left:
            begun += names(gate.wants(name, now, persistent=done.persistent, left=done.left))
        else:
            del programs[name]
            begun += names(gate.gone(name, now))
        assert gate.lanes.used <= gate.lanes.capacity
    assert steps == 0
