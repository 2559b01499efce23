"""Speeds by number of GPUs of trainings that keep their batch, against the model written out."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlsched.core.goodput.params import BatchLimits, PerfParams
from dlsched.core.goodput.scaling import FittedScaling, TrainingScaling, most_gpus, split
from dlsched.core.goodput.throughput import iteration_time
from dlsched.core.units import UnitTable

PERF = PerfParams(0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5)


@pytest.mark.parametrize(
    ("batch", "gpus", "local", "accumulation"),
    [
        (128, 1, 64, 1),  # one GPU takes two passes at least
        (640, 1, 214, 2),
        (640, 2, 160, 1),  # 320 are more than it holds
        (512, 2, 256, 0),  # exactly as many
        (127, 3, 43, 0),
        (1024, 3, 170, 1),  # 171 would be more than the maximum
        (257, 1, 129, 1),
    ],
)
def test_a_batch_is_split_over_gpus_and_passes(
    batch: int, gpus: int, local: int, accumulation: int
) -> None:
    assert split(batch, gpus, 256, 1024) == (local, accumulation)


class Belief:
    """Of two trainings: one of 128 samples, at least 32 a GPU; one of 96, fixed."""

    def limits(self, rows: Any) -> BatchLimits:
        columns = np.array(
            [[128.0, 1024.0, 32.0, 64.0, 1.0, 0.0], [96.0, 96.0, 24.0, 96.0, 1.0, 1.0]]
        )
        return BatchLimits(*columns[rows].T)

    def perf(self, rows: Any) -> Any:
        return np.array([PERF, PERF._replace(beta_c=0.004)])[rows]

    def version(self, rows: Any) -> Any:
        return np.array([3, 4])[rows]


def believed() -> Any:
    return Belief()


ROWS = np.arange(2)


def table(*batches: float) -> UnitTable:
    found = UnitTable(2)
    found.max_gpus = np.array([64, 7])
    found.extra = {
        "batch_size": np.array(batches),
        "model": np.array(["a", "b"], np.object_),
    }
    return found


def test_as_many_gpus_as_have_a_part_that_is_worth_computing() -> None:
    assert most_gpus(believed(), table(300.0, math.nan), ROWS).tolist() == [9, 7]
    assert most_gpus(believed(), table(16.0, 96.0), ROWS).tolist() == [1, 7]
    few = table(4096.0, 96.0)
    few.max_gpus = np.array([5, 7])
    assert most_gpus(believed(), few, ROWS).tolist() == [5, 7]


def test_the_truth_is_asked_for_whole_nodes_and_the_rest_on_one_more() -> None:
    asked = []

    def measured(row: int, shape: tuple[int, ...], local: int) -> tuple[float, float]:
        asked.append((row, shape, local))
        return 2.0, 0.5

    oracle: Any = SimpleNamespace(measured=measured)
    scaling = TrainingScaling(oracle, believed(), table(256.0, math.nan), 4)
    assert scaling.step(0, 1) == 2.0 + 3 * 1.5  # four passes of 64, three without synchronising
    assert scaling.step(0, 6) == 2.0
    assert asked == [(0, (1,), 64), (0, (4, 2), 43)]
    assert scaling.step(0, 6) == 2.0
    assert len(asked) == 2  # it is looked up once
    assert scaling.step(0, 9) == math.inf
    assert scaling.rates(ROWS, 8)[1].tolist() == [1 / 3.5, *[0.5] * 6, 0.0]


def test_fitted_models_speak_of_the_initial_batch() -> None:
    scaling = FittedScaling(believed(), 4)
    rates = scaling.rates(ROWS, 6)
    for gpus, nodes, local, passes in (
        (1, 1, 64, 1), (2, 1, 64, 0), (3, 1, 128 / 3, 0), (4, 1, 32, 0),
    ):  # fmt: skip
        expected = float(iteration_time(PERF, nodes, gpus, local, passes))
        assert rates[0, gpus - 1] == pytest.approx(1 / expected)
    assert rates[0, 4:].tolist() == [0.0] * 2  # less than 32 samples each
    slower = PERF._replace(beta_c=0.004)
    assert scaling.step(1, 3) == pytest.approx(float(iteration_time(slower, 1, 3, 32)))
    narrow = FittedScaling(believed(), 2)
    assert narrow.step(0, 3) == pytest.approx(float(iteration_time(PERF, 2, 3, 128 / 3)))
    assert [scaling.version(ROWS), scaling.version(ROWS[:1])] == [8, 4]


def test_a_batch_that_is_less_than_a_gpu_s_part_still_runs_on_one() -> None:
    small = believed()
    small.limits = lambda rows: BatchLimits(8.0, 64.0, 32.0, 64.0, True, False)
    rates = FittedScaling(small, 4).rates(ROWS[:1], 2)[0]
    assert rates.tolist() == [pytest.approx(1 / float(iteration_time(PERF, 1, 1, 32))), 0.0]


def test_predicted_seconds_are_steps_at_the_pace_of_the_gang_that_was_asked_for() -> None:
    scaling = FittedScaling(believed(), 4)

    class Asked(list[int]):
        rows, gang = ROWS, np.array([2, 4])
        remaining_work = np.array([100.0, 60.0])

    units: Any = Asked(ROWS)
    left = scaling.steps_left(units)
    assert left.tolist() == pytest.approx([100.0 / scaling.step(0, 2), 60.0 / scaling.step(1, 4)])
