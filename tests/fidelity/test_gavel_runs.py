"""Whole replays of Gavel's traces against the outputs of its published simulator.

Where X is a formula, every job's JCT is equal. Elsewhere we take the way of its interior-point
solver (`settle=published`) and end where that does to some six decimals. So JCTs are equal there
too, as long as no two shares differ by less: jobs that are alike have equal shares, and rounding
decides which job comes first. Averages are compared.
"""

from __future__ import annotations

import csv
import gzip
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dlsched.core.cluster.description import Cluster, parse_cluster_spec
from dlsched.core.speed.throughput_table import ThroughputTable
from simulate.replay import replay
from simulate.results.finish_time_fairness import against_isolated
from simulate.results.tables import ReplayResult
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from simulate.traces.trace import Trace
from tests.throughputs import read_throughputs

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "gavel"
EXACT_S = 1e-3
TYPES = ("v100", "p100", "k80")
PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
OURS = {
    "isolated": "isolated",
    "max_min_fairness": "max-min-agnostic",
    "max_min_fairness_perf": "max-min",
    "max_min_fairness_packed": "max-min-packed",
    "finish_time_fairness": "ftf-agnostic",
    "finish_time_fairness_perf": "ftf",
    "finish_time_fairness_packed": "ftf-packed",
    "min_total_duration": "makespan-agnostic",
    "min_total_duration_perf": "makespan",
    "max_sum_throughput_perf": "max-throughput",
    "max_sum_throughput_normalized_by_cost_perf": "cost",
    "max_sum_throughput_normalized_by_cost_perf_SLOs": "cost-slo",
    "fifo_perf": "fifo",
    "fifo_packed": "fifo-packed",
    "allox": "allox",
    "gandiva": "gandiva",
}
FORMULAS = {"isolated", "fifo", "fifo-packed"}
# how far averages may be off: JCT, makespan
USUAL = (0.02, 0.03)
TOLERANCE = {"gandiva": (0.10, 0.10)}
EXACTLY = {"makespan", "makespan-agnostic", "allox"}  # shares are far apart, or whole

pytestmark = pytest.mark.fidelity

Row = dict[str, str]
LONGEST = "cont1gpu_s0-36:36:36-ftf"  # a third of the time of all; ftf has other cases


def rows_of(pattern: str) -> list[Row]:
    found: list[Row] = []
    for path in sorted(FOLDER.glob(pattern)):
        with path.open() as file:
            found += [row for row in csv.DictReader(file) if row["policy"] in OURS]
    return found


def cases(rows: list[Row]) -> list[object]:
    if not rows:
        reason = f"no runs in {FOLDER} (set DLSCHED_DATA)"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="none")]
    ids = ["-".join([short(row), cluster_words(row), OURS[row["policy"]]]) for row in rows]
    return [
        pytest.param(row, id=name, marks=pytest.mark.exhaustive if name == LONGEST else ())
        for row, name in zip(rows, ids, strict=True)
    ]


def short(row: Row) -> str:
    return row["trace"].removeprefix("trace_").removesuffix(".csv")


def cluster_words(row: Row) -> str:
    return row.get("cluster_v100_p100_k80") or row["cluster"]


def cluster_of(row: Row) -> Cluster:
    counts = dict(zip(TYPES, map(int, cluster_words(row).split(":")), strict=True))
    sizes = dict(zip(TYPES, map(int, row.get("gpus_per_server", "1:1:1").split(":")), strict=True))
    parts = [f"{counts[t] // sizes[t]}x{sizes[t]}:{t}" for t in sorted(TYPES) if counts[t]]
    return parse_cluster_spec("+".join(parts))


@cache
def table(name: str) -> ThroughputTable:
    return read_throughputs(FOLDER / name)


@cache
def published_jcts() -> dict[tuple[str, str, str], dict[str, float]]:
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for path in sorted(FOLDER.glob("golden_jct*.csv.gz")):
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                key = row["trace"], row["cluster_v100_p100_k80"], row["policy"]
                found.setdefault(key, {})[row["job_id"]] = float(row["jct_s"])
    return found


def run(row: Row, trace: Trace, *, record: bool = False) -> ReplayResult:
    options = (f"objective={OURS[row['policy']]}", "semantics=gavel")
    settings = RunSettings(policy="gavel", options=options, record=record)
    name = row.get("throughputs") or "simulation_throughputs.csv.gz"
    return replay(trace, cluster_of(row), settings, throughputs=table(name))


@cache
def isolated(trace: str, cluster: str, per_server: str, throughputs: str) -> ReplayResult:
    row = {"trace": trace, "cluster_v100_p100_k80": cluster, "gpus_per_server": per_server}
    row |= {"throughputs": throughputs, "policy": "isolated"}
    return run(row, open_trace(FOLDER / trace))


def off(found: object, published: str) -> float:
    assert isinstance(found, float)
    return found / float(published) - 1.0


@pytest.mark.parametrize("row", cases(rows_of("golden_runs*.csv")))
def test_a_replay_ends_as_the_published_one(row: Row) -> None:
    objective = OURS[row["policy"]]
    result = run(row, open_trace(FOLDER / row["trace"]))
    jobs = result.jobs
    assert result.summary["completed"] == int(row["n_jobs"])
    jct, makespan = result.summary["avg_jct"], result.summary["makespan"]
    if objective in FORMULAS | EXACTLY and row["worst_rho_vs_isolated_run"]:
        names = ("trace", "cluster_v100_p100_k80", "gpus_per_server", "throughputs")
        compared = against_isolated(result, isolated(*(row[name] for name in names)))
        fairness = compared.summary["finish_time_fairness"]
        assert fairness["variant"] == "gavel-report"
        assert fairness["max"] == pytest.approx(float(row["worst_rho_vs_isolated_run"]), rel=1e-6)
    if objective in FORMULAS:
        published = published_jcts()[row["trace"], cluster_words(row), row["policy"]]
        ours = dict(zip(jobs.job_id.tolist(), (jobs.finish_time - jobs.submit_time), strict=True))
        assert {job: ours[job] for job in published} == pytest.approx(published, abs=EXACT_S)
        assert makespan == pytest.approx(float(row["makespan_s"]), abs=EXACT_S)
        return
    mean, last = (1e-4, 1e-4) if objective in EXACTLY else TOLERANCE.get(objective, USUAL)
    assert abs(off(jct, row["avg_jct_s"])) <= mean
    assert abs(off(makespan, row["makespan_s"])) <= last


@pytest.mark.parametrize("row", cases(rows_of("cost_runs*.csv")))
def test_costs_are_near_the_published_ones(row: Row) -> None:
    trace = open_trace(FOLDER / row["trace"])
    if row["with_slo"] == "1":
        factor = np.array([(1.2, 2.0, 10.0)[int(job) % 3] for job in trace.job_id.tolist()])
        trace = replace(trace, columns={**trace.columns, "deadline": factor * trace.duration})
    result = run(row, trace, record=True)
    segments, kinds = result.segments, result.cluster.node_type
    assert segments is not None
    hours = (segments.end - segments.start) * segments.gpus / 3600.0
    cost = float(hours @ np.array([PRICES[kinds[node]] for node in segments.node.tolist()]))
    mean, last = USUAL
    assert abs(off(result.summary["avg_jct"], row["avg_jct_s"])) <= mean
    assert abs(off(result.summary["makespan"], row["makespan_s"])) <= last
    # GPUs are held to the end of a round, and the published ones paid until a job's own end
    assert abs(off(cost, row["total_cost_usd"])) <= 0.06
