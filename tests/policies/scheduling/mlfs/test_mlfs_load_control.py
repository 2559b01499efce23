"""MLF-C: which trainings end, when, and how curves of accuracy are fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.scheduling.mlfs.accuracy_curve import AccuracyCurve, fit_accuracies

EPOCH_S = 60.0
CURVE = {"accuracy_best": 0.9, "accuracy_gap": 0.8, "accuracy_speed": 1.0}
LOSSES = {"loss_falls": 1.0, "loss_begins": 1.0, "loss_floor": 0.1}


def run(lab: Any, jobs: list[Any], *options: str, cluster: str = "1x1", **columns: Any) -> Any:
    """A replay of jobs that report every minute; all have the same curves."""
    shared = {name: [value] * len(jobs) for name, value in (CURVE | LOSSES).items()}
    trace = lab.trace(jobs, epoch_s=[EPOCH_S] * len(jobs), **(shared | columns))
    return lab.run(
        trace,
        "mlfs",
        cluster=cluster,
        options=options,
        metrics="losses",
        clock="rounds",
        round_s=60.0,
    )


def reached_at(target: float) -> float:
    """Seconds of work until 0.9 − 0.8 / (1 + epoch) is as large as a target, in whole epochs."""
    return float(np.ceil(0.8 / (0.9 - target) - 1 - 1e-9) * EPOCH_S)


def test_a_training_ends_at_its_target_and_not_before(lab: Any) -> None:
    done = run(
        lab, [(0, 1, 6000), (0, 1, 6000)], cluster="1x2",
        target_accuracy=[0.8, 0.8], stop_when=["target", "end"],
    )  # fmt: skip
    assert done.jobs.finish_time.tolist() == [reached_at(0.8), 6000.0]
    assert set(done.jobs.status.tolist()) == {"completed"}
    assert done.jobs.extra["ended_early"].tolist() == [1.0, 0.0]


def test_under_load_a_training_ends_sooner_only_where_its_user_allows_it(lab: Any) -> None:
    jobs = [(0, 1, 6000), (0, 1, 6000), (1200, 1, 60)]
    allowed = run(
        lab, jobs, cluster="1x2", target_accuracy=[0.7] * 3, stop_under_load=["target", "", ""]
    )
    # the third job waits from 1200 on; the first one is accurate enough long before
    assert allowed.jobs.finish_time.tolist()[:2] == [1200.0, 6000.0]
    assert allowed.jobs.first_start_time[2] < 1300
    refused = run(lab, jobs, cluster="1x2", target_accuracy=[0.7] * 3)
    assert refused.jobs.first_start_time[2] == 6000.0
    off = run(
        lab, jobs, "load_control=false", cluster="1x2", target_accuracy=[0.7] * 3,
        stop_under_load=["target", "", ""],
    )  # fmt: skip
    assert off.jobs.finish_time.tolist()[0] == 6000.0


def test_a_training_that_gains_no_more_ends_at_its_best(lab: Any) -> None:
    done = run(lab, [(0, 1, 60_000)], "gain=0.01", stop_when=["best"])
    # what is left until epoch 1000, 0.8 / n − 0.8 / 1001, falls below 0.9 % once n is 81
    ended = done.jobs.finish_time[0] / EPOCH_S
    assert ended == pytest.approx(0.8 / (0.01 * (0.9 - 0.8 / 1001) + 0.8 / 1001) - 1, abs=1.5)
    later = run(lab, [(0, 1, 60_000)], stop_when=["best"])
    assert later.jobs.finish_time[0] > done.jobs.finish_time[0]


@pytest.mark.slow
def test_a_training_that_will_miss_its_target_may_end_at_once(lab: Any) -> None:
    given = {"target_accuracy": [0.95], "stop_when": ["best"]}
    sure = run(lab, [(0, 1, 60_000)], "confidence=0.95", "gain=0", **given)
    assert sure.jobs.finish_time[0] <= 12 * EPOCH_S
    never = run(lab, [(0, 1, 60_000)], "gain=0", **given)
    assert never.jobs.finish_time[0] == 60_000.0


@given(st.floats(0.3, 100), st.floats(0.05, 3), st.floats(0.2, 3), st.integers(8, 60))
def test_a_power_law_is_found_again(best: float, gap: float, speed: float, count: int) -> None:
    n = np.arange(1.0, count + 1)
    truth = AccuracyCurve(best, gap, speed, 0.0)
    found = fit_accuracies(n, np.array([truth.at(each) for each in n]))
    assert found is not None
    assert found.at(count) == pytest.approx(truth.at(count), abs=2e-3 * gap)
    assert found.speed == pytest.approx(speed, rel=0.05)


def test_accuracies_that_fall_or_are_few_have_no_curve() -> None:
    n = np.arange(1.0, 9.0)
    assert fit_accuracies(n, 1.0 / n) is None
    assert fit_accuracies(n[:3], 1.0 - 1.0 / n[:3]) is None


def test_the_probability_to_reach_a_target_by_hand() -> None:
    curve = AccuracyCurve(0.9, 0.8, 1.0, 0.02)
    assert curve.reaches(0.82, 10.0) == pytest.approx(0.5)
    assert curve.reaches(0.86, 10.0) == pytest.approx(0.02275, abs=1e-4)  # two deviations
    assert AccuracyCurve(0.9, 0.8, 1.0, 0.0).reaches(0.83, 10.0) == 0.0
