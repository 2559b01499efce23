"""Salus: lanes and iterations against the rules of the paper and of its code, worked apart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dlsched.policies.node.salus.lanes import Lanes, Memory
from simulate.published.salus.lanes import ArtifactLanes
from tests.policies.node.lane_run import Iterations, run_lane

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "salus"


def cases(name: str) -> list[Any]:
    file = FOLDER / f"{name}.json"
    if not file.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"no {file}"), id="none")]
    return [pytest.param(c, id=f"case-{n}") for n, c in enumerate(json.loads(file.read_text()), 1)]


def of_paper(lanes: Lanes) -> dict[str, Any]:
    return {
        "used": lanes.used,
        "free": lanes.capacity - lanes.used,
        "lanes": {
            str(number): {"size": lane.size, "sessions": list(lane.sessions)}
            for number, lane in lanes.lanes.items()
        },
        "pending": list(lanes.pending),
    }


def of_artifact(lanes: ArtifactLanes) -> dict[str, Any]:
    return {
        "gpu_free": lanes.free,
        "lanes": [
            {
                "id": lane.number,
                "total": lane.size,
                "avail": lane.available,
                "sessions": len(lane.sessions),
                "max_ephemeral": lane.largest,
            }
            for lane in lanes.lanes
        ],
        "pending": list(lanes.pending),
    }


@pytest.mark.parametrize("case", cases("lane_admission_cases"))
def test_lanes_are_found_as_the_paper_has_it(case: dict[str, Any]) -> None:
    lanes = Lanes(case["capacity_mb"])
    for step in case["paper_rules"]:
        kind, name, *need = step["op"]
        done = lanes.submit(name, Memory(*need)) if kind == "submit" else lanes.finish(name)
        assert [list(each) for each in done] == step["admitted"], step["op"]
        assert of_paper(lanes) == step["after"], step["op"]


@pytest.mark.parametrize("case", cases("lane_admission_cases"))
def test_lanes_are_found_as_the_published_code_does(case: dict[str, Any]) -> None:
    steps = case["artifact_rules"]
    if isinstance(steps, str):
        pytest.skip(steps)
    lanes = ArtifactLanes(case["capacity_mb"])
    for step in steps:
        kind, name, *need = step["op"]
        done = lanes.submit(name, Memory(*need)) if kind == "submit" else lanes.finish(name)
        assert [[each.session, each.lane] for each in done] == step["admitted"], step["op"]
        assert of_artifact(lanes) == step["after"], step["op"]


@pytest.mark.parametrize("case", cases("iteration_policy_cases"))
def test_iterations_of_a_lane_run_in_each_order(case: dict[str, Any]) -> None:
    sessions = [
        Iterations(each["name"], each["arrival_ms"], each["iterations"], each["iteration_ms"])
        for each in case["sessions"]
    ]
    for order, expected in case["results"].items():
        found = run_lane(sessions, order)
        assert found.order == expected["order"], order
        assert found.ends == expected["completion_ms"], order
        assert found.mean_jct(sessions) == pytest.approx(expected["mean_jct_ms"], rel=1e-12), order
