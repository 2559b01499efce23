"""Others' policies in Shockwave's world, where jobs change their speed: the recorded runs.

Equal splits have one answer, so every job's time is compared. Of linear programs only figures can:
what their optima leave open is settled differently by every solver.
"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from simulate.profiles.open import open_profiles
from simulate.replay import replay
from simulate.results.tables import ReplayResult
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "shockwave"
JCT_TOLERANCE_S = 1e-3
EXACT = 1e-9
# our policy, and how far average JCT and makespan may lie from the recorded ones
POLICIES = {
    "isolated": ("gavel:isolated", EXACT, EXACT),
    "isolated_plus": ("gavel:isolated-plus", 0.01, 0.01),
    "gandiva_fair": ("gandiva-fair", EXACT, EXACT),
    "max_min_fairness": ("gavel:max-min-agnostic", 0.08, 0.15),
    "finish_time_fairness": ("gavel:ftf-agnostic", 0.08, 0.15),
    "min_total_duration": ("gavel:makespan-agnostic", 0.08, 0.15),
    "allox": ("gavel:allox", 0.03, 0.03),
}

pytestmark = pytest.mark.fidelity


def recorded(name: str) -> list[dict[str, str]]:
    """Rows of one of the files of recorded runs."""
    path = FOLDER / name
    if not path.exists():
        return []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [row for row in csv.DictReader(file) if row["policy"] in POLICIES]


RUNS = recorded("rerun_runs.csv")


def replayed(trace: str, gpus: str, policy: str) -> ReplayResult:
    name, _, objective = policy.partition(":")
    options = (f"objective={objective}",) if objective else ()
    kind = "tacc" if trace.startswith("tacc") else "wisr"
    throughputs, patterns, *_ = open_profiles(
        f"{FOLDER}/{kind}_throughputs.csv.gz,{FOLDER}/gns_batch_size_pattern.csv"
    )
    return replay(
        open_trace(FOLDER / trace),
        parse_cluster_spec(f"{gpus}x1:v100"),
        RunSettings(
            policy=name,
            options=("semantics=shockwave", *options),
            record=False,
        ),
        throughputs=throughputs,
        patterns=patterns,
    )


@pytest.mark.skipif(not RUNS, reason=f"no rerun_runs.csv in {FOLDER}")
@pytest.mark.parametrize(
    "run", RUNS, ids=lambda run: f"{run['trace'][:-4]}-{run['policy']}-{run['solver']}"
)
def test_a_recorded_run(run: dict[str, str]) -> None:
    policy, mean, makespan = POLICIES[run["policy"]]
    result = replayed(run["trace"], run["gpus"], policy)
    assert result.summary["avg_jct"] == pytest.approx(float(run["avg_jct_s"]), rel=mean)
    assert result.summary["makespan"] == pytest.approx(float(run["makespan_s"]), rel=makespan)
    if mean != EXACT:
        return
    known = {
        row["job_id"]: float(row["jct_s"])
        for row in recorded("rerun_jct.csv.gz")
        if all(row[name] == run[name] for name in ("trace", "policy", "solver"))
    }
    ours = dict(zip(result.jobs.job_id.tolist(), result.jobs.jct.tolist(), strict=True))
    assert ours == pytest.approx(known, abs=JCT_TOLERANCE_S)
    fairness = result.summary["finish_time_fairness_variants"]
    for variant, column in (
        ("shockwave-static", "worst_ftf_static"),
        ("shockwave-themis", "worst_ftf_themis"),
    ):
        assert fairness[variant]["max"] == pytest.approx(float(run[column]), abs=1e-5)
