"""AntMan's local coordinator: its control loop step by step, memory, and what it always keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.node_policy import (
    Came,
    DividedGpus,
    Event,
    Left,
    Limit,
    MemoryRead,
    Outcome,
    Resident,
    Stepped,
    Woke,
    least,
)
from dlsched.policies.node.antman import Coordinator, GpuState, OpportunisticJob, Owner
from dlsched.policies.registry import make
from tests.policies.node.interfering import Interfering

GIB = 1 << 30
OWNER, FIRST, SECOND = 1, 2, 3


def coordinator(**options: object) -> Coordinator:
    made: Coordinator = make("node", "antman-node", options)
    return made


def shares(outcome: Outcome[GpuState]) -> dict[int, int]:
    return {job: limit.share for job, limit in outcome.limits.items()}


def after(policy: Coordinator, state: GpuState, events: Sequence[Event]) -> Outcome[GpuState]:
    outcome = Outcome[GpuState](state, {})
    for event in events:
        outcome = policy.step(outcome.state, event)
    return outcome


def came(now: float, job: int, *, owner: bool = False, throttles: bool = True) -> Came:
    return Came(now=now, resident=Resident(job=job, guaranteed=owner, can_throttle=throttles))


def alone(
    job: int = OWNER, *, begin: float = 10.0, each: float = 0.1, count: int = 20
) -> list[Event]:
    """Mini-batches of a job, one after the other."""
    return [Stepped(now=begin + (k + 1) * each, job=job, duration_s=each) for k in range(count)]


def test_the_script_of_the_sheet() -> None:
    """Reference 100 ms, share 40: each duration is one look."""
    policy = coordinator()
    state = GpuState(
        owner=Owner(job=OWNER, since=0.0, own_s=0.1),
        opportunistic=(OpportunisticJob(job=FIRST, share=40),),
        still_since=math.inf,
    )
    now, seen = 0.0, []
    for duration in (100, 101, 101, 108, 101, 101, 101, 120):
        now += 1.0
        step = Stepped(now=now, job=OWNER, duration_s=duration / 1000)
        outcome = after(policy, state, [step, Woke(now=now)])
        state = outcome.state
        seen.append(shares(outcome)[FIRST])
    assert seen == [40, 40, 45, 22, 22, 22, 27, 13]


@pytest.mark.parametrize(
    ("milliseconds", "expected"), [(105.0, 40), (105.1, 20), (102.0, 45), (102.1, 40)]
)
def test_the_bounds_belong_to_the_better_side(milliseconds: float, expected: int) -> None:
    policy = coordinator(calm_looks=1)
    state = GpuState(
        owner=Owner(job=OWNER, since=0.0, own_s=0.1),
        opportunistic=(OpportunisticJob(job=FIRST, share=40),),
        still_since=math.inf,
    )
    step = Stepped(now=1.0, job=OWNER, duration_s=milliseconds / 1000)
    assert shares(after(policy, state, [step, Woke(now=1.0)]))[FIRST] == expected


def test_an_owner_that_comes_stops_the_others_until_its_own_time_is_known() -> None:
    policy = coordinator()
    outcome = after(policy, policy.begin(), [came(0.0, FIRST), came(1.0, SECOND)])
    assert shares(outcome) == {FIRST: 50, SECOND: 50}
    assert outcome.wake_at == math.inf

    outcome = policy.step(outcome.state, came(5.0, OWNER, owner=True))
    assert shares(outcome) == {OWNER: 100, FIRST: 0, SECOND: 0}
    assert outcome.wake_at == 6.0

    early = [Stepped(now=5.5, job=OWNER, duration_s=0.5)]  # others may still have been at work
    outcome = after(policy, outcome.state, [*early, *alone(count=19), Woke(now=12.0)])
    assert outcome.state.owner is not None
    assert outcome.state.owner.own_s is None
    assert shares(outcome)[FIRST] == 0

    outcome = after(policy, outcome.state, alone(begin=12.0, count=1))
    assert outcome.state.owner is not None
    assert outcome.state.owner.own_s == pytest.approx(0.1)


def test_the_oldest_grows_first_and_the_largest_shrinks_first() -> None:
    policy = coordinator(calm_looks=1)
    state = GpuState(
        owner=Owner(job=OWNER, since=0.0, own_s=0.1),
        opportunistic=(
            OpportunisticJob(job=FIRST, share=93),
            OpportunisticJob(job=SECOND, share=0),
        ),
        still_since=math.inf,
    )

    def look(duration: float) -> dict[int, int]:
        nonlocal state
        step = Stepped(now=1.0, job=OWNER, duration_s=duration)
        outcome = after(policy, state, [step, Woke(now=1.0)])
        state = outcome.state
        return shares(outcome)

    assert look(0.1) == {OWNER: 100, FIRST: 95, SECOND: 0}
    assert look(0.1) == {OWNER: 100, FIRST: 95, SECOND: 5}
    assert look(0.2) == {OWNER: 100, FIRST: 47, SECOND: 5}


def test_without_a_new_measurement_nothing_changes_unless_the_owner_is_idle() -> None:
    policy = coordinator()
    state = GpuState(
        owner=Owner(job=OWNER, since=0.0, own_s=0.1, last_step_at=100.0),
        opportunistic=(OpportunisticJob(job=FIRST, share=40),),
        still_since=math.inf,
    )
    busy = after(policy, state, [Woke(now=float(t)) for t in range(101, 111)])
    assert shares(busy)[FIRST] == 40
    idle = after(policy, busy.state, [Woke(now=float(t)) for t in range(111, 114)])
    assert shares(idle)[FIRST] == 45


def test_a_new_pattern_of_the_owner_counts_when_it_is_measured_alone() -> None:
    policy = coordinator()
    state = GpuState(
        owner=Owner(job=OWNER, since=0.0, own_s=0.1),
        opportunistic=(OpportunisticJob(job=FIRST, share=0),),
        still_since=0.0,
    )
    slower = after(policy, state, alone(each=0.2))
    assert slower.state.owner is not None
    assert slower.state.owner.own_s == pytest.approx(0.2)
    much_alike = after(policy, state, alone(each=0.104))
    assert much_alike.state.owner is not None
    assert much_alike.state.owner.own_s == 0.1


def test_a_job_that_obeys_no_share_runs_or_stands_still() -> None:
    policy = coordinator(calm_looks=1)
    resident = Resident(job=FIRST, guaranteed=False, share=30, can_throttle=False)
    outcome = after(
        policy,
        policy.begin(),
        [Came(now=0.0, resident=resident), came(1.0, OWNER, owner=True), *alone(begin=10.0)],
    )
    assert shares(outcome)[FIRST] == 0
    outcome = policy.step(outcome.state, Woke(now=13.0))
    assert shares(outcome)[FIRST] == 30
    slow = Stepped(now=14.0, job=OWNER, duration_s=0.2)
    assert shares(after(policy, outcome.state, [slow, Woke(now=14.0)]))[FIRST] == 0


def test_the_owners_end_lifts_all_limits() -> None:
    policy = coordinator()
    opportunistic = (
        OpportunisticJob(job=FIRST, share=10, memory_bytes=GIB),
        OpportunisticJob(job=SECOND, share=0, memory_bytes=GIB, leaves=False),
    )
    state = GpuState(
        owner=Owner(job=OWNER, since=0.0), opportunistic=opportunistic, total_bytes=16 * GIB
    )
    outcome = policy.step(state, Left(now=1.0, job=OWNER))
    assert outcome.limits == {FIRST: Limit(share=50), SECOND: Limit(share=50)}
    assert outcome.wake_at == math.inf


def test_memory_beside_an_owner() -> None:
    """Each may have what it needs to go on, and its part of what the owner leaves."""
    policy = coordinator()
    events: list[Event] = [
        came(0.0, FIRST),
        MemoryRead(now=0.0, total_bytes=16 * GIB, free_bytes=12 * GIB),
        Stepped(now=1.0, job=FIRST, duration_s=0.1, memory_bytes=2 * GIB),
        came(2.0, OWNER, owner=True),
    ]
    outcome = after(policy, policy.begin(), events)
    assert outcome.limits[FIRST].memory_bytes == 2 * GIB  # nothing is known of the owner yet
    steps = [
        Stepped(now=10.0 + k, job=OWNER, duration_s=0.1, memory_bytes=10 * GIB) for k in range(20)
    ]
    outcome = after(policy, outcome.state, steps)
    assert outcome.limits[FIRST].memory_bytes == 16 * GIB - 11 * GIB


def test_the_newest_gives_memory_back_first_and_goes_when_that_is_not_enough() -> None:
    policy = coordinator()
    opportunistic = (
        OpportunisticJob(job=FIRST, share=20, stable_bytes=GIB, memory_bytes=3 * GIB),
        OpportunisticJob(job=SECOND, share=20, stable_bytes=GIB, memory_bytes=2 * GIB),
    )
    owner = Owner(job=OWNER, since=0.0, own_s=0.1, last_step_at=1.0, spilled_bytes=GIB)
    state = GpuState(
        owner=owner,
        opportunistic=opportunistic,
        total_bytes=20 * GIB,
        free_bytes=10 * GIB,
        still_since=math.inf,
    )
    outcome = policy.step(state, Woke(now=1.0))
    limits = outcome.limits
    assert (limits[SECOND].memory_bytes, limits[FIRST].memory_bytes) == (GIB, 2 * GIB)
    outcome = after(policy, outcome.state, [Woke(now=2.0)])
    assert outcome.limits[FIRST].memory_bytes == GIB
    outcome = after(policy, outcome.state, [Woke(now=3.0)])
    assert (outcome.limits[SECOND].leaves, outcome.limits[SECOND].share) == (True, 0)
    assert not outcome.limits[FIRST].leaves
    outcome = after(policy, outcome.state, [Woke(now=4.0)])
    assert outcome.limits[FIRST].leaves


def test_little_free_memory_is_enough_to_take_some_back() -> None:
    policy = coordinator()
    opportunistic = (OpportunisticJob(job=FIRST, share=20, stable_bytes=GIB),)
    owner = Owner(job=OWNER, since=0.0, own_s=0.1, last_step_at=1.0)
    state = GpuState(owner=owner, opportunistic=opportunistic, still_since=math.inf)
    read = MemoryRead(now=1.0, total_bytes=20 * GIB, free_bytes=GIB // 2)
    outcome = after(policy, state, [read, Woke(now=1.0)])
    assert outcome.limits[FIRST].memory_bytes == 19 * GIB
    again = policy.step(outcome.state, Woke(now=2.0))  # from the same reading
    assert again.limits == outcome.limits


@pytest.mark.parametrize("duration", [math.nan, math.inf, 0.0, -1.0])
def test_an_odd_duration_is_passed_over(duration: float) -> None:
    policy = coordinator()
    state = after(policy, policy.begin(), [came(0.0, OWNER, owner=True), came(1.0, FIRST)]).state
    odd = Stepped(now=2.0, job=OWNER, duration_s=duration)
    assert policy.step(state, odd).state == state


def test_events_of_unknown_jobs_are_passed_over() -> None:
    policy = coordinator()
    state = after(policy, policy.begin(), [came(0.0, OWNER, owner=True), came(1.0, FIRST)]).state
    for event in (Stepped(now=2.0, job=99, duration_s=1.0), Left(now=2.0, job=99)):
        assert policy.step(state, event).state == state


def test_a_job_of_several_gpus_gets_the_least_share_of_them() -> None:
    gpus = DividedGpus(coordinator())
    gpus.come(0.0, Resident(job=FIRST, guaranteed=False), ("a", "b"))
    assert gpus.limit_of(FIRST) == Limit()
    changed = gpus.come(1.0, Resident(job=OWNER), ("b",))
    assert changed == {OWNER: Limit(), FIRST: Limit(share=0)}
    assert gpus.next_wake == 2.0
    assert gpus.leave(2.0, OWNER) == {FIRST: Limit()}
    assert gpus.leave(3.0, FIRST) == {}
    assert (gpus.states, gpus.next_wake) == ({}, math.inf)
    assert least([Limit(share=9, memory_bytes=5), Limit(leaves=True)]) == Limit(
        share=9, memory_bytes=5, leaves=True
    )


@settings(max_examples=12, deadline=None)
@given(
    owner_use=st.floats(0.05, 1.0),
    other_uses=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=3),
    step_s=st.floats(0.02, 2.0),
    seed=st.integers(0, 10_000),
)
def test_a_guaranteed_job_is_slowed_by_at_most_five_per_cent(
    owner_use: float, other_uses: list[float], step_s: float, seed: int
) -> None:
    """Its mean slowdown outside 10 s after jobs came, left or paused; nothing starves."""
    gpu = Interfering(coordinator(), owner_use, other_uses, step_s=step_s, seed=seed)
    gpu.run(1200.0)
    assert gpu.mean_slowdown <= 0.05
    assert gpu.longest_starved_s <= 60.0
