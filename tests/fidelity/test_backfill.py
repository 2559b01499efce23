"""Backfill and its baselines, job for job, on recorded runs of a plain reference scheduler.

Tolerance 0: times are whole seconds.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "baselines"

pytestmark = pytest.mark.fidelity


def summary() -> list[dict[str, str]]:
    """One row a case, empty when the folder is absent."""
    path = FOLDER / "backfill_summary.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


@cache
def golden(trace: str) -> dict[str, dict[str, tuple[int, int]]]:
    """Start and end per job, per policy."""
    found: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    with gzip.open(FOLDER / f"backfill_{trace}.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            found[row["policy"]][row["job_id"]] = (int(row["start"]), int(row["end"]))
    return found


@pytest.mark.skipif(not summary(), reason=f"no backfill_summary.csv in {FOLDER} (set DLSCHED_DATA)")
@pytest.mark.parametrize("case", summary(), ids=lambda row: f"{row['trace']}-{row['policy']}")
def test_every_job_starts_and_ends_as_in_the_reference(case: dict[str, str]) -> None:
    trace = open_trace(ROOT / "tiresias" / f"trace_{case['trace']}.csv")
    settings = RunSettings(policy=case["policy"], placement="count", clock="events", record=False)
    result = replay(trace, parse_cluster_spec(f"1x{case['gpus']}"), settings)
    jobs = result.jobs
    ours = {
        job: (int(start), int(end))
        for job, start, end in zip(
            jobs.job_id, jobs.first_start_time, jobs.finish_time, strict=True
        )
    }
    assert ours == golden(case["trace"])[case["policy"]]
    assert result.summary["avg_jct"] == pytest.approx(float(case["avg_jct"]), abs=5e-7)
    assert result.summary["makespan"] == int(case["makespan"])
