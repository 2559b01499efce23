"""Muri: group times, groupings, and whole runs of its simulator, job for job where no tie decides.

Runs that match by weight part ways where matchings tie (jobs of one model are alike); then averages
are compared. Those that do not are equal in every job.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.speed.stages import MEASURED_FACTORS, Ordering, efficiencies, group_times
from dlsched.policies.scheduling.muri.grouping import (
    InterleavedJobs,
    Interleaving,
    matched_groups,
)
from simulate.replay import replay
from simulate.results.tables import JobOutcomes
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "muri"
pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"no folder {FOLDER} (set DLSCHED_DATA)"),
]
STAGES = ("data_ms", "gpu_ms", "network_ms")
NO_BLOSSOM = "stages:1.015,1.33,1.5,1.3"
INTERFERENCE = {
    "AntMan": "overlap",
    "Muri-S-noblossom": NO_BLOSSOM,
    "Muri-L-noblossom": NO_BLOSSOM,
}
EXACT_S = 1e-3
TAKEN_FOR_ONE = {("trace4", "AntMan"): 7_065_482.0}  # there two ends 2 ms apart are one change
LONG = 1000  # jobs: longer runs are exhaustive
# name in the files: policy, placement, options
POLICIES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "SRTF": ("srtf", "", ()),
    "SRSF": ("srsf", "", ()),
    "Tiresias-L": ("tiresias", "count", ()),
    "AntMan": ("muri-antman", "", ()),
    "Muri-S": ("muri", "", ()),
    "Muri-L": ("muri", "", ("durations=unknown",)),
    "Muri-L-noblossom": (
        "muri",
        "",
        ("durations=unknown", "grouping=consecutive", "factors=1.015,1.33,1.5,1.3"),
    ),
    "Muri-S-noblossom": ("muri", "", ("grouping=consecutive", "factors=1.015,1.33,1.5,1.3")),
}
EQUAL = {"AntMan", "SRTF", "SRSF", "Muri-L-noblossom"}  # in every job


def table(name: str) -> list[dict[str, str]]:
    path = FOLDER / name
    if not path.exists():
        return []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


@cache
def profiles() -> dict[tuple[str, int], tuple[tuple[float, ...], float]]:
    """Seconds of the stages, and of an iteration alone, by model and gang."""
    return {
        (row["model"], int(row["num_gpus"])): (
            tuple(float(row[name]) / 1e3 for name in STAGES),
            float(row["iteration_ms"]) * MEASURED_FACTORS[0] / 1e3,
        )
        for row in table("profiles.csv")
    }


# -- group times ----------------------------------------------------------------------------------


def group_cases() -> list[tuple[tuple[str, ...], int, dict[str, Any]]]:
    path = FOLDER / "group_iteration_times.json"
    larger = json.loads(path.read_text()) if path.exists() else []
    pairs = table("pair_iteration_times.csv.gz")
    return [
        *(((row["model_a"], row["model_b"]), int(row["num_gpus"]), row) for row in pairs),
        *((tuple(row["models"]), row["num_gpus"], row) for row in larger),
    ]


@pytest.mark.parametrize(
    ("column", "ordering"), [("best_s", "best"), ("worst_s", "worst"), ("given_order_s", "given")]
)
def test_groups_take_as_long_as_in_the_artifact(column: str, ordering: Ordering) -> None:
    cases = group_cases()
    assert cases
    for models, gpus, row in cases:
        known = [profiles()[model, gpus] for model in models]
        stages = np.array([[each for each, _ in known]])
        alone = np.array([[each for _, each in known]])
        times = group_times(stages, alone, ordering=ordering)
        assert times[0] == pytest.approx(float(row[column]), rel=1e-9), (models, gpus)
        if ordering == "best":
            found = efficiencies(stages, times)[0]
            assert found == pytest.approx(float(row["efficiency_best"]), rel=1e-9)


# -- grouping -------------------------------------------------------------------------------------


def grouping_cases() -> list[dict[str, Any]]:
    path = FOLDER / "grouping_cases.json"
    return json.loads(path.read_text()) if path.exists() else []


@pytest.mark.parametrize("number", range(len(grouping_cases())))
def test_groups_are_as_many_and_as_efficient_as_in_the_artifact(number: int) -> None:
    """Jobs of one model are alike, so matchings tie; efficiencies are equal to 1 %."""
    case = grouping_cases()[number]
    known = [profiles()[job["model"], job["num_gpus"]] for job in case["jobs"]]
    jobs = InterleavedJobs(
        np.array([stages for stages, _ in known]),
        np.array([alone for _, alone in known]),
        np.zeros(len(known)),
        Interleaving(),
    )
    classes: dict[int, list[int]] = {}
    for place, job in enumerate(case["jobs"]):
        classes.setdefault(job["num_gpus"], []).append(place)
    groups = matched_groups(list(classes.items()), case["cluster_gpus"], jobs, 4)
    assert sorted(job for _, group in groups for job in group) == [*range(len(known))]
    theirs = Counter(group["num_gpus"] for group in case["groups"])
    assert Counter(gang for gang, _ in groups) == theirs
    found = sum(jobs.efficiency_of(group) for _, group in groups)
    assert found == pytest.approx(sum(group["efficiency"] for group in case["groups"]), rel=0.01)


# -- whole runs -----------------------------------------------------------------------------------


def rows_of(name: str) -> list[dict[str, str]]:
    """The jobs of a trace by its name in the summary: `X`, `X_100`, `X_pr`, …"""
    base = name.removesuffix("_pr")
    rows = table(f"{base}.csv.gz")
    if not rows:
        base, _, first = base.rpartition("_")
        rows = table(f"{base}.csv.gz")[: int(first)]
    if "submit_time" not in rows[0]:  # the jobs of another trace with other models
        whole = table(f"{base.partition('_job_types')[0]}.csv.gz")
        rows = [{**job, **row} for job, row in zip(whole, rows, strict=True)]
    starts = {(row["num_gpus"], row["model"]): row["seconds"] for row in table(OVERHEADS)}
    for row in rows:
        row["restart_overhead"] = starts.get((row["num_gpus"], row["model"]), "")
        row["submit_time"] = "0" if name.endswith("_pr") else row["submit_time"]
    return rows


OVERHEADS = "restart_overhead.csv"


def run(name: str, policy: str, folder: Path) -> JobOutcomes:
    rows, path = rows_of(name), folder / f"{name}.csv"
    with path.open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    part, placement, options = POLICIES[policy]
    settings = RunSettings(
        policy=part,
        placement=placement,
        interference=INTERFERENCE.get(policy, "stages"),
        options=("semantics=muri", *options),
        record=False,
    )
    return replay(open_trace(path), parse_cluster_spec("8x8"), settings).jobs


def measured() -> list[dict[str, str]]:
    return [row for row in table("measured_summary.csv") if row["policy"] in POLICIES]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=f"{case['trace']}-{case['policy']}",
            marks=pytest.mark.exhaustive if int(case["jobs"]) > LONG else (),
        )
        for case in measured()
    ],
)
def test_runs_come_out_as_in_the_artifact(case: dict[str, str], tmp_path: Path) -> None:
    jobs = run(case["trace"], case["policy"], tmp_path)
    assert (jobs.status == "completed").all()
    assert len(jobs) == int(case["jobs"])
    average, end = float(case["avg_jct_s"]), float(case["makespan_s"])
    if case["policy"] in EQUAL:
        theirs = {
            row["job_id"]: float(row["jct"])
            for row in table("measured_jobs.csv.gz")
            if (row["trace"], row["policy"]) == (case["trace"], case["policy"])
        }
        expected = np.array([theirs[job] for job in jobs.job_id])
        until = TAKEN_FOR_ONE.get((case["trace"], case["policy"]), np.inf)
        exact = jobs.submit_time + expected < until
        assert np.abs(jobs.jct - expected)[exact].max() <= EXACT_S
        assert jobs.jct.mean() == pytest.approx(average, rel=1e-9 if exact.all() else 1e-4)
        p99 = np.sort(jobs.jct)[int(0.99 * len(jobs))]
        assert p99 == pytest.approx(float(case["p99_jct_s"]), rel=1e-9 if exact.all() else 1e-4)
    elif case["policy"] == "Tiresias-L":  # rounding decides ties where all jobs come at once
        assert jobs.jct.mean() == pytest.approx(average, rel=0.01)
        assert jobs.finish_time.max() == pytest.approx(end, rel=1e-4)
    else:
        assert jobs.jct.mean() == pytest.approx(average, rel=0.04)
        assert jobs.finish_time.max() == pytest.approx(end, rel=0.02)
