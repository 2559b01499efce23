"""How exact predictions were, in groups."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.daemon.control.predicting.calibration import calibration_of
from dlsched.db.reading.outcomes import PredictedStart
from dlsched.db.records import Prediction
from dlsched.protocol.messages import JobId


def told(started_at: float, ended_at: float | None = None, **more: Any) -> PredictedStart:
    """A prediction at 0 of a start at 1000 (500 to 1500) and an end at 2000 (1000 to 3000)."""
    given: dict[str, Any] = {
        "policy": "fifo", "source": "time limit", "gpus": 4, "start_p10": 500.0,
        "start_p90": 1500.0, "end_at": 2000.0, "end_p10": 1000.0, "end_p90": 3000.0, **more,
    }  # fmt: skip
    prediction = Prediction(job=JobId(1), made_at=0.0, start_at=1000.0, basis="limits", **given)
    return PredictedStart(prediction=prediction, started_at=started_at, ended_at=ended_at)


def test_shares_within_the_interval_and_relative_errors() -> None:
    some = [told(1200.0, 2400.0), told(900.0, 3200.0), told(1700.0), told(1000.0)]
    [group] = calibration_of(some).by_policy
    assert (group.basis, group.jobs, group.ended) == ("fifo", 4, 2)
    assert group.start_within == 0.75
    assert group.start_relative == pytest.approx(0.15)  # 0, 0.1, 0.2 and 0.7
    assert group.end_within == 0.5
    assert group.end_relative == pytest.approx(0.4)  # 0.2 and 0.6
    assert group.mean_error_s == pytest.approx(200.0)


def test_groups_are_policies_and_classes_of_jobs() -> None:
    some = [
        told(1.0, gpus=1), told(1.0, gpus=2), told(1.0, gpus=4, source="measured speed"),
        told(1.0, gpus=8), told(1.0, gpus=9, policy="las"), told(1.0, gpus=None, policy=""),
    ]  # fmt: skip
    found = calibration_of(some)
    assert [(each.basis, each.jobs) for each in found.by_policy] == [
        ("fifo", 4), ("las", 1), ("not recorded", 1),
    ]  # fmt: skip
    assert [(each.basis, each.jobs) for each in found.by_class] == [
        ("1 GPU, time limit", 1), ("2-4 GPUs, measured speed", 1), ("2-4 GPUs, time limit", 1),
        ("5-8 GPUs, time limit", 1), ("9 GPUs or more, time limit", 1), ("not recorded", 1),
    ]  # fmt: skip


def test_a_prediction_without_an_interval_counts_for_errors_only() -> None:
    bare = told(1100.0, start_p10=None, start_p90=None, end_at=None)
    [group] = calibration_of([bare]).by_basis
    assert group.jobs == 1
    assert not group.HasField("start_within")
    assert not group.HasField("end_within")
    assert group.start_relative == pytest.approx(0.1)


def test_an_error_of_seconds_beside_a_start_at_once_is_small() -> None:
    at_once = PredictedStart(
        prediction=Prediction(job=JobId(1), made_at=0.0, start_at=1.0, basis=""), started_at=4.0
    )
    [group] = calibration_of([at_once]).by_basis
    assert group.start_relative == pytest.approx(0.05)
