"""MLFS' priorities on the cases of the data folder: equations 2 to 6, tolerance 1e-9."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.policies.scheduling.mlfs.priorities import Tasks, Weights, part_learnt, priorities

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "mlfs"

pytestmark = pytest.mark.fidelity


def cases() -> list[Any]:
    found = [
        pytest.param(case, id=f"{path.stem}-{number}")
        for path in sorted(FOLDER.glob("*_cases.json"))
        for number, case in enumerate(json.loads(path.read_text()))
        if "priorities" in case
    ]
    reason = f"no *_cases.json in {FOLDER} (set DLSCHED_DATA)"
    return found or [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="none")]


@pytest.mark.parametrize("case", cases())
def test_the_priorities_of_tasks_are_exact(case: dict[str, Any]) -> None:
    job, names, of = case["job"], list(case["tasks"]), case["tasks"]
    given = case["params"]
    weights = Weights(
        alpha=given["a"], gamma=given["g"], deadline=given["gd"], remaining=given["gr"],
        waited=given["gw"],
    )  # fmt: skip

    def column(key: str) -> Any:
        return np.array([of[name][key] for name in names], np.float64)

    every = np.ones(len(names))
    tasks = Tasks(
        urgency=every * job["L"],
        iteration=every * job["I"],
        learnt=every * part_learnt(job["dl"]),
        size=column("S") / job["S"],
        due_min=column("d") - case["now_min"],
        left_min=column("r"),
        waited_min=column("w"),
    )
    children = [[names.index(child) for child in of[name]["child"]] for name in names]
    found = priorities(tasks, children, weights)
    for place, name in enumerate(names):
        expected = case["priorities"][name]
        assert found.learning[place] == pytest.approx(expected["P_ml"], rel=1e-9, abs=1e-9)
        assert found.time[place] == pytest.approx(expected["P_c"], rel=1e-9, abs=1e-9)
        assert found.total[place] == pytest.approx(expected["P"], rel=1e-9, abs=1e-9)
