"""Curves of what jobs report: bounded in points, names and rows, whatever a job sends."""

from __future__ import annotations

import json
import math

import pytest

from dlsched.daemon.reported import curves as c
from dlsched.daemon.reported.curves import Curve, Curves, JobCurves
from dlsched.protocol.messages import JobId, RunId

NONE_OVER: frozenset[JobId] = frozenset()


def test_a_full_curve_halves_its_resolution() -> None:
    curve, reports = Curve(), 50_000
    for k in range(reports):
        curve.add((float(k), k, float(k)))
        assert len(curve.points) < c.MOST_POINTS
    points = curve.all()
    assert len(points) >= c.MOST_POINTS // 2
    assert curve.width == 256
    assert points[-1][1] == reports - 1
    assert [at for at, _, _ in points] == sorted(at for at, _, _ in points)
    mean = sum(value for _, _, value in curve.points) / len(curve.points)
    counted = curve.width * len(curve.points)
    assert mean == pytest.approx((counted - 1) / 2)  # no report is lost


def test_names_are_bounded_and_what_is_left_out_is_counted() -> None:
    mine = JobCurves()
    mine.add(0.0, 1, {"loss": 1.0, **{f"m{k}": 1.0 for k in range(c.MOST_NAMES + 7)}})
    assert len(mine.curves) == c.MOST_NAMES + 1
    assert mine.left_out == 7
    assert len(mine.became_strange([f"n{k}" for k in range(1000)])) < 40
    assert len(mine.not_finite) < 40


def test_a_value_is_strange_once_in_a_run() -> None:
    mine = JobCurves()
    assert mine.became_strange(["loss"]) == ["loss"]
    mine.add(1.0, 2, {"loss": 3.0})
    assert not mine.not_finite
    assert mine.became_strange(["loss"]) == []
    assert mine.not_finite == {"loss"}
    mine.begin(RunId("another"))
    assert mine.became_strange(["loss"]) == ["loss"]


@pytest.mark.slow
def test_rows_become_rarer_and_stay_small() -> None:
    """A job that reports each second for a day with all names that it may have."""
    table, job = Curves(), JobId(7)
    names = ["loss", *(f"m{k}" for k in range(c.MOST_NAMES))]
    rows, largest = 0, 0
    for second in range(86_400):
        table.of(job).add(1.7e9 + second, second, dict.fromkeys(names, 1 / (second + 1)))
        if second % 30 == 0:
            for row in table.due(float(second), 1.7e9 + second, NONE_OVER):
                rows += 1
                largest = max(largest, len(json.dumps(row.known)))
    assert rows < 150
    assert largest < 250_000


def test_what_was_reported_last_is_written_at_the_end() -> None:
    table, job = Curves(), JobId(7)
    mine = table.of(job)
    mine.reported_at, mine.executed_s = 1.0, 5.0
    mine.add(1.0, 3, {"loss": 0.5})
    assert not list(table.due(100.0, 100.0, NONE_OVER))
    (row,) = table.due(100.0, 100.0, frozenset({job}))
    assert not list(table.due(200.0, 200.0, frozenset({job})))
    again = JobCurves.of_known(json.loads(json.dumps(row.known, allow_nan=False)))
    assert again.curves["loss"].all() == [(1.0, 3, 0.5)]
    assert again.newest == {"loss": 0.5}
    progress = mine.last_progress()
    assert progress is not None
    assert (progress.step, progress.loss, progress.executed_s) == (3, 0.5, 5.0)
    assert mine.last_progress() is None
    assert not any(math.isnan(value) for value in again.newest.values())
