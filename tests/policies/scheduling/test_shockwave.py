"""Shockwave: what is expected of a job, when it should be done, and the plans that follow."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.speed.epochs import EpochProfile
from dlsched.policies.highs import Limits
from dlsched.policies.scheduling.shockwave.finish_times import Target, remaining_seconds
from dlsched.policies.scheduling.shockwave.programs import make_plan
from dlsched.policies.scheduling.shockwave.window import Window
from simulate.replay import prepare, replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

TRACE = "job_id,submit_time,num_gpus,duration\n"


@pytest.fixture
def trace_of(tmp_path: Path) -> Callable[[str], Path]:
    """A trace file with this text."""

    def write(text: str) -> Path:
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return path

    return write


def window(gang: list[int], left_s: list[float], target_s: list[float], **given: Any) -> Window:
    """Jobs of one-minute epochs that have just begun."""
    count = len(gang)
    epochs = [max(int(left // 60), 1) for left in left_s]
    return Window(
        gang=np.array(gang),
        epochs=np.array(epochs),
        finished=np.zeros(count, np.int64),
        epoch_s=np.full(count, 60.0),
        left_s=np.array(left_s),
        target_s=np.array(target_s),
        now_s=given.get("now_s", 0.0),
        round_s=120.0,
        rounds=given.get("rounds", 4),
        gpus=given.get("gpus", 2),
        active=count,
    )


def planned(window: Window, **limits: Any) -> Any:
    return make_plan(
        window, makespan=1e-3, power=12.0, fairness=1.0, limits=Limits(gap=0.0, **limits)
    )


def test_a_job_of_one_batch_size_has_all_epochs_but_the_present_one_before_it() -> None:
    profile = EpochProfile.of_segments([(10, 32, 60.0)])
    assert [remaining_seconds(profile, done) for done in (0, 4, 9, 10)] == [540, 300, 0, 1]


def test_epochs_seen_change_what_is_expected() -> None:
    profile = EpochProfile.of_segments([(5, 32, 60.0), (5, 64, 30.0)])
    found = [remaining_seconds(profile, done) for done in (0, 3, 5, 9)]
    assert found == pytest.approx([403.636363636, 252.857142857, 157.5, 0.0])


def test_what_cannot_be_taken_away_is_scaled_away() -> None:
    # three of the first size were seen, 20/7 expected: 6/7 stay, with 8/7 of the other 2 in all
    profile = EpochProfile.of_segments([(3, 32, 60.0), (1, 64, 30.0)])
    expected = (6 / 7 * 60 + 8 / 7 * 30) * 2 / 3
    assert remaining_seconds(profile, 2) == pytest.approx(expected)


@given(
    segments=st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from([32, 64, 128]), st.floats(1.0, 500.0)),
        min_size=1,
        max_size=4,
    ),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_what_is_left_is_never_more_than_all_epochs_at_their_slowest(
    segments: list[tuple[int, int, float]], data: Any
) -> None:
    profile = EpochProfile.of_segments(segments)
    done = data.draw(st.integers(0, len(profile) - 1))
    left = remaining_seconds(profile, done)
    slowest = max(round(float(profile.seconds.max())), 1)
    assert 0 <= left <= (len(profile) - done + 1) * slowest


def test_a_target_is_mostly_the_mean_over_time() -> None:
    target = Target()
    target.note(100.0, 0)
    assert target.at(0) == pytest.approx(100.0)
    target.note(200.0, 3)
    assert target.at(3) == pytest.approx(0.9 * 100 + 0.1 * 200)
    assert target.at(4) == pytest.approx(0.9 * 125 + 0.1 * 200)
    target.note(300.0, 4)
    assert target.at(5) == pytest.approx(0.9 * (300 + 200 + 300) / 5 + 0.1 * 300)


def test_targets_that_can_be_kept_are_kept() -> None:
    plan = planned(window([1, 1, 1], [480.0] * 3, [2000.0, 2000.0, 650.0]))
    assert plan.program == 1
    assert plan.runs[2].sum() >= 3  # 480 s, of which 2/3 · (650 − 480) may be left
    assert plan.runs.sum() == 8


def test_a_late_job_comes_first() -> None:
    late = window([1, 1, 1], [480.0] * 3, [480.0, 480.0, 200.0], gpus=1)
    plan = planned(late)
    assert plan.program == 2
    assert plan.runs[2].sum() == plan.runs.sum(axis=1).max()
    assert plan.runs[2, 0]


def test_weights_never_overflow() -> None:
    late = window([1, 1], [60.0, 480.0], [1e-3, 1e-3], now_s=1e7)
    plan = planned(late)
    assert math.isfinite(plan.objective)
    assert plan.runs[0].any()


@given(
    jobs=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.floats(60, 2000), st.floats(60, 4000)),
        min_size=1,
        max_size=6,
    ),
    gpus=st.integers(4, 8),
)
@settings(max_examples=25, deadline=None)
def test_no_round_holds_more_than_there_is_and_targets_of_program_1_hold(
    jobs: list[tuple[int, float, float]], gpus: int
) -> None:
    gang, left, target = (list(column) for column in zip(*jobs, strict=True))
    asked = window(gang, left, target, gpus=gpus)
    plan = planned(asked)
    assert ((plan.runs * asked.gang[:, None]).sum(axis=0) <= gpus).all()
    if plan.program == 1:
        done = np.minimum(plan.runs.sum(axis=1) * 120.0, asked.epochs * 60.0)
        ends = 480.0 + np.maximum(asked.left_s - done, 0.0) / asked.share
        assert (ends <= asked.target_s + 1e-3).all()


def test_equal_windows_give_equal_plans() -> None:
    asked = window([1, 2, 1, 1], [480, 900, 300, 700], [400, 300, 200, 100], gpus=2)
    one, other = planned(asked), planned(asked)
    assert (one.runs == other.runs).all()
    assert one.objective == other.objective


@pytest.mark.parametrize("extra", [(), ("semantics=events",), ("semantics=shockwave",)])
def test_jobs_without_a_profile_are_planned_by_their_durations(
    trace_of: Any, extra: tuple[str, ...]
) -> None:
    rows = "0,0,1,600\n1,0,2,900\n2,130,1,300\n3,4000,2,240\n"
    trace = open_trace(trace_of(TRACE + rows))
    options = RunSettings(policy="shockwave", options=extra, check=True)
    result = replay(trace, parse_cluster_spec("1x2:v100"), options)
    assert result.summary["completed"] == 4
    assert result.jobs.jct[3] == pytest.approx(240.0, abs=120.0)


def test_an_idle_gpu_is_given_at_once_between_two_rounds(trace_of: Any) -> None:
    trace = open_trace(trace_of(TRACE + "0,0,1,600\n1,70,1,100\n"))
    result = replay(trace, parse_cluster_spec("1x2"), RunSettings(policy="shockwave"))
    assert result.jobs.first_start_time.tolist() == [0.0, 70.0]


def test_a_plan_survives_its_storing(trace_of: Any) -> None:
    trace = open_trace(trace_of(TRACE + "0,0,1,600\n1,0,1,900\n2,0,1,300\n"))
    engine = prepare(trace, parse_cluster_spec("1x2"), RunSettings(policy="shockwave"))
    engine.horizon = 200.0
    engine.run()
    policy = engine.parts.scheduling
    twin = type(policy)(policy.options)
    twin.load_state_dict(policy.state_dict())
    assert twin.state_dict() == policy.state_dict()
    twin.renumber(np.array([2, 0]), 0)
    assert [row for row, *_ in twin.state_dict()["targets"]] == [1, 0]
