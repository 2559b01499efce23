"""PipeSwitch: groups of layers against optima found by exhaustive search, and published times."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.policies.node.pipeswitch.grouping import Model, best_groups
from tests.policies.node.switched_run import (
    Costs,
    System,
    Training,
    finish_time,
    one_group,
    per_layer,
    run_switched,
)

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "pipeswitch"


def cases() -> list[Any]:
    file = FOLDER / "grouping_cases.json"
    if not file.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"no {file}"), id="none")]
    return [pytest.param(c, id=f"case-{n}") for n, c in enumerate(json.loads(file.read_text()), 1)]


def model_of(case: dict[str, Any]) -> Model:
    return Model(
        size=np.array(case["layer_mb"], np.float64),
        compute=np.array(case["layer_compute_ms"], np.float64),
        bandwidth=case["bandwidth_mb_per_ms"],
        call=case["call_overhead_ms"],
        sync=case["group_sync_ms"],
    )


@pytest.mark.parametrize("case", cases())
def test_the_best_groups_end_when_the_optimum_does(case: dict[str, Any]) -> None:
    model = model_of(case)
    assert finish_time(model, best_groups(model)) == pytest.approx(case["optimal_ms"], abs=1e-6)
    assert finish_time(model, one_group(model)) == pytest.approx(case["one_group_ms"], abs=1e-6)
    assert finish_time(model, per_layer(model)) == pytest.approx(case["per_layer_ms"], abs=1e-6)
    given = case.get("an_optimal_grouping_last_index")
    if given is not None:
        assert finish_time(model, given) == pytest.approx(case["optimal_ms"], abs=1e-6)


SIZES_MB = {"resnet152": (241.0, 152), "inception_v3": (109.0, 94), "bert_base": (438.0, 74)}


def measured() -> dict[tuple[str, str, str], float]:
    """Mean latencies by figure, system and model, ms."""
    file = FOLDER / "aws_v100_measured.csv"
    if not file.exists():
        pytest.skip(f"no {file}")
    with file.open() as rows:
        return {
            (row["figure"], row["system"], row["model_or_interval"]): float(row["value"])
            for row in csv.DictReader(rows)
            if row["metric"] == "latency_mean_ms"
        }


@pytest.mark.parametrize("name", SIZES_MB)
def test_with_measured_constants_the_ways_to_switch_are_in_the_measured_order(name: str) -> None:
    known = measured()
    size, layers = SIZES_MB[name]
    ready = known["5", "ready_model", name]
    model = Model(
        size=np.full(layers, size / layers),
        compute=np.full(layers, ready / layers),
        bandwidth=12.0,
        call=0.02,
        sync=0.02,
    )
    costs = Costs(
        clean=(known["9", "stop_next", name] - known["5", "pipeswitch", name]) / 1000,
        restart=(known["5", "kill_restart", name] - ready) / 1000,
    )
    training = Training(iteration_s=0.3, layer_s=0.002, load_s=0.01)
    latency = {}
    order: list[System] = ["ready", "pipelined", "grouped", "restart"]
    for system in (*order, "stop-next"):
        run = run_switched(
            [8.0 * n for n in range(1, 20)], model, training, system, costs, until=160
        )
        latency[system] = float(np.mean(run.latencies)) * 1000
    assert order == sorted(order, key=latency.__getitem__)
    assert 3.5 <= latency["stop-next"] / latency["pipelined"] <= 6
    assert latency["restart"] == pytest.approx(known["5", "kill_restart", name], rel=0.01)
