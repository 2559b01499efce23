"""Swayam's sizing and prediction against numbers from an independent computation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dlsched.policies.services.response_times import ResponseModel
from dlsched.policies.services.service_times import ServiceTime, service_time
from dlsched.policies.services.sizing import (
    Sizing,
    Sla,
    expected_rate,
    fewest_replicas,
    trend,
)
from tests.policies.services.response_models import calm_replicas, response_model

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "classic" / "swayam"
NAMES = {"global_fcfs_mmn": "mmn", "partitioned_mm1": "partitioned"}  # theirs: ours


def cases(name: str) -> list[Any]:
    file = FOLDER / f"{name}.json"
    if not file.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"no {file}"), id="none")]
    return [pytest.param(case, id=case["id"]) for case in json.loads(file.read_text())]


def sized(case: dict[str, Any], model: ResponseModel) -> tuple[Sizing, ServiceTime]:
    service = service_time(case["service"])
    sla = Sla(within_s=case["sla_seconds"], share=case["target"])
    rate, burst = case["arrival_rate"], case["burst_factor"]
    return fewest_replicas(rate, service, sla, burst=burst, model=model), service


@pytest.mark.parametrize("case", cases("replicas"))
def test_replicas_are_the_fewest_that_keep_the_promise(case: dict[str, Any]) -> None:
    peak = case["arrival_rate"] * case["burst_factor"]
    assert service_time(case["service"]).mean * peak == pytest.approx(case["offered_load"])
    for name, expected in case["expected"].items():
        model = response_model(NAMES.get(name, name), case["retry_delay"])
        found, service = sized(case, model)
        if expected["n"] is None:
            assert not found.feasible, name
            continue
        assert (found.feasible, found.replicas) == (True, expected["n"]), name
        assert found.share == pytest.approx(expected["p_at_n"], abs=1e-6), name
        before = expected.get("p_at_n_minus_1")
        if before is not None:
            share = model(found.replicas - 1, peak, service, case["sla_seconds"])
            assert share == pytest.approx(before, abs=1e-6), name
        if "n_util80" in expected:
            rate, burst = case["arrival_rate"], case["burst_factor"]
            assert calm_replicas(found, rate, service, burst) == expected["n_util80"]


@pytest.mark.parametrize("case", cases("predict"))
def test_rates_are_expected_as_the_line_says(case: dict[str, Any]) -> None:
    rates, window, horizon = case["local_rates"], case["window_seconds"], case["horizon_seconds"]
    line, expected = trend(rates, window), case["expected"]
    assert line.slope == pytest.approx(expected["slope"], rel=1e-9, abs=1e-9)
    assert line.intercept == pytest.approx(expected["intercept"], rel=1e-9, abs=1e-9)
    assert line.after(horizon) == pytest.approx(expected["local_prediction"], rel=1e-9, abs=1e-9)
    found = expected_rate(rates, window, horizon, case["frontends"])
    assert found == pytest.approx(expected["global_prediction"], rel=1e-9, abs=1e-9)
