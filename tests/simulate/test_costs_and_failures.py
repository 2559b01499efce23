"""What interruptions cost, worked by hand: restarts, checkpoints, minimum runs, nodes that fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlsched.core.speed.truth import PerformanceModel
from simulate.clusters.cluster_events import ClusterEvent
from simulate.published.profiles import PROFILES


def event(time: float, kind: Any, node: int = 0, gpu_type: int = -1) -> ClusterEvent:
    return ClusterEvent(time=time, kind=kind, node=node, gpu_type=gpu_type)


# -- restarts -------------------------------------------------------------------------------------


def test_each_start_costs_the_overhead(lab: Any) -> None:
    # A: 0-50 (10 lost, 40 done); B: 50-70; A again: 70-140 (10 lost, 60 done)
    result = lab.run([(0, 1, 100), (50, 1, 10)], "srtf", cluster="1x1", overhead=10.0)
    assert lab.spans(result) == {"A": (0, 140), "B": (50, 70)}
    assert result.jobs.gpu_seconds.tolist() == [120, 20]
    assert result.jobs.starts.tolist() == [2, 1]
    assert result.jobs.preemptions.tolist() == [1, 0]


def test_a_profile_may_charge_restarts_only(lab: Any) -> None:
    restarts_only = replace(PROFILES["events"], overhead="restarts")
    engine = lab.engine(
        [(0, 1, 100), (50, 1, 10)], "srtf", cluster="1x1", overhead=10.0, semantics=restarts_only
    )
    engine.run()
    # A: 0-50 (50 done); B: 50-60; A: 60-120 (10 lost, 50 done)
    assert engine.world.table.finish.tolist() == [120, 60]


def test_a_job_suspended_while_it_restarts_has_done_nothing(lab: Any) -> None:
    # A starts at 0, is suspended at 5 before its 10 s of restart are over
    result = lab.run([(0, 1, 100), (5, 1, 20)], "srtf", cluster="1x1", overhead=10.0)
    assert lab.spans(result) == {"A": (0, 145), "B": (5, 35)}


def test_charging_the_restart_makes_a_policy_stay(lab: Any) -> None:
    # at 50 A has 60 s left (10 went into its start), B would take 55 + 10 with its own start
    jobs = [(0, 1, 100), (50, 1, 55)]
    naive = lab.run(jobs, "srtf", cluster="1x1", overhead=10.0)
    wise = lab.run(jobs, "srtf", cluster="1x1", overhead=10.0, options=("charge_restart=true",))
    assert naive.jobs.preemptions.tolist() == [1, 0]
    assert wise.jobs.preemptions.tolist() == [0, 0]


@pytest.mark.parametrize("clock", ["events", "rounds"])
def test_a_job_is_not_preempted_before_its_minimum_run(lab: Any, clock: str) -> None:
    jobs = [(0, 1, 300), (5, 1, 10)]
    result = lab.run(jobs, "srtf", cluster="1x1", min_run=120.0, clock=clock, round_s=None)
    assert lab.spans(result)["B"] == (120, 130)


def test_a_minimum_run_counts_from_each_start_anew(lab: Any) -> None:
    # B takes over at 30; when C comes B is protected until 60
    jobs = [(0, 1, 100), (10, 1, 50), (40, 1, 5)]
    result = lab.run(jobs, "srtf", cluster="1x1", min_run=30.0)
    assert lab.spans(result)["B"][0] == 30
    assert lab.spans(result)["C"] == (60, 65)


# -- nodes that fail ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "overhead", "lost", "finish"),
    [
        (None, 0.0, 50, 160),  # all 50 s again from 60 on
        (20.0, 0.0, 10, 120),  # 40 s are in the checkpoint
        (20.0, 10.0, 20, 130),  # two checkpoints kept all work; both restarts are lost time
        (60.0, 0.0, 50, 160),  # no checkpoint yet
        (50.0, 0.0, 0, 110),  # a checkpoint that very second
    ],
)
def test_a_crash_falls_back_to_the_last_checkpoint(
    lab: Any, interval: float | None, overhead: float, lost: float, finish: float
) -> None:
    result = lab.run(
        [(0, 1, 100)],
        cluster="1x1",
        events=[event(50, "fail"), event(60, "join")],
        interval=interval,
        overhead=overhead,
    )
    assert result.jobs.lost_seconds.tolist() == [lost]
    assert result.jobs.finish_time.tolist() == [finish]
    assert result.jobs.preemptions.tolist() == [0]


def test_a_suspension_saves_what_a_later_crash_cannot_take(lab: Any) -> None:
    # A: 0-30, suspended for B 30-40, again 40-50, crash: falls back to 30, from 60 on 70 s
    result = lab.run(
        [(0, 1, 100), (30, 1, 10)],
        "srtf",
        cluster="1x1",
        events=[event(50, "fail"), event(60, "join")],
    )
    assert result.jobs.lost_seconds.tolist() == [10, 0]
    assert lab.spans(result)["A"] == (0, 130)


def test_a_gang_over_two_nodes_loses_both(lab: Any) -> None:
    result = lab.run(
        [(0, 4, 100), (10, 2, 20)], "first-fit", cluster="2x2", events=[event(50, "fail", node=1)]
    )
    assert lab.spans(result)["B"] == (50, 70), "the healthy node is free for others at once"
    assert result.jobs.status.tolist() == ["unfinished", "completed"]
    assert result.jobs.lost_seconds.tolist() == [50, 0]


def test_lost_seconds_are_seconds_whatever_the_speed(lab: Any) -> None:
    class Twice(PerformanceModel):
        def rate(self, *_: Any, **__: Any) -> float:
            return 2.0

    result = lab.run(
        [(0, 1, 100)],
        cluster="1x1",
        events=[event(20, "fail"), event(30, "join")],
        performance=Twice(),
    )
    assert result.jobs.lost_seconds.tolist() == [20]
    assert result.jobs.finish_time.tolist() == [80]


@pytest.mark.parametrize("at", [320.0, 550.0, 599.0])
def test_work_is_never_more_than_all_when_gpus_are_kept_until_the_tick(lab: Any, at: float) -> None:
    # under blox A is done at 310 and keeps its GPU until 600; the node leaves in between
    result = lab.run(
        [(0, 1, 310)],
        cluster="1x1",
        options=("semantics=blox",),
        events=[event(at, "leave"), event(at + 1, "join")],
    )
    assert result.jobs.status.tolist() == ["completed"]
    assert result.jobs.finish_time[0] in (600, 900)


# -- nodes that come and go -----------------------------------------------------------------------


def test_a_node_that_leaves_suspends_its_jobs_with_their_work(lab: Any) -> None:
    result = lab.run([(0, 1, 100)], cluster="1x1", events=[event(50, "leave"), event(80, "join")])
    assert lab.spans(result) == {"A": (0, 130)}
    assert (result.jobs.lost_seconds.tolist(), result.jobs.preemptions.tolist()) == ([0], [1])


def test_a_node_whose_first_event_is_a_join_is_not_there_before(lab: Any) -> None:
    result = lab.run([(0, 4, 100)], cluster="2x2", events=[event(30, "join", node=1)])
    assert lab.spans(result) == {"A": (30, 130)}
    assert result.timeline.total_gpus.tolist()[0] == 2
    assert result.timeline.total_gpus.tolist()[-1] == 4


def test_a_draining_node_finishes_its_jobs_and_takes_no_more(lab: Any) -> None:
    events = [event(10, "drain"), event(200, "undrain")]
    result = lab.run([(0, 1, 100), (20, 1, 30)], cluster="1x1", events=events)
    assert lab.spans(result) == {"A": (0, 100), "B": (200, 230)}


def test_a_drained_node_that_joins_again_is_open(lab: Any) -> None:
    events = [event(10, "drain"), event(50, "leave"), event(60, "join")]
    result = lab.run([(0, 1, 100)], cluster="1x1", events=events)
    assert lab.spans(result) == {"A": (0, 110)}


def test_a_retyped_node_serves_the_jobs_of_its_new_type(lab: Any) -> None:
    trace = lab.trace([(0, 2, 100), (0, 2, 100)], gpu_type=["a", "b"])
    # node 0 becomes a b at 50: A loses it for ever, B (which had waited) starts there
    result = lab.run(
        trace,
        cluster="1x2:a+1x1:b",
        events=[event(50, "retype", node=0, gpu_type=1)],
    )
    assert result.jobs.status.tolist() == ["unfinished", "completed"]
    assert result.jobs.first_start_time[1] == 50
    trace = lab.trace([(0, 2, 100), (0, 1, 100), (60, 2, 100)], gpu_type=["a", "b", "b"])
    result = lab.run(
        trace,
        cluster="1x2:a+1x2:b",
        events=[event(50, "retype", node=0, gpu_type=1), event(300, "retype", node=0, gpu_type=0)],
    )
    assert lab.spans(result) == {"A": (0, 350), "B": (0, 100), "C": (60, 160)}


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "easy"])
@pytest.mark.parametrize("kind", ["fail", "leave"])
def test_losing_every_node_for_a_while_loses_no_job(lab: Any, policy: str, kind: str) -> None:
    events = [event(50, kind, node=0), event(55, kind, node=1)]
    events += [event(400, "join", node=0), event(500, "join", node=1)]
    jobs = [(k * 7, 1 + k % 4, 60 + 13 * k) for k in range(8)]
    result = lab.run(jobs, policy, cluster="2x4", clock="rounds", events=events)
    assert result.jobs.status.tolist() == ["completed"] * 8


def test_what_happens_to_nodes_after_the_last_job_is_of_no_interest(lab: Any) -> None:
    result = lab.run([(0, 1, 10)], cluster="1x1", events=[event(1e9, "fail")])
    assert result.summary["end_time"] == 10


def test_events_of_one_moment_happen_in_the_order_given(lab: Any) -> None:
    events = [event(50, "fail"), event(50, "join")]
    result = lab.run([(0, 1, 100)], cluster="1x1", events=events)
    assert lab.spans(result) == {"A": (0, 150)}
    assert np.isfinite(result.jobs.finish_time).all()
