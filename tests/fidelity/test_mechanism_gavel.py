"""Gavel's rounds with injected X: every round's GPUs and every JCT, whatever solved the X.

X comes from the log and must be asked for at the logged times; everything else is
`mechanism=published` as a replay under `-o semantics=gavel` runs it, pairs on the same GPUs
included.
"""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.allocation import Allocation
from dlsched.core.arrays import Rows
from dlsched.core.cluster.description import Cluster, parse_cluster_spec
from dlsched.core.context import RoundContext
from dlsched.core.options import parse_options
from dlsched.core.speed.throughput_table import ThroughputTable
from dlsched.policies.heterogeneous.time_shares import TimeShares
from simulate.engine import Engine
from simulate.published.gavel.policy import PublishedGavel, PublishedGavelOptions
from simulate.replay import prepare
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from tests.throughputs import read_throughputs

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "gavel"
LOGS = sorted(FOLDER.glob("mechanism_*.json.gz"))
TYPES = ("k80", "p100", "v100")  # GPU ids are handed out in this order
JCT_TOLERANCE_S = 1e-3  # the log prints six decimals

# what the published names differ in, as the rounds see it: a policy of ours of the same kind
OF_A_KIND = {
    "isolated": "isolated",
    "max_min_fairness": "max-min-agnostic",
    "max_min_fairness_perf": "max-min",
    "max_min_fairness_packed": "max-min-packed",
    "max_min_fairness_water_filling": "water-filling-agnostic",
    "max_min_fairness_water_filling_perf": "water-filling",
    "finish_time_fairness": "ftf-agnostic",
    "finish_time_fairness_perf": "ftf",
    "finish_time_fairness_packed": "ftf-packed",
    "min_total_duration": "makespan-agnostic",
    "min_total_duration_perf": "makespan",
    "max_sum_throughput_perf": "max-throughput",
    "fifo_perf": "fifo",
    "fifo_packed": "fifo-packed",
    "allox": "allox",
    "gandiva": "gandiva",
}

pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not LOGS, reason=f"no mechanism_*.json.gz in {FOLDER}"),
]


def read_log(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        log: dict[str, Any] = json.load(file)
    return log


@cache
def table() -> ThroughputTable:
    return read_throughputs(FOLDER / "simulation_throughputs.csv.gz")


def halves(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.strip("()").split(","))


class FromLog:
    """X as it was logged, one answer after the other."""

    def __init__(self, log: dict[str, Any]) -> None:
        self.answers = iter(log["allocs"])
        self.asked: list[float] = []

    def __call__(self, rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
        self.asked.append(ctx.now)
        x = {halves(name): by_type for name, by_type in next(self.answers)["x"].items()}
        alone = sorted(key for key in x if len(key) == 1)
        pairs = sorted(key for key in x if len(key) == 2)
        assert [row for (row,) in alone] == rows.tolist()
        return TimeShares(
            rows=rows,
            x=np.array([[x[key][t] for t in types] for key in alone]).reshape(-1, len(types)),
            first=np.array([one for one, _ in pairs], np.int64),
            second=np.array([other for _, other in pairs], np.int64),
            pair_x=np.array([[x[key][t] for t in types] for key in pairs]).reshape(-1, len(types)),
        )


def cluster_of(log: dict[str, Any]) -> Cluster:
    counts = dict(zip(("v100", "p100", "k80"), log["cluster"].split(":"), strict=True))
    sizes = dict(zip(("v100", "p100", "k80"), log["gpus_per_server"].split(":"), strict=True))
    return parse_cluster_spec(
        "+".join(
            f"{int(counts[t]) // int(sizes[t])}x{sizes[t]}:{t}" for t in TYPES if counts[t] != "0"
        )
    )


def engine_of(log: dict[str, Any], source: FromLog) -> Engine:
    # every round is looked at, also those that could be gone through without a decision
    settings = RunSettings(policy="gavel", options=("semantics=gavel",), check=True, skipping=False)
    trace = open_trace(FOLDER / log["trace"])
    engine = prepare(trace, cluster_of(log), settings, throughputs=table())
    given = {
        "objective": OF_A_KIND[log["policy"]],
        "mechanism": "published",
        "resolve_s": 1920.0,
        "queue": "one" if log["global_queue"] else "by-type",
        "seed": log["seed"],
    }
    options = parse_options(PublishedGavelOptions, given, owner="gavel")
    engine.parts.scheduling = PublishedGavel(options, source)
    return engine


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name.split(".json")[0][10:])
def test_every_round_gives_the_logged_gpus(path: Path) -> None:
    log = read_log(path)
    source = FromLog(log)
    engine = engine_of(log, source)
    rounds: list[tuple[float, dict[int, list[int]]]] = []

    def note(engine: Engine, _: Allocation) -> None:
        occupancy = engine.world.occupancy
        held = {row: p.gpu_ids(occupancy.cluster) for row, p in occupancy.held.items()}
        rounds.append((engine.now, {row: sorted(gpus) for row, gpus in held.items()}))

    engine.observers.append(note)
    engine.run()

    expected = [(entry["t"], entry["assign"]) for entry in log["rounds_log"][:-1]]
    for (at, gpus), (logged_at, logged) in zip(rounds, expected, strict=False):
        assert at == pytest.approx(logged_at, abs=1e-6)
        wanted = {row: sorted(ids) for name, ids in logged.items() for row in halves(name)}
        assert gpus == wanted, f"round at {logged_at}"
    assert len(rounds) == len(expected)
    solved = [entry["t"] for entry in log["allocs"] if entry["x"]]  # not after the last completion
    assert source.asked == pytest.approx(solved, abs=1e-6)
    units = engine.world.table
    for row, jct in log["jct"].items():
        ours = float(units.finish[int(row)] - units.submit_time[int(row)])
        assert ours == pytest.approx(jct, abs=JCT_TOLERANCE_S), f"job {row}"
