"""Synergy: whole runs job by job, and the programs of its optimum, against its simulator."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.composition.host_tables import HostTables
from dlsched.core.allocation import HostShare
from dlsched.core.cluster.description import Cluster, Node
from dlsched.policies.scheduling.synergy.program import best_shares
from simulate.profiles.open import read_host_files
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "synergy"
pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"no folder {FOLDER} (set DLSCHED_DATA)"),
]
PLACEMENTS = {"first-fit": "first-free", "consolidate": "fullest"}
SERVER = {"gpus": 8, "cpus": 24.0, "memory_gb": 500.0}
FAIR = HostShare(3.0, 62.5)
Case = tuple[str, str, str, str]  # trace, policy, mode, placement


@cache
def measured() -> dict[Case, dict[str, float]]:
    """JCT of each job of each run."""
    path = FOLDER / "measured_jobs.csv.gz"
    found: dict[Case, dict[str, float]] = defaultdict(dict)
    if path.exists():
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                case = row["trace"], row["policy"], row["mode"], row["placement"]
                found[case][row["job_id"]] = float(row["jct"])
    return found


@cache
def sizes() -> dict[Case, int]:
    """How many servers each run had."""
    with (FOLDER / "measured_summary.csv").open() as file:
        return {
            (r["trace"], r["policy"], r["mode"], r["placement"]): int(r["cluster"].split("x")[0])
            for r in csv.DictReader(file)
        }


def cluster(servers: int) -> Cluster:
    return Cluster([Node(name=f"n{k}", **SERVER) for k in range(servers)])  # type: ignore[arg-type]


@cache
def demands() -> HostTables:
    return read_host_files([FOLDER / "model_demands.csv"])


def jct_of(case: Case) -> dict[str, float]:
    name, policy, mode, placement = case
    trace = open_trace(FOLDER / name)
    # a job at second 0 is seen by a first round at second 1
    semantics = "synergy-static" if trace.submit_time[0] == 0 else "synergy"
    settings = RunSettings(
        policy="synergy",
        placement=PLACEMENTS[placement],
        options=(f"order={policy.lower()}", f"mode={mode}", f"semantics={semantics}"),
        record=False,
    )
    jobs = replay(trace, cluster(sizes()[case]), settings, host=demands()).jobs
    return dict(zip(jobs.job_id.tolist(), jobs.jct.tolist(), strict=True))


@pytest.mark.parametrize("case", list(measured()), ids="-".join)
def test_every_job_ends_when_it_does_in_the_artifact(case: Case) -> None:
    found, expected = jct_of(case), measured()[case]
    assert {job for job in expected if abs(found[job] - expected[job]) > 1e-3} == set()


def programs() -> list[dict[str, Any]]:
    path = FOLDER / "opt_cases.json"
    return json.loads(path.read_text()) if path.exists() else []


@pytest.mark.parametrize("case", programs(), ids=lambda case: str(case["case"]))
def test_the_program_of_the_optimum_has_the_value_of_the_artifact(case: dict[str, Any]) -> None:
    profiles = read_host_files([FOLDER / "sensitivity.csv"]).for_servers(FAIR)
    menus, gains = [], []
    for job in case["jobs"]:
        profile = profiles[job["model"]]
        shares = np.array([(c, m) for c in profile.cpus for m in profile.memory_gb])
        good = profile.gain.ravel() >= profile.at(FAIR)
        menus.append(shares[good])
        gains.append(profile.gain.ravel()[good])
    gpus = np.array([[job["gpus"]] for job in case["jobs"]], np.float64)
    capacity = np.array([[SERVER["cpus"]], [SERVER["memory_gb"]]]) * case["servers"]
    chosen = best_shares(menus, gains, gpus, capacity)
    value = sum(gain[entry] for gain, entry in zip(gains, chosen, strict=True))
    assert value == pytest.approx(case["objective"], abs=1e-6)
    used = sum(g * m[e] for g, m, e in zip(gpus, menus, chosen, strict=True))
    assert (used <= capacity[:, 0] + 1e-9).all()
