"""Matching jobs to references from the artifact's throughputs, intended rule.

The estimator of Gavel (OSDI 2020), section 6. Everything is profiled (p = 1), so nothing is
completed. Matches are compared where the runner-up is more than 1e-6 further away; distances to
1e-9.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.speed.throughput_table import ThroughputTable
from dlsched.policies.estimators.co_location import CoLocation
from simulate.profiles.throughput_file import job_kind
from tests.throughputs import read_throughputs

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "gavel"
TABLE = FOLDER / "simulation_throughputs.csv.gz"
FILES = sorted(FOLDER.glob("*estimator_cases*.json"))
CASES = [case for path in FILES for case in json.loads(path.read_text())]
CLEAR, CLOSE = 1e-6, 1e-9

pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(
        not CASES or not TABLE.exists(), reason=f"no estimator_cases.json in {FOLDER}"
    ),
]


@cache
def table() -> ThroughputTable:
    return read_throughputs(TABLE)


def normalised(jobs: list[str], others: list[str], types: list[str]) -> Any:
    """Throughput beside the other over throughput alone, on one GPU, [job, type, other]."""
    ones = np.ones(len(jobs) * len(others), np.int64)
    first = np.repeat(table().codes([job_kind(job) for job in jobs]), len(others))
    second = np.tile(table().codes([job_kind(other) for other in others]), len(jobs))
    beside = table().pair_speeds(first, second, ones, types)[:, :, 0]
    found = beside / table().speeds(first, ones, types)
    return found.reshape(len(jobs), len(others), len(types)).transpose(0, 2, 1)


@pytest.mark.parametrize("case", CASES or [{}], ids=lambda c: str(len(c.get("references", ()))))
def test_every_job_is_matched_as_intended(case: dict[str, Any]) -> None:
    references, types = case["references"], case["accelerators"]
    pairs = CoLocation(normalised(references, references, types), case["profiling_fraction"])
    rng = np.random.default_rng(0)
    for job, expected in case["expected"].items():
        match = pairs.arrive(job, normalised([job], references, types)[0], rng)
        assert match.distance == pytest.approx(expected["distance"], abs=CLOSE)
        assert match.runner_up == pytest.approx(expected["runner_up_distance"], abs=CLOSE)
        if expected["runner_up_distance"] - expected["distance"] > CLEAR:
            assert references[match.reference] == expected["match"]
