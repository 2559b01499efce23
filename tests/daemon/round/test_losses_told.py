"""The estimator `loss-curve` live: losses that runs tell become what is left to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.units import Units
from dlsched.daemon.round.standing import stand
from dlsched.daemon.round.taking import take_snapshot


def test_losses_that_runs_tell_are_what_predictions_rest_on(live: Any) -> None:
    lab = live.LiveLab(
        (4,), parts={"scheduling": "optimus", "estimator": "loss-curve"},
        options=("estimate.epoch_steps=100", "estimate.default_s=500"),
    )  # fmt: skip
    job, sure = lab.submit(0.0), lab.submit(0.0, expected_s=300.0)

    def predicted(now: float) -> list[float]:
        """As the last round left it."""
        standing = stand(take_snapshot(lab.board, "full", now))
        assert standing is not None
        rows = np.array([standing.row_of[each] for each in (job, sure)])
        found: list[float] = Units(standing.ctx.table, rows, now).predicted_work.tolist()
        return found

    lab.round(0.0)
    assert predicted(0.0) == [500.0, 300.0]
    for epoch in range(1, 6):  # ten seconds each; the loss converges in epoch 24
        for each in (job, sure):
            lab.board.note_steps(each, 100 * epoch, 1 / (0.4 * epoch + 0.9) + 0.15)
        lab.round(10.0 * epoch)
    assert predicted(50.0) == pytest.approx([240.0, 300.0], rel=0.05)
    lab.board.note_steps(job, 600, float("nan"))
    lab.round(60.0)
    assert predicted(60.0)[0] == pytest.approx(240.0, rel=0.3)


def test_what_a_user_expects_is_declared(live: Any) -> None:
    lab = live.LiveLab((4,), parts={"scheduling": "srtf", "estimator": "declared"})
    lab.submit(0.0, expected_s=300.0)
    lab.submit(0.0, time_limit_s=70.0)
    standing = stand(take_snapshot(lab.board, "full", 0.0))
    assert standing is not None
    assert standing.ctx.table.predicted_work.tolist() == [300.0, 70.0]
