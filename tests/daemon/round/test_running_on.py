"""Snapshots run on: within a patience, and again for jobs that ran before."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.round.forecasting import predicted_starts
from dlsched.daemon.round.running_on import run_on
from dlsched.daemon.round.taking import take_snapshot


def queued(live: Any, jobs: int) -> Any:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    for k in range(jobs):
        lab.submit(float(k), 2, time_limit_s=100.0)
    lab.round(float(jobs))
    return take_snapshot(lab.board, "full", float(jobs))


def test_a_forecast_that_is_over_its_time_tells_what_it_has_come_to(live: Any) -> None:
    snapshot = queued(live, 6)
    whole = predicted_starts(snapshot)
    assert len(whole) == 5
    part = predicted_starts(snapshot, patience_s=0.0)
    assert len(part) < len(whole)
    assert part == whole[: len(part)]


def test_who_ran_before_has_a_next_start(live: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "srtf"})
    long = lab.submit(0.0, 2, expected_s=1000.0)
    lab.round(0.0)
    short = lab.submit(1.0, 2, expected_s=50.0)
    lab.round(60.0)
    assert lab.board.position(long) == 1
    told = {job: at for job, at, _ in predicted_starts(take_snapshot(lab.board, "full", 61.0))}
    assert short not in told
    assert told[long] == 110.0
    found = run_on(take_snapshot(lab.board, "full", 61.0))
    assert found.finish_s.tolist() == [1049.0, 49.0]  # what it did was not saved
    assert found.figures()["running"] == 1


def test_a_snapshot_without_nodes_cannot_run_on(live: Any) -> None:
    lab = live.LiveLab((), parts={"scheduling": "fifo"})
    with pytest.raises(BadInput, match="no nodes"):
        run_on(take_snapshot(lab.board, "full", 0.0))
