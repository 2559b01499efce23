"""Snapshots simulated further: within a time limit, and for jobs that ran before."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.round.forecasts.forecasting import foreseen
from dlsched.daemon.round.running_on import run_on
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.speeds import SpeedKey, SpeedRow, SpeedsSet


def predicted_starts(snapshot: Any, patience_s: float = math.inf) -> list[tuple[int, float]]:
    """Pending jobs and when they would start, in seconds of the policy's clock."""
    found = foreseen(snapshot, patience_s=patience_s)
    return [(each.job, each.start_at) for each in found if not math.isnan(each.start_at)]


def queued(live: Any, jobs: int) -> Any:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    for k in range(jobs):
        lab.submit(float(k), 2, time_limit_s=100.0)
    lab.round(float(jobs))
    return take_snapshot(lab.state, "full", float(jobs))


def test_a_forecast_that_runs_out_of_time_has_the_starts_so_far(live: Any) -> None:
    snapshot = queued(live, 6)
    whole = predicted_starts(snapshot)
    assert len(whole) == 5
    part = predicted_starts(snapshot, patience_s=0.0)
    assert len(part) < len(whole)
    assert part == whole[: len(part)]


def test_a_job_that_ran_before_has_a_predicted_next_start(live: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "srtf"})
    long = lab.submit(0.0, 2, expected_s=1000.0)
    lab.round(0.0)
    short = lab.submit(1.0, 2, expected_s=50.0)
    lab.round(60.0)
    assert lab.live.position(long) == 1
    told = dict(predicted_starts(take_snapshot(lab.state, "full", 61.0)))
    assert short not in told
    assert told[long] == 110.0
    found = run_on(take_snapshot(lab.state, "full", 61.0))
    assert found.finish_s.tolist() == [1049.0, 49.0]  # what it did was not saved
    assert found.figures()["running"] == 1


def test_on_a_slow_type_a_job_is_predicted_to_end_later(live: Any) -> None:
    lab = live.LiveLab((), parts={"scheduling": "fifo"})
    lab.add_node("n1", 1, "k80")
    jobs = [lab.submit(0.0, model="cnn", expected_s=100.0) for _ in range(2)]
    lab.round(0.0)

    def told() -> dict[int, tuple[float, float]]:
        found = foreseen(take_snapshot(lab.state, "full", 20.0))
        return {one.job: (one.start_at, one.end_at) for one in found}

    assert told()[jobs[1]] == (100.0, 200.0)  # nothing was measured
    rows = tuple(
        SpeedRow(key=SpeedKey("cnn", 0, kind, 1), steps_per_s=rate, at=5.0, changed_at=5.0)
        for kind, rate in (("k80", 2.0), ("v100", 8.0))
    )
    lab.live.speeds.take(SpeedsSet(rows=rows))
    found = foreseen(take_snapshot(lab.state, "full", 20.0))
    # 80 s on a v100 are left of the first, and 100 s are the second's: four times as long here
    assert told()[jobs[1]] == (20.0 + 4 * 80.0, 20.0 + 4 * 180.0)
    assert all(one.basis.endswith("measured speeds") for one in found)
    assert run_on(take_snapshot(lab.state, "full", 20.0)).finish_s.tolist() == [320.0, 720.0]


def test_on_the_fast_type_a_waiting_job_is_predicted_to_end_earlier(live: Any) -> None:
    lab = live.LiveLab((), parts={"scheduling": "fifo"})
    for name, kind in (("n1", "k80"), ("n2", "v100")):
        lab.add_node(name, 1, kind)
    told = {"model": "cnn", "total_iterations": 800.0}
    jobs = [lab.submit(0.0, gpu_types=(kind,), **told) for kind in ("k80", "v100")]
    lab.round(0.0)
    rows = tuple(
        SpeedRow(key=SpeedKey("cnn", 0, kind, 1), steps_per_s=rate, at=5.0, changed_at=5.0)
        for kind, rate in (("k80", 2.0), ("v100", 8.0))
    )
    lab.live.speeds.take(SpeedsSet(rows=rows))
    found = {one.job: one.end_at for one in foreseen(take_snapshot(lab.state, "full", 0.0))}
    assert (found[jobs[0]], found[jobs[1]]) == (400.0, 100.0)


def test_a_snapshot_without_nodes_cannot_run_on(live: Any) -> None:
    lab = live.LiveLab((), parts={"scheduling": "fifo"})
    with pytest.raises(BadInput, match="no nodes"):
        run_on(take_snapshot(lab.state, "full", 0.0))
