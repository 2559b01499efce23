"""HiveD's own answers, request for request: GPUs, victims and the state of all cells."""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dlsched.core.errors import BadInput
from tests.fidelity.hived_requests import Recorder, cells_of_case

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "hived"
pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"no folder {FOLDER} (set DLSCHED_DATA)"),
]


@cache
def read(name: str) -> Any:
    path = FOLDER / name
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return json.load(file)


def scenarios() -> dict[str, dict[str, Any]]:
    paths = sorted(FOLDER.glob("scenarios_*.json.gz"))
    return {scenario["name"]: scenario for path in paths for scenario in read(path.name)}


def without_words(answer: dict[str, Any]) -> dict[str, Any]:
    """Reasons are in our own words; that a request waits or is refused is not."""
    return {k: v for k, v in answer.items() if k not in ("reason", "code", "message")}


@pytest.mark.parametrize("name", scenarios() if FOLDER.exists() else [])
def test_every_answer_and_every_state_is_the_recorded_one(name: str) -> None:
    scenario = scenarios()[name]
    cluster = read("clusters.json")[scenario["cluster"]]
    order = read("initial_free_order.json").get(scenario["cluster"], {})
    if "rejected_at_load" in scenario:
        with pytest.raises(BadInput, match="own 3 cells of type CT1 in CT1-NODE, 0 are there"):
            cells_of_case(cluster, order)
        return
    recorder = Recorder(cells_of_case(cluster, order))
    assert scenario.get("initial_state") in (None, recorder.state())
    for number, step in enumerate(scenario["steps"]):
        expected = dict(step["expected"])
        state = expected.pop("state", None)
        answer = recorder.answer(step["request"])
        assert without_words(answer) == without_words(expected), (number, step["request"])
        if state is not None:
            now = recorder.state()
            assert {key: now[key] for key in state} == state, (number, step["request"])
    if "final_state" in scenario:
        assert recorder.state() == scenario["final_state"]
