"""Carbyne and its baselines against outputs of the published simulator, and the exact form.

Tolerance 0: every job's completion time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from simulate.worlds.dags.comparison import compare
from simulate.worlds.dags.workload import Workload
from simulate.worlds.dags.workload_files import read_workload

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "classic" / "carbyne"
OURS = {
    "DRF+CP": "drf-cp",
    "DRF+TETRIS": "drf-tetris",
    "SJF+CP": "srtf-cp",
    "SJF+TETRIS": "srtf-tetris",
}


def cases() -> list[Any]:
    found = [
        pytest.param(path, case["expected"], case["name"], id=case["name"])
        for path in sorted(FOLDER.glob("*.json"))
        for case in json.loads(path.read_text())
    ]
    if not found:
        reason = f"no file in {FOLDER} (set DLSCHED_DATA)"
        return [pytest.param(None, {}, "", marks=pytest.mark.skip(reason=reason), id="none")]
    return found


def took(workload: Workload, discipline: str, compat: str) -> dict[str, float]:
    [result] = compare(workload, [discipline], compat=compat)
    return {job.id: float(result.ends[job.id] - job.arrival) for job in workload.jobs}


@pytest.mark.parametrize(("path", "expected", "name"), cases())
def test_every_job_ends_when_it_does_in_the_references(
    path: Path, expected: dict[str, Any], name: str
) -> None:
    workload = read_workload(path, name)
    assert took(workload, "carbyne", "exact") == expected["jct_carbyne_clean"]
    assert took(workload, "carbyne", "artifact2016") == expected["jct_carbyne"]
    for theirs, times in expected.get("jct_baseline", {}).items():
        assert took(workload, OURS[theirs], "artifact2016") == times, theirs
