"""Iteration times of pairs and groups of jobs against Muri's simulator, to 1e-9.

The tables were computed with the published artifact; a job's stages are in `profiles.csv`.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dlsched.core.speed.stages import MEASURED_FACTORS, Stages, group_time

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "muri"
PAIRS = sorted(FOLDER.glob("*pair_iteration_times*.csv.gz"))
GROUPS = sorted(FOLDER.glob("*group_iteration_times*.json"))
CLOSE = 1e-9

pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(
        not (PAIRS and GROUPS and (FOLDER / "profiles.csv").exists()), reason=f"nothing in {FOLDER}"
    ),
]


@cache
def profiles() -> dict[tuple[str, int], Stages]:
    with (FOLDER / "profiles.csv").open() as text:
        return {
            (row["model"], int(row["num_gpus"])): Stages(
                *(float(row[f"{name}_ms"]) / 1000 for name in Stages._fields)
            )
            for row in csv.DictReader(text)
        }


def seconds(models: list[str], gpus: int) -> float:
    costs = MEASURED_FACTORS[len(models) - 1] / MEASURED_FACTORS[0]
    return group_time([profiles()[model, gpus] for model in models]) * costs


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.name)
def test_pairs_take_as_long(path: Path) -> None:
    with gzip.open(path, "rt") as text:
        for row in csv.DictReader(text):
            found = seconds([row["model_a"], row["model_b"]], int(row["num_gpus"]))
            assert found == pytest.approx(float(row["best_s"]), rel=CLOSE), row


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: path.name)
def test_groups_of_three_and_four_take_as_long(path: Path) -> None:
    cases: list[Any] = json.loads(path.read_text())
    for case in cases:
        found = seconds(case["models"], case["num_gpus"])
        assert found == pytest.approx(case["best_s"], rel=CLOSE), case
