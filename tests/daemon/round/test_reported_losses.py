"""The estimator `loss-curve` live: reported losses become predictions of remaining work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.units import Units
from dlsched.daemon.round.prepared_round import prepare
from dlsched.daemon.round.snapshot_builder import take_snapshot


def test_predictions_use_reported_losses(live: Any) -> None:
    lab = live.LiveLab(
        (4,), parts={"scheduling": "optimus", "estimator": "loss-curve"},
        options=("estimate.epoch_steps=100", "estimate.default_s=500"),
    )  # fmt: skip
    job, sure = lab.submit(0.0), lab.submit(0.0, expected_s=300.0)

    def predicted(now: float) -> list[float]:
        """As the last round left it."""
        prepared = prepare(take_snapshot(lab.state, "full", now))
        assert prepared is not None
        rows = np.array([prepared.row_of[each] for each in (job, sure)])
        found: list[float] = Units(prepared.ctx.table, rows, now).predicted_work.tolist()
        return found

    lab.round(0.0)
    assert predicted(0.0) == [500.0, 300.0]
    for epoch in range(1, 6):  # ten seconds each; the loss converges in epoch 24
        for each in (job, sure):
            lab.live.note_steps(each, 100 * epoch, 1 / (0.4 * epoch + 0.9) + 0.15)
        lab.round(10.0 * epoch)
    assert predicted(50.0) == pytest.approx([240.0, 300.0], rel=0.05)
    lab.live.note_steps(job, 600, float("nan"))
    lab.round(60.0)
    assert predicted(60.0)[0] == pytest.approx(240.0, rel=0.3)


def test_the_declared_estimate_is_what_the_user_expects(live: Any) -> None:
    lab = live.LiveLab((4,), parts={"scheduling": "srtf", "estimator": "declared"})
    lab.submit(0.0, expected_s=300.0)
    lab.submit(0.0, time_limit_s=70.0)
    prepared = prepare(take_snapshot(lab.state, "full", 0.0))
    assert prepared is not None
    assert prepared.ctx.table.predicted_work.tolist() == [300.0, 70.0]
