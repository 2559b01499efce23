"""EASY and conservative backfill: cases worked by hand, and what each policy promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.policies.scheduling.backfill import clock_text

E1 = [(0, 2, 10), (1, 4, 5), (2, 2, 9), (3, 2, 4), (4, 1, 20)]
E2 = [(0, 3, 10), (1, 3, 5), (2, 4, 5), (3, 1, 30)]
JOBS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=12
)


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_short_job_slips_in_before_the_head_in_case_e1(lab, policy):
    assert lab.spans(lab.run(E1, policy, placement="count")) == {
        "A": (0, 10),
        "B": (10, 15),
        "C": (15, 24),
        "D": (3, 7),
        "E": (15, 35),
    }


def test_easy_protects_only_the_head_in_case_e2(lab):
    assert lab.spans(lab.run(E2, "easy", placement="count")) == {
        "A": (0, 10),
        "B": (10, 15),
        "C": (33, 38),
        "D": (3, 33),
    }


def test_conservative_protects_every_job_in_case_e2(lab):
    assert lab.spans(lab.run(E2, "conservative", placement="count")) == {
        "A": (0, 10),
        "B": (10, 15),
        "C": (15, 20),
        "D": (20, 50),
    }


def test_a_job_whose_limit_may_be_lowered_starts_before_the_head_of_easy(lab):
    jobs = [(0, 2, 10), (1, 4, 5), (2, 2, 9)]  # the third would end after the head could start
    nan = float("nan")
    for least, start in ((nan, 15), (9.0, 15), (8.0, 2)):
        trace = lab.trace(jobs, time_min=[nan, nan, least])
        assert lab.spans(lab.run(trace, "easy", placement="count"))["C"][0] == start


@given(jobs=JOBS)
def test_with_exact_times_conservative_starts_no_job_later_than_fifo(lab, jobs):
    conservative = lab.run(jobs, "conservative", placement="count").jobs.first_start_time
    fifo = lab.run(jobs, "fifo", placement="count").jobs.first_start_time
    assert (conservative <= fifo).all()


@given(jobs=JOBS)
def test_when_every_job_needs_all_gpus_backfill_is_fifo(lab, jobs):
    wide = [(submit, 4, duration) for submit, _, duration in jobs]
    runs = [
        lab.spans(lab.run(wide, p, placement="count")) for p in ("fifo", "easy", "conservative")
    ]
    assert runs[0] == runs[1] == runs[2]


@given(jobs=JOBS, factor=st.floats(0.3, 3.0))
def test_with_wrong_estimates_every_job_still_runs_once_and_whole(lab, jobs, factor):
    limits = [max(round(duration * factor), 1) for _, _, duration in jobs]
    trace = lab.trace(jobs, time_limit=limits)
    for policy in ("easy", "conservative"):
        done = lab.run(trace, policy, placement="count", estimate="user").jobs
        assert (done.status == "completed").all()
        assert np.array_equal(done.finish_time - done.first_start_time, done.duration)


def test_conservative_moves_up_when_a_job_ends_before_its_estimate(lab):
    # A says 100 s but takes 10; B, planned for 100, starts at 10
    trace = lab.trace([(0, 4, 10), (1, 4, 5)], time_limit=[100, 5])
    run = lab.run(trace, "conservative", placement="count", estimate="user")
    assert lab.spans(run) == {"A": (0, 10), "B": (10, 15)}


def test_easy_counts_a_job_that_outran_its_estimate_as_ending_a_minute_later(lab):
    # at 20 A has outrun its 10 s: the head B is expected at 80, so C (50 s) may run before it
    trace = lab.trace([(0, 3, 30), (5, 4, 5), (20, 1, 50)], time_limit=[10, 5, 50])
    run = lab.run(trace, "easy", placement="count", estimate="user")
    assert lab.spans(run)["C"] == (20, 70)
    assert lab.spans(run)["B"] == (70, 75)


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_backfill_holds_its_plan_per_partition(lab, policy):
    cluster = Cluster(
        [Node(name="a", gpus=2), Node(name="b", gpus=2)],
        [VirtualCluster(name="va", nodes=("a",)), VirtualCluster(name="vb", nodes=("b",))],
    )
    trace = lab.trace([(0, 2, 10), (1, 2, 10), (2, 1, 3)], vc=["va", "va", "vb"])
    run = lab.run(trace, policy, cluster=cluster)
    assert lab.spans(run) == {"A": (0, 10), "B": (10, 20), "C": (2, 5)}


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_job_that_waits_for_its_quota_delays_no_other(lab, policy):
    cluster = Cluster(
        [Node(name="n", gpus=8)],
        [
            VirtualCluster(name="a", gpus=4, guaranteed=4),
            VirtualCluster(name="b", gpus=8, guaranteed=8),
        ],
    )
    jobs = [(0, 4, 1000), (1, 4, 100), (2, 4, 5000)]
    run = lab.run(lab.trace(jobs, vc=["a", "a", "b"]), policy, cluster=cluster)
    assert lab.spans(run) == {"A": (0, 1000), "B": (1000, 1100), "C": (2, 5002)}


def test_planned_starts_are_seconds_of_a_replay_and_moments_of_a_live_cluster():
    assert clock_text(4130.0) == "4,130 s"
    assert clock_text(1_795_649_421.0) == "2026-11-25 23:30 UTC"
    assert clock_text(np.inf) == "an unknown time"
