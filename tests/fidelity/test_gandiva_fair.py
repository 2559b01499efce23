"""Gandiva_fair against recorded quanta, and against what others made of it."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dlsched.core.allocation import Allocation
from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.policies.scheduling.gandiva_fair.stride import Contender, Passes, served
from simulate.engine import Engine
from simulate.profiles.batch_rules import BatchPatterns
from simulate.replay import prepare
from simulate.results.outcomes import result_of
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from tests.throughputs import read_throughputs

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
CASES = ROOT / "gandiva-fair" / "stride_cases.json"
PASS_TOLERANCE = 1e-6
JCT_TOLERANCE_S = 1e-3

pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not CASES.exists(), reason=f"no {CASES}"),
]


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(CASES.read_text()) if CASES.exists() else []
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["case"]))
def test_every_quantum_serves_the_recorded_gangs(case: dict[str, Any]) -> None:
    jobs = case["jobs"]
    passes, had = Passes(), dict.fromkeys(range(len(jobs)), 0)
    contenders = [Contender(number, job["gpus"], number) for number, job in enumerate(jobs)]
    for one in contenders:
        passes.join(one.number)
    for quantum in case["quanta"]:
        chosen = served(contenders, passes, case["gpus"])
        for number in chosen:
            passes.charge(number, jobs[number]["gpus"], jobs[number]["tickets"])
            had[number] += jobs[number]["gpus"]
        assert [jobs[number]["id"] for number in chosen] == quantum["run"]
        expected = [quantum["passes"][job["id"]] for job in jobs]
        assert list(passes.of.values()) == pytest.approx(expected, abs=PASS_TOLERANCE)
    assert {jobs[number]["id"]: gpus for number, gpus in had.items()} == case["gpu_quanta"]


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["case"]))
def test_a_replay_on_one_server_serves_them_too(lab: Any, case: dict[str, Any]) -> None:
    jobs = case["jobs"]
    names = [job["id"] for job in jobs]
    tickets = ",".join(f"{job['id']}:{job['tickets']}" for job in jobs)
    run = lab.run(
        lab.trace([(0, job["gpus"], 1e6) for job in jobs], user=names, names=names),
        "gandiva-fair",
        cluster=f"1x{case['gpus']}",
        clock="rounds",
        horizon=60.0 * len(case["quanta"]),
        options=(f"tickets={tickets}",),
    )
    had = dict(zip(run.jobs.job_id, (run.jobs.gpu_seconds / 60).round(9), strict=True))
    assert had == case["gpu_quanta"]


# -- as Shockwave's artifact rebuilt it -----------------------------------------------------------

SHOCKWAVE = ROOT / "shockwave"
LOG = SHOCKWAVE / "authors_tacc32_gandiva_fair.json.gz"


@pytest.mark.skipif(not LOG.exists(), reason=f"no {LOG}")
def test_the_rebuilt_one_gives_every_stored_time_and_every_round() -> None:
    with gzip.open(LOG, "rt") as file:
        log = json.load(file)
    trace, cluster = open_trace(SHOCKWAVE / log["trace"]), parse_cluster_spec("32x1:v100")
    settings = RunSettings(policy="gandiva-fair", options=("semantics=shockwave",), check=True)
    engine = prepare(
        trace,
        cluster,
        settings,
        throughputs=read_throughputs(SHOCKWAVE / "tacc_throughputs.csv.gz"),
        patterns=BatchPatterns.read(SHOCKWAVE / "gns_batch_size_pattern.csv"),
    )
    rounds: list[dict[str, list[int]]] = []

    def note(engine: Engine, _: Allocation) -> None:
        held = engine.world.occupancy.held
        rounds.append({str(r): p.gpu_ids(cluster) for r, p in sorted(held.items())})

    engine.observers.append(note)
    result = result_of(trace, cluster, settings, engine, engine.run())
    assert result.jobs.jct.tolist() == pytest.approx(log["jct_s"], abs=JCT_TOLERANCE_S)
    assert result.summary["makespan"] == pytest.approx(log["makespan_s"], abs=JCT_TOLERANCE_S)
    stored = [
        {job: sorted(gpus) for job, gpus in sorted(one.items(), key=lambda item: int(item[0]))}
        for one in log["per_round_schedule"]
    ]
    for number, (ours, theirs) in enumerate(zip(rounds, stored, strict=False)):
        assert ours == theirs, f"round {number}"
    assert len(rounds) >= len(stored)
