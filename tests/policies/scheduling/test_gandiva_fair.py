"""Gandiva_fair: worked examples, and what tickets promise whatever the jobs are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.core.units import Units
from dlsched.policies.registry import make
from dlsched.policies.scheduling.gandiva_fair.assignments import CENTRAL, ServerAssignments
from dlsched.policies.scheduling.gandiva_fair.balance import ServerJob, loads, next_move
from dlsched.policies.scheduling.gandiva_fair.split_stride import LargeGang, select_jobs
from dlsched.policies.scheduling.gandiva_fair.stride import Contender, Passes, served
from dlsched.policies.scheduling.gandiva_fair.trading import Holding, trade
from simulate.clusters.cluster_events import ClusterEvent
from simulate.replay import prepare

TOLERANCE = 1e-9


def quanta(gpus: int, jobs: list[tuple[int, float]], count: int) -> tuple[list[Any], Passes]:
    """The jobs that run in each quantum on one server, by number; jobs are (gang, tickets)."""
    passes = Passes()
    for job in range(len(jobs)):
        passes.join(job)
    contenders = [Contender(job, gang, job) for job, (gang, _) in enumerate(jobs)]
    runs = []
    for _ in range(count):
        chosen = served(contenders, passes, gpus)
        for job in chosen:
            passes.charge(job, jobs[job][0], jobs[job][1])
        runs.append(chosen)
    return runs, passes


def test_a_large_gang_is_first_in_turn_with_the_whole_server_free() -> None:
    jobs = [(1, 1.0), (1, 1.0), (2, 1.0), (4, 1.0)]
    runs, passes = quanta(4, jobs, 8)
    small, large = [0, 1, 2], [3]
    assert [sorted(run) for run in runs] == [
        small, large, small, small, small, small, large, small,
    ]  # fmt: skip
    assert list(quanta(4, jobs, 2)[1].of.values()) == [1, 1, 2, 4]
    assert list(quanta(4, jobs, 6)[1].of.values()) == [5, 5, 10, 4]
    assert list(quanta(4, jobs, 7)[1].of.values()) == [5, 5, 10, 8]
    assert passes.lowest == 6


def test_tickets_divide_the_quanta() -> None:
    runs, _ = quanta(2, [(2, 3.0), (2, 1.0), (2, 1.0)], 13)
    assert [run[0] for run in runs] == [0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2]


def test_a_user_that_comes_back_begins_at_the_lowest_pass() -> None:
    passes = Passes()
    passes.join(0)
    for _ in range(10):
        passes.charge(0, 1, 1)
    passes.join(1)
    assert passes.of == {0: 10, 1: 10}


jobs_of = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0.5, 1.0, 2.0, 3.0])), min_size=1, max_size=8
)


@given(jobs=jobs_of, gpus=st.integers(4, 8))
def test_no_gpu_idles_while_a_gang_fits_and_every_job_runs_in_the_end(
    jobs: list[tuple[int, float]], gpus: int
) -> None:
    runs, _ = quanta(gpus, jobs, 400)
    for run in runs:
        left = gpus - sum(jobs[job][0] for job in run)
        assert left >= 0
        assert all(jobs[job][0] > left for job in range(len(jobs)) if job not in run)
    assert set().union(*runs) == set(range(len(jobs)))


@given(users=st.integers(1, 7), gpus=st.integers(1, 6), count=st.integers(1, 60))
def test_users_of_equal_tickets_are_at_most_a_quantum_apart(
    users: int, gpus: int, count: int
) -> None:
    runs, _ = quanta(gpus, [(1, 1.0)] * users, count)
    had = Counter(job for run in runs for job in run)
    assert max(had[job] for job in range(users)) - min(had[job] for job in range(users)) <= 1


# -- servers and large gangs ----------------------------------------------------------------------


def test_a_gang_over_two_servers_takes_turns_with_their_jobs() -> None:
    assignments = ServerAssignments()
    assignments.assign(0, CENTRAL)
    for row in range(1, 9):
        assignments.assign(row, (row - 1) // 4)
    gang = {0: 8, **dict.fromkeys(range(1, 9), 1)}
    runs = []
    for _ in range(6):
        turn = select_jobs(assignments, gang, {0: LargeGang(8, (0, 1), {})}, {0: 4, 1: 4})
        for row in [*turn.small, *turn.large]:
            assignments.passes(row).charge(row, gang[row], 8.0 if row == 0 else 1.0)
        for server, gpus in turn.granted.items():
            assignments.central.charge(-1 - server, gpus, 4.0)
        runs.append(len(turn.small) or "large")
        assert sum(turn.room.values()) == 0
    assert Counter(runs) == {"large": 3, 8: 3}


def test_a_stored_state_keeps_the_order_in_which_loads_are_summed_up() -> None:
    assignments = ServerAssignments()
    for row, server in ((0, 0), (1, 0), (2, 0), (0, 1), (0, 0)):  # a job that moves comes last
        assignments.assign(row, server)
    again = ServerAssignments()
    again.load_state_dict(assignments.state_dict())
    assert list(again.of) == list(assignments.of) == [1, 2, 0]


def test_a_server_that_is_not_taken_runs_its_own_jobs_beside_a_large_gang() -> None:
    assignments = ServerAssignments()
    assignments.assign(0, CENTRAL)
    assignments.assign(1, 2)
    assignments.central.of[-3] += 1.0  # the server has had more
    turn = select_jobs(
        assignments, {0: 6, 1: 3}, {0: LargeGang(6, (0, 1, 2), {})}, {0: 4, 1: 4, 2: 4}
    )
    assert turn.large == {0: {0: 4, 1: 2}}
    assert turn.small == {1: 2}


def test_what_a_user_is_ahead_goes_along_but_no_more_than_a_turn() -> None:
    assignments = ServerAssignments()
    for row, assigned in ((0, 0), (1, 0), (2, 1)):
        assignments.assign(row, assigned)
    assignments.passes(0).charge(0, 5, 1)
    assignments.passes(2).charge(2, 7, 1)
    assignments.assign(0, 1, most=2.0)
    assert assignments.local[1].of == {2: 7, 0: 9}
    assignments.assign(1, 1)
    assert 0 not in assignments.local
    assert list(assignments.central.of) == [-2]


# -- balance --------------------------------------------------------------------------------------


def test_the_smallest_job_that_evens_out_most_moves() -> None:
    jobs = [ServerJob(row, 0, 1, tickets, 3) for row, tickets in enumerate([0.2, 0.6, 0.2, 1.0])]
    gpus = {0: 1, 1: 1}
    move = next_move(jobs, gpus, 0.1, ())
    assert move == (3, 1)
    moved = [job._replace(server=1) if job.row == 3 else job for job in jobs]
    assert next_move(moved, gpus, 0.1, ()) is None


jobs_of = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 4), st.floats(0.01, 5.0), st.integers(1, 7)),
    min_size=1,
    max_size=10,
)


@given(jobs=jobs_of)
def test_every_move_evens_out_and_moving_ends(jobs: list[tuple[int, int, float, int]]) -> None:
    here = [
        ServerJob(row, server, gang, tickets, allowed | 1 << server)
        for row, (server, gang, tickets, allowed) in enumerate(jobs)
    ]
    gpus = {0: 4, 1: 4, 2: 8}
    for _ in range(200):
        before = loads(here, gpus)
        move = next_move(here, gpus, 0.1, ())
        if move is None:
            break
        assert here[move.row].allowed >> move.server & 1
        here[move.row] = here[move.row]._replace(server=move.server)
        after = loads(here, gpus)
        assert max(after.values()) - min(after.values()) < max(before.values()) - min(
            before.values()
        )
    else:
        pytest.fail("it moves for ever")


# -- trading --------------------------------------------------------------------------------------


def value(held: Holding, speedup: float) -> float:
    return held.slow + speedup * held.fast


def test_three_users_trade_at_the_second_highest_speedup() -> None:
    speedup = {"A": 1.2, "B": 2.0, "C": 5.0}
    before = dict.fromkeys(speedup, Holding(fast=4.0, slow=12.0))
    after, trades = trade(before, speedup)
    assert trades == [("A", "C", 2.0, 4.0)]
    assert after == {"A": (0, 20), "B": (4, 12), "C": (8, 4)}
    assert [value(after[user], speedup[user]) for user in "ABC"] == [20, 20, 44]
    assert value(before["A"], 1.2) == pytest.approx(16.8)
    total = [sum(value(held[u], speedup[u]) for u in speedup) for held in (before, after)]
    assert total == pytest.approx([68.8, 84.0])


def test_no_user_sells_for_gpus_that_it_cannot_use() -> None:
    speedup = {"A": 1.2, "B": 2.0, "C": 5.0}
    before = dict.fromkeys(speedup, Holding(fast=4.0, slow=12.0))
    assert trade(before, speedup, demand=dict.fromkeys(speedup, 16.0)) == (before, [])
    after, _ = trade(before, speedup, demand=dict.fromkeys(speedup, 17.0))
    assert after["A"] == (3, 14)


def test_two_users_trade_in_the_middle_or_not_at_all() -> None:
    speedup = {"A": 1.0, "B": 4.0}
    before = dict.fromkeys(speedup, Holding(fast=4.0, slow=4.0))
    assert trade(before, speedup) == (before, [])
    after, trades = trade(before, speedup, "middle")
    assert trades == [("A", "B", 2.0, 2.0)]
    assert after == {"A": (2, 8), "B": (6, 0)}


holdings_of = st.dictionaries(
    st.sampled_from("ABCDEF"),
    st.tuples(
        st.sampled_from([0.0, 1.0, 2.5, 4.0]),
        st.sampled_from([0.0, 1.0, 3.0, 12.0]),
        st.floats(0.5, 6.0),
    ),
    min_size=1,
)


@given(users=holdings_of, price=st.sampled_from(["second", "middle"]))
def test_no_trade_makes_a_user_poorer_and_gpus_stay(
    users: dict[str, tuple[float, float, float]], price: Any
) -> None:
    before = {user: Holding(fast, slow) for user, (fast, slow, _) in users.items()}
    speedup = {user: s for user, (_, _, s) in users.items()}
    after, trades = trade(before, speedup, price)
    for user in users:
        slack = 1e-6 * max(1.0, value(before[user], speedup[user]))
        assert value(after[user], speedup[user]) >= value(before[user], speedup[user]) - slack
        assert min(after[user]) >= 0
    for kind in (0, 1):
        total = sum(held[kind] for held in before.values())
        assert sum(held[kind] for held in after.values()) == pytest.approx(total)
    assert all(speedup[deal.seller] < deal.price <= speedup[deal.buyer] for deal in trades)


# -- the policy -----------------------------------------------------------------------------------


def shares_of(
    lab: Any, jobs: list[Any], users: list[str], until: float, **given: Any
) -> Counter[str]:
    """GPU-seconds by user up to a time."""
    trace = lab.trace(jobs, user=users)
    run = lab.run(trace, "gandiva-fair", clock="rounds", horizon=until, **given)
    had: Counter[str] = Counter()
    for user, seconds in zip(run.jobs.user.tolist(), run.jobs.gpu_seconds.tolist(), strict=True):
        had[user] += seconds
    return had


def test_a_user_of_many_jobs_has_no_more_than_a_user_of_one(lab: Any) -> None:
    jobs = [(0, 1, 36000)] * 13
    users = ["one"] + ["many"] * 12
    had = shares_of(lab, jobs, users, 18000, cluster="1x1")
    assert had["one"] == pytest.approx(9000, abs=12 * 60)
    four = shares_of(lab, jobs, users, 18000, cluster="1x4")
    assert four["one"] == pytest.approx(18000, abs=4 * 60)  # it cannot use more than one GPU


@pytest.mark.parametrize("length", [pytest.param(25.0, marks=pytest.mark.slow), 60.0, 150.0])
def test_a_user_of_short_jobs_has_no_more_than_a_user_of_a_long_one(
    lab: Any, length: float
) -> None:
    count = int(1.5 * 9000 / length)  # more than their share takes
    jobs = [(0, 1, 36000)] + [(k % 7, 1, length) for k in range(count)]
    had = shares_of(lab, jobs, ["one"] + ["many"] * count, 18000, cluster="1x1")
    assert had["one"] == pytest.approx(9000, rel=0.05)


def test_a_stream_of_short_jobs_has_no_more_either(lab: Any) -> None:
    jobs = [(0, 1, 36000)] + [(90.0 * k, 1, 60) for k in range(200)]
    had = shares_of(lab, jobs, ["one"] + ["stream"] * 200, 18000, cluster="1x1")
    assert had["one"] >= 0.95 * 9000


def test_tickets_are_kept_over_servers_and_gangs(lab: Any) -> None:
    jobs = [(0, 2, 90000)] * 6 + [(0, 1, 90000)] * 8 + [(0, 8, 90000)]
    users = ["a"] * 6 + ["b"] * 8 + ["c"]
    options = ("tickets=a:2,b:1,c:1",)
    had = shares_of(lab, jobs, users, 36000, cluster="2x4", options=options)
    whole = 8 * 36000
    assert had["a"] / whole == pytest.approx(0.5, abs=0.06)
    assert had["b"] / whole == pytest.approx(0.25, abs=0.06)
    assert had["c"] / whole == pytest.approx(0.25, abs=0.06)
    assert sum(had.values()) == pytest.approx(whole, rel=0.02)


def test_waiting_jobs_go_where_gpus_idle(lab: Any) -> None:
    jobs = [(0, 1, 600)] * 4 + [(0, 1, 6000)] * 4
    run = lab.run(jobs, "gandiva-fair", cluster="2x2", clock="rounds")
    assert run.summary["makespan"] <= 600 * 2 + 6000 + 60


def test_fast_gpus_go_to_the_user_that_they_are_worth_most_to(lab: Any) -> None:
    rates = {"even": 1.2, "some": 2.0, "keen": 5.0}
    table = ThroughputTable(
        [
            Measurement(kind=JobKind(name), gpu_type=gpu, scale=1, rate=rate, where="here")
            for name, fast in rates.items()
            for gpu, rate in (("slow", 1.0), ("fast", fast))
        ]
    )
    names = [name for name in rates for _ in range(24)]
    trace = lab.trace(
        [(0, 1, 200000)] * len(names), user=names, model=names, total_iterations=[1e6] * len(names)
    )

    def steps(*options: str) -> np.ndarray[Any, Any]:
        settings = lab.settings("gandiva-fair", clock="rounds", horizon=20000.0, options=options)
        engine = prepare(trace, lab.cluster("3x4:fast+9x4:slow"), settings, throughputs=table)
        engine.run()
        units = engine.world.table
        done = Units(units, np.arange(len(units)), 20000.0).executed
        per_work = np.repeat(list(rates.values()), 24)
        return np.asarray((done * per_work).reshape(3, 24).sum(axis=1))

    with_trade, without = steps() / 20000, steps("trade=false") / 20000
    assert without.tolist() == pytest.approx([16.8, 20.0, 32.0], rel=0.03)
    assert with_trade.tolist() == pytest.approx([20.0, 20.0, 44.0], rel=0.03)


def test_a_gang_that_no_type_can_hold_takes_turns_on_a_mix(lab: Any) -> None:
    jobs = [(0, 4, 3600)] + [(0, 2, 3600)] * 2
    had = shares_of(lab, jobs, ["wide", "one", "two"], 3600, cluster="1x2:a+1x2:b")
    assert had["wide"] == pytest.approx(3600 * 4 / 2, rel=0.2)
    assert sum(had.values()) == pytest.approx(3600 * 4, rel=0.02)


@pytest.mark.parametrize("events", [True, False])
def test_a_node_that_leaves_takes_no_seats_along(lab: Any, events: bool) -> None:
    script = [ClusterEvent(time=500.0, kind="leave", node=1)] if events else []
    run = lab.run([(0, 2, 1200)] * 6, "gandiva-fair", cluster="2x4", clock="rounds", events=script)
    assert run.summary["completed"] == 6


def test_tickets_that_cannot_be_are_refused() -> None:
    for text in ("ann", "ann:0", "ann:-1", "ann:nan", ":3", "ann:inf"):
        with pytest.raises(BadInput, match="tickets"):
            make("scheduling", "gandiva-fair", {"tickets": text})


def test_it_goes_on_from_its_state_as_if_nothing_had_happened(lab: Any) -> None:
    jobs = [(20.0 * k, 1 + k % 3, 400.0 + 130 * (k % 4)) for k in range(24)]
    users = [f"u{k % 3}" for k in range(24)]
    whole = lab.run(lab.trace(jobs, user=users), "gandiva-fair", cluster="2x4")
    finishes = whole.jobs.finish_time.tolist()
    engine = lab.engine(lab.trace(jobs, user=users), "gandiva-fair", cluster="2x4", clock="events")

    def swap(engine: Any, _: Any) -> None:
        state = engine.parts.scheduling.state_dict()
        fresh = make("scheduling", "gandiva-fair", {})
        fresh.load_state_dict(state)
        assert fresh.state_dict() == state
        engine.parts.scheduling = fresh

    engine.observers.append(swap)
    engine.run()
    assert engine.world.table.finish.tolist() == finishes
