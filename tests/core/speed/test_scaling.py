"""Speeds by number of GPUs, read off a table of throughputs."""

from __future__ import annotations

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.speed.scaling import TableScaling
from dlsched.core.speed.throughput_table import JobKind, Measurement, TableSpeed, ThroughputTable
from dlsched.core.units import UnitTable


def table(*points: tuple[str, int, float]) -> TableSpeed:
    measured = [
        Measurement(gpu_type="v100", scale=scale, kind=JobKind(model), rate=rate)
        for model, scale, rate in points
    ]
    kinds = sorted({JobKind(model) for model, _, _ in points})
    return TableSpeed(ThroughputTable(measured), kinds)


def test_between_two_measured_scales_lies_a_line_and_beyond_the_last_is_nothing() -> None:
    speed = table(("a", 1, 10.0), ("a", 2, 18.0), ("a", 4, 30.0), ("b", 2, 5.0), ("b", 8, 11.0))
    rates = TableScaling(speed, "v100").rates(np.array([0, 1]), 9)
    assert rates[0].tolist() == [10, 18, 24, 30, 0, 0, 0, 0, 0]
    assert rates[1].tolist() == [2.5, 5, 6, 7, 8, 9, 10, 11, 0]


def test_a_scale_that_was_measured_not_to_run_stays_so() -> None:
    speed = table(("a", 1, 0.0), ("a", 2, 4.0), ("a", 4, 6.0))
    scaling = TableScaling(speed, "v100")
    assert scaling.rates(np.array([0]), 4)[0].tolist() == [0, 4, 5, 6]


def test_what_runs_nowhere_has_no_speed_and_what_was_not_measured_has_no_known_one() -> None:
    speed = table(("a", 1, 0.0), ("b", 2, 4.0))
    other = Measurement(gpu_type="k80", scale=1, kind=JobKind("a"), rate=1.0)
    assert TableScaling(speed, "v100").rates(np.array([0]), 2)[0].tolist() == [0, 0]
    two = TableSpeed(
        ThroughputTable(
            [other, Measurement(gpu_type="v100", scale=1, kind=JobKind("b"), rate=2.0)]
        ),
        [JobKind("a")],
    )
    assert np.isnan(TableScaling(two, "v100").rates(np.array([0]), 1)).all()


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_a_job_runs_as_fast_as_it_is_believed_to(gpus: int) -> None:

    speed = table(("a", 1, 10.0), ("a", 2, 18.0), ("a", 4, 30.0))
    occupancy = Occupancy(parse_cluster_spec("1x4:v100"))
    rate = speed.rate(0, Placement((0,), ((1 << gpus) - 1,)), UnitTable(1), occupancy)
    assert rate == TableScaling(speed, "v100").rates(np.array([0]), 4)[0, gpus - 1]
