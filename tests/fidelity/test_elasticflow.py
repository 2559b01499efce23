"""ElasticFlow: its planning, case for case, and whole runs, against its released simulator."""

from __future__ import annotations

import csv
import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.policies.scheduling.elasticflow.planner import Planner, by_deadline
from dlsched.policies.scheduling.elasticflow.planning import Demand, Sizes
from simulate.replay import replay
from simulate.results.tables import JobOutcomes
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from tests.throughputs import read_throughputs

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "elasticflow"
pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"no folder {FOLDER} (set DLSCHED_DATA)"),
]
# name in the files: admission, semantics
POLICIES = {
    "elasticflow": ("", "elasticflow"),
    "elasticflow-no-admission": ("accept-all", "elasticflow"),
    "edf": ("accept-all", "elasticflow-edf"),
    "edf-admission": ("", "elasticflow-edf"),
}
LONG = 500  # jobs


def planning_cases() -> list[dict[str, Any]]:
    path = FOLDER / "planning_cases.json.gz"
    return json.load(gzip.open(path, "rt")) if path.exists() else []


@cache
def speeds() -> dict[tuple[str, str, int], dict[int, float]]:
    table: dict[tuple[str, str, int], dict[int, float]] = {}
    with (FOLDER / "throughputs.csv").open() as file:
        for row in csv.DictReader(file):
            kind = row["gpu_type"], row["model"], int(row["global_batch_size"])
            table.setdefault(kind, {})[int(row["num_gpus"])] = float(row["iterations_per_s"])
    return table


def demand(job: dict[str, Any], case: dict[str, Any]) -> Demand:
    known = speeds()[case["gpu_type"], job["model"], job["batch_size"]]
    gpus = np.array([size for size in sorted(known) if size <= job["max_gpus"]])
    rates = np.array([known[size] for size in gpus.tolist()])
    return Demand(job["iterations"], job["deadline"], Sizes.of(gpus, rates, case["gpus"]))


@pytest.mark.parametrize("number", range(len(planning_cases())))
def test_plans_are_those_of_the_artifact(number: int) -> None:
    case = planning_cases()[number]
    planner = Planner(case["gpus"], case["slot"])
    demands = {job["job"]: demand(job, case) for job in case["jobs"]}
    admitted: list[int] = []
    for job in demands:
        some = [demands[each] for each in (*admitted, job)]
        plans, _ = planner.plan_all([some[place] for place in by_deadline(some)])
        if all(plan.keeps for plan in plans):
            admitted.append(job)
    assert sorted(admitted) == sorted(case["admitted"])
    jobs = [admitted[place] for place in by_deadline([demands[job] for job in admitted])]
    plans, free = planner.plan_all([demands[job] for job in jobs])
    for job, plan in zip(jobs, plans, strict=True):
        steps = list(zip(plan.steps.times, plan.steps.gpus, strict=True))
        expected = case["minimum_share"][str(job)]
        assert plan.first == expected["first"]
        assert steps == [tuple(step) for step in expected["timeline"]]
        assert plan.real_end == expected["end"]
    planner.give_the_rest([demands[job] for job in jobs], plans, free, costliest=True)
    found = {str(j): {"gpus": p.first, "end": p.real_end} for j, p in zip(jobs, plans, strict=True)}
    assert found == case["after_extra"]


def measured() -> list[dict[str, str]]:
    path = FOLDER / "measured_summary.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return [row for row in csv.DictReader(file) if row["policy"] in POLICIES]


def run(case: dict[str, str]) -> JobOutcomes:
    admission, semantics = POLICIES[case["policy"]]
    return replay(
        open_trace(FOLDER / f"{case['trace']}.csv.gz"),
        parse_cluster_spec(f"{case['cluster']}:{case['gpu_type']}"),
        RunSettings(
            policy="elasticflow",
            admission=admission,
            options=(f"semantics={semantics}", f"restart_every={case['slot_s']}"),
            round_s=float(case["slot_s"]),
            record=False,
        ),
        throughputs=read_throughputs(FOLDER / "throughputs.csv"),
    ).jobs


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=f"{case['trace']}-{case['policy']}",
            marks=pytest.mark.exhaustive
            if int(case["jobs"]) > LONG and case["policy"] != "edf"
            else (),
        )
        for case in measured()
    ],
)
def test_runs_come_out_as_in_the_artifact(case: dict[str, str]) -> None:
    """With admission the artifact counts a deadline as met if the planned end keeps it."""
    jobs = run(case)
    done = jobs.status == "completed"
    deadline = jobs.extra["deadline"]
    end = jobs.extra["planned_end"] if case["policy"] == "elasticflow" else jobs.finish_time
    met = done & (end <= jobs.submit_time + deadline)
    share = met.sum() / (~np.isnan(deadline)).sum()
    assert share == pytest.approx(float(case["deadline_satisfactory_ratio"]), abs=0.01)
    assert jobs.jct[done].mean() == pytest.approx(float(case["avg_jct_s"]), rel=0.02)
    assert done.sum() == int(case["completed"])
    with gzip.open(FOLDER / "measured_jobs.csv.gz", "rt") as file:
        theirs = {
            row["job_id"]: float(row["finish_time"])
            for row in csv.DictReader(file)
            if (row["trace"], row["policy"]) == (case["trace"], case["policy"])
        }
    found = dict(zip(jobs.job_id[done].tolist(), jobs.finish_time[done].tolist(), strict=True))
    assert found.keys() == theirs.keys()
    same = sum(found[job] == theirs[job] for job in theirs)
    assert same >= 0.99 * len(theirs)
