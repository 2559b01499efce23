"""Long runs begin first, by what runs of the same settings have taken."""

from __future__ import annotations

import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from simulate.settings import RunSettings
from simulate.sweep import Dimensions, Inputs, expand
from simulate.sweep.order import LongestFirst


@pytest.fixture
def inputs(lab):
    short, long = ([(0.0, 1.0, 10.0)] * count for count in (2, 20))
    return Inputs(traces=(lab.trace(short), lab.trace(long)), cluster=parse_cluster_spec("1x4"))


def runs_of(*policies, load=(None,), seed=(0,), traces=1):
    return expand(Dimensions(policy=policies, load=load, seed=seed), RunSettings(), traces=traces)


def order(left):
    return [left.take() for _ in range(len(left))]


def test_the_trace_with_the_most_jobs_is_first_and_equal_runs_stay_in_order(inputs):
    runs = runs_of("fifo", seed=(1, 2), traces=2)
    assert [run.number for run in order(LongestFirst(inputs, runs))] == [2, 3, 0, 1]


def test_a_higher_load_begins_earlier(inputs):
    left = LongestFirst(inputs, runs_of("fifo", load=(0.5, 2.0, 1.0)))
    assert [run.settings.load for run in order(left)] == [2.0, 1.0, 0.5]


def test_a_slow_policy_begins_before_a_fast_one_that_has_more_jobs(inputs):
    left = LongestFirst(inputs, runs_of("fifo", "sia", seed=(1, 2, 3), traces=2))
    first = [left.take(), left.take()]
    assert {run.settings.policy for run in first} == {"fifo", "sia"}  # one of each to learn from
    for run in first:
        left.took(run, 200.0 if run.settings.policy == "sia" else 1.0)
    rest = order(left)
    assert [(run.settings.policy, run.trace) for run in rest] == [
        ("sia", 1), ("sia", 1), ("sia", 0), ("sia", 0), ("sia", 0),
        ("fifo", 1), ("fifo", 1), ("fifo", 0), ("fifo", 0), ("fifo", 0),
    ]  # fmt: skip


def test_settings_of_which_nothing_has_ended_are_taken_for_the_slowest(inputs):
    left = LongestFirst(inputs, runs_of("fifo", "srtf", seed=(1, 2)))
    fifo, srtf = left.take(), left.take()
    left.took(fifo, 5.0)
    assert [run.settings.policy for run in order(left)] == ["fifo", "srtf"]  # equal so far
    left = LongestFirst(inputs, runs_of("fifo", "srtf", seed=(1, 2)))
    fifo, srtf = left.take(), left.take()
    left.took(fifo, 5.0)
    left.took(srtf, 50.0)
    assert [run.settings.policy for run in order(left)] == ["srtf", "fifo"]
