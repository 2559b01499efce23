"""AFS against allocations, orders of grants and finish times that were computed from its rule."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.scheduling.afs import shares

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FILE = ROOT / "afs" / "allocation_cases.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
FINISH_S = 1e-6  # the files are rounded to six digits


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{FILE} is not there")


def padded(case: dict[str, Any]) -> tuple[Any, Any]:
    curves = [job["throughput_by_gpus"] for job in case["jobs"]]
    rates = np.zeros((len(curves), max(map(len, curves))))
    for row, curve in enumerate(curves):
        rates[row, : len(curve)] = curve
    return rates, np.array([len(curve) for curve in curves])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case {case['case']}")
def test_grants_are_the_recorded_ones(case: dict[str, Any]) -> None:
    rates, most = padded(case)
    names = [job["job"] for job in case["jobs"]]
    work = np.array([job["work"] for job in case["jobs"]])
    sharing = shares(rates, work, case["gpus"], most=most)
    assert dict(zip(names, sharing.sizes.tolist(), strict=True)) == case["allocation"]
    assert [names[job] for job in sharing.grants] == case["order_of_grants"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case {case['case']}")
def test_jobs_end_when_recorded(case: dict[str, Any], lab: Any) -> None:
    jobs = case["jobs"]
    table = ThroughputTable(
        [
            Measurement(gpu_type="v100", scale=k, kind=JobKind(job["job"]), rate=rate)
            for job in jobs
            for k, rate in enumerate(job["throughput_by_gpus"], 1)
        ]
    )
    trace = lab.trace(
        [(0, 1, job["work"]) for job in jobs],
        names=[job["job"] for job in jobs],
        model=[job["job"] for job in jobs],
        total_iterations=[job["work"] for job in jobs],
        min_gpus=[1] * len(jobs),
        max_gpus=[len(job["throughput_by_gpus"]) for job in jobs],
    )
    result = lab.run(
        trace, "afs", cluster=f"1x{case['gpus']}:v100", throughputs=table, clock="events"
    )
    ends = dict(zip(result.jobs.job_id.tolist(), result.jobs.finish_time.tolist(), strict=True))
    assert ends == pytest.approx(case["finish_times"], abs=FINISH_S)
    assert result.summary["avg_jct"] == pytest.approx(case["avg_jct"], abs=FINISH_S)
