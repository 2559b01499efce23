"""Predicted durations: what each estimator may know, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from dlsched.core.units import Units
from dlsched.policies.registry import make


def predictions(lab: Any, jobs: list[Any], estimate: str, **given: Any) -> list[float]:
    trace = lab.trace(jobs, **given.pop("columns", {}))
    engine = lab.engine(trace, clock="events", estimate=estimate, **given)
    engine.run()
    predicted: list[float] = engine.world.table.predicted_work.tolist()
    return predicted


def test_the_oracle_knows(lab: Any) -> None:
    assert predictions(lab, [(0, 1, 10), (0, 1, 25)], "oracle") == [10, 25]


def test_the_user_says_a_limit(lab: Any) -> None:
    columns = {"time_limit": [60.0, 30.0]}
    assert predictions(lab, [(0, 1, 10), (0, 1, 25)], "user", columns=columns) == [60, 30]


def test_a_user_who_says_nothing_is_an_error_before_the_start(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10), (0, 1, 25)], time_limit=[60.0, float("nan")])
    with pytest.raises(BadInput, match=r"time_limit, which 1 of 2 jobs of tiny lack .* job B"):
        lab.engine(trace, estimate="user")


def test_history_knows_no_more_than_has_finished(lab: Any) -> None:
    # A ends at 100, B at 150; C arrives before any end, D after A, E after both
    jobs = [(0, 1, 100), (0, 1, 150), (50, 1, 7), (120, 1, 7), (200, 1, 7)]
    columns = {"user": ["u"] * 5}
    predicted = predictions(lab, jobs, "history", columns=columns)
    assert predicted[:3] == [3600, 3600, 3600]
    assert predicted[3] == pytest.approx((100 + 7) / 2), "C has ended too by then"
    assert predicted[4] == pytest.approx((100 + 7 + 150 + 7) / 4)


@pytest.mark.parametrize(
    ("user", "gpus", "expected"),
    [("u", 1, 100), ("u", 4, 150), ("v", 1, 400), ("w", 1, 700 / 3)],
    ids=["same user and size", "same user", "another user", "none known: all users"],
)
def test_history_takes_the_nearest_it_has(lab: Any, user: str, gpus: int, expected: float) -> None:
    jobs = [(0, 1, 100), (0, 2, 200), (0, 1, 400), (9000, gpus, 1)]
    columns = {"user": ["u", "u", "v", user]}
    assert predictions(lab, jobs, "history", columns=columns)[3] == pytest.approx(expected)


def test_history_remembers_the_last_ones_only(lab: Any) -> None:
    jobs = [(1000 * k, 1, 10 * (k + 1)) for k in range(5)]
    predicted = predictions(lab, jobs, "history", options=("estimate.last=2",))
    assert predicted[4] == pytest.approx((30 + 40) / 2)


def test_noise_of_zero_is_the_truth(lab: Any) -> None:
    assert predictions(lab, [(0, 1, 10), (0, 1, 25)], "noise:0") == [10, 25]


def test_noise_belongs_to_the_job_and_not_to_the_order_of_asking(lab: Any) -> None:
    together = predictions(lab, [(0, 1, 10), (0, 1, 25)], "noise:0.5")
    apart = predictions(lab, [(0, 1, 10), (500, 1, 25)], "noise:0.5")
    assert together == apart


def test_noise_depends_on_the_seed(lab: Any) -> None:
    runs = [predictions(lab, [(0, 1, 10)], "noise:0.5", seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_noise_is_log_normal_with_the_sigma_asked_for(lab: Any) -> None:
    ctx = lab.context("1x4", [1] * 2000)
    noise = make("estimator", "noise", {"sigma": "0.7"})
    factors = np.log(noise.predict(Units(ctx.table, ctx.active, 0.0), np.ones(2000), ctx))
    assert factors.std() == pytest.approx(0.7, rel=0.05)
    assert factors.mean() == pytest.approx(0.0, abs=0.05)


def test_a_wrong_prediction_changes_the_order_but_not_the_work(lab: Any) -> None:
    jobs = [(0, 1, 100), (0, 1, 10)]
    columns = {"time_limit": [5.0, 500.0]}
    trace = lab.trace(jobs, **columns)
    result = lab.run(trace, "sjf", cluster="1x1", estimate="user")
    assert lab.spans(result) == {"A": (0, 100), "B": (100, 110)}


def test_a_job_that_outruns_its_prediction_has_nothing_left(lab: Any) -> None:
    # A's limit is over at 10, so to srtf it is nearly done and stays
    trace = lab.trace([(0, 1, 100), (20, 1, 30)], time_limit=[10.0, 30.0])
    result = lab.run(trace, "srtf", cluster="1x1", estimate="user")
    assert lab.spans(result) == {"A": (0, 100), "B": (100, 130)}


def test_a_user_declares_how_long_it_takes_or_at_least_a_limit(lab: Any) -> None:
    columns = {"expected": [40.0, float("nan")], "time_limit": [60.0, 30.0]}
    jobs = [(0, 1, 10), (0, 1, 25)]
    assert predictions(lab, jobs, "declared", columns=columns) == [40, 30]
    assert predictions(lab, jobs, "declared", columns={"time_limit": [60.0, 30.0]}) == [60, 30]
    told = {"guess": [1.0, 2.0]}
    options = ("estimate.column=guess",)
    assert predictions(lab, jobs, "declared", columns=told, options=options) == [1, 2]


# the loss of the example falls by no more than 0.05 in ten epochs at epoch 24
CURVE = {"epoch_s": [100.0], "loss_falls": [0.4], "loss_begins": [0.9], "loss_floor": [0.15]}


def predicted_over_time(lab: Any, sigma: float = 0.0, **given: Any) -> list[tuple[float, float]]:
    """What one training of 24 epochs is thought to take in all, by time."""
    engine = lab.engine(
        lab.trace([(0, 1, 2400)], **CURVE),
        "optimus",
        cluster="1x1",
        clock="rounds",
        estimate="loss-curve",
        metrics="losses",
        options=(f"metrics.sigma={sigma}", "estimate.default_s=500"),
        **given,
    )
    told: list[tuple[float, float]] = []
    engine.observers.append(
        lambda engine, _: told.append((engine.now, engine.world.table.predicted_work.item(0)))
    )
    engine.run()
    assert engine.world.table.finish[0] == 2400
    return told


def test_losses_tell_when_a_training_ends(lab: Any) -> None:
    told = predicted_over_time(lab)
    assert told[0] == (0.0, 500.0)
    known = np.array([work for time, work in told if time >= 240])
    assert known == pytest.approx(np.full(len(known), 2400.0))


def test_losses_with_noise_tell_it_roughly(lab: Any) -> None:
    told = predicted_over_time(lab, sigma=0.01)
    assert all(1200 <= work <= 4400 for time, work in told if time >= 1200)


def test_a_loss_that_does_not_converge_leaves_twenty_epochs(lab: Any) -> None:
    curves = make("estimator", "loss-curve")
    ctx = lab.context("1x1", [1], holding={0: {0: 1}}, now=0.0)
    for epoch in (1.0, 2.0, 3.0):
        ctx.table.extra |= {
            "epoch": np.array([epoch]), "loss": np.array([100 - epoch])
        }  # fmt: skip
        ctx.now = 10.0 * epoch
        work = curves.revise(ctx.units, ctx)
    assert work.tolist() == pytest.approx([30 * 23 / 3])
    twin = make("estimator", "loss-curve")
    twin.load_state_dict(curves.state_dict())
    assert twin.revise(ctx.units, ctx).tolist() == work.tolist()
    twin.renumber(np.array([-1, 0]), 0)
    assert twin.state_dict()["epochs"] == [[1, 23.0]]


def test_rounds_are_not_left_out_while_predictions_move(lab: Any) -> None:
    jobs = [(0, 1, 2400), (5, 1, 2400)]
    columns = {name: values * 2 for name, values in CURVE.items()}
    runs = [
        lab.run(
            lab.trace(jobs, **columns),
            "srtf",
            cluster="1x1",
            clock="rounds",
            estimate="loss-curve",
            metrics="losses",
            skipping=skipping,
        ).jobs.finish_time.tolist()
        for skipping in (True, False)
    ]
    assert runs[0] == runs[1]
