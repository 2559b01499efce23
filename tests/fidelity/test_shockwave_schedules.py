"""Shockwave's simulated world: the authors' stored schedules give their times, bit by bit.

The GPUs of each job in each round come from the stored results. Everything else is the replay
under `-o semantics=shockwave`: batch sizes that adapt, what absence costs, jobs that take too long,
jobs that get nothing done. ρ of both published kinds is compared too.
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

from dlsched.core.cluster.description import Cluster, parse_cluster_spec
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.speed.throughput_table import ThroughputTable
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from simulate.engine import Engine
from simulate.profiles.batch_rules import BatchPatterns
from simulate.profiles.jobs import profiled
from simulate.progress.whole_steps import WholeSteps
from simulate.replay import prepare
from simulate.results.finish_time_fairness import shockwave_rho
from simulate.results.outcomes import result_of
from simulate.results.tables import ReplayResult
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from tests.throughputs import read_throughputs

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "shockwave"
PATTERNS = FOLDER / "gns_batch_size_pattern.csv"
LOGS = sorted(FOLDER.glob("authors_*.json.gz")) if PATTERNS.exists() else []
PROFILES = sorted(FOLDER.glob("*_profiles.json.gz")) if PATTERNS.exists() else []

pytestmark = pytest.mark.fidelity


def read(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        found: dict[str, Any] = json.load(file)
    return found


@cache
def table(name: str) -> ThroughputTable:
    return read_throughputs(FOLDER / name)


@cache
def patterns() -> BatchPatterns:
    return BatchPatterns.read(PATTERNS)


class FromLog(SchedulingPolicy[NoOptions]):
    """The stored schedule, round by round."""

    name = "from-log"
    preemptive = True
    rests = False

    def __init__(self, schedule: list[dict[str, list[int]]]) -> None:
        super().__init__(NoOptions())
        self.schedule = schedule

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        gpus = {int(job): sorted(ids) for job, ids in self.schedule[ctx.number].items()}
        where = {row: Placement(tuple(ids), (1,) * len(ids)) for row, ids in gpus.items()}
        for row in [row for row, held in ctx.occupancy.held.items() if where.get(row) != held]:
            walk.suspend(row)
        for row, placement in where.items():
            if row not in ctx.occupancy.held:
                walk.place_exactly(row, placement)


def single_gpus(count: int) -> Cluster:
    return parse_cluster_spec(f"{count}x1:v100")


def throughputs_of(log: dict[str, Any]) -> ThroughputTable:
    """A trace's name begins as the throughputs' that go with it."""
    kind = "tacc" if log["trace"].startswith("tacc") else "wisr"
    return table(f"{kind}_throughputs.csv.gz")


def settings_of(log: dict[str, Any]) -> RunSettings:
    return RunSettings(
        policy="fifo",
        options=("semantics=shockwave",),
        round_s=float(log["round_s"]),
        check=True,
    )


@cache
def replay_of(path: Path) -> Engine:
    """A replay, prepared; `replayed` runs it."""
    log = read(path)
    trace, cluster, settings = (
        open_trace(FOLDER / log["trace"]),
        single_gpus(log["gpus"]),
        settings_of(log),
    )
    engine = prepare(trace, cluster, settings, throughputs=throughputs_of(log), patterns=patterns())
    engine.parts.scheduling = FromLog(log["per_round_schedule"])
    return engine


@cache
def replayed(path: Path) -> ReplayResult:
    log, engine = read(path), replay_of(path)
    trace, cluster = open_trace(FOLDER / log["trace"]), single_gpus(log["gpus"])
    return result_of(trace, cluster, settings_of(log), engine, engine.run())


def name_of(path: Path) -> str:
    return path.name.split(".json")[0]


@pytest.mark.skipif(not LOGS, reason=f"no authors_*.json.gz in {FOLDER}")
@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_a_stored_schedule_gives_every_time_exactly(path: Path) -> None:
    log, result = read(path), replayed(path)
    assert result.jobs.jct.tolist() == log["jct_s"]
    assert result.summary["makespan"] == log["makespan_s"]
    assert result.summary["avg_jct"] == pytest.approx(log["avg_jct_s"], rel=1e-12)


@pytest.mark.skipif(not PROFILES, reason=f"no *_profiles.json.gz in {FOLDER}")
@pytest.mark.parametrize("path", PROFILES, ids=name_of)
def test_profiles_follow_from_the_rules(path: Path) -> None:
    known = read(path)
    trace = open_trace(FOLDER / path.name.replace("_profiles.json.gz", ".csv"))
    jobs = profiled(
        trace, single_gpus(32), table(known["throughputs"]), in_steps=True, patterns=patterns()
    )
    assert jobs.epochs is not None
    assert len(trace) == len(known["jobs"])
    for row, job in enumerate(known["jobs"]):
        profile = jobs.epochs.profile(row)
        sizes = [size for count, size, *_ in job["segments"] for _ in range(count)]
        seconds = [each for count, _, each, *_ in job["segments"] for _ in range(count)]
        assert profile.batch_size.tolist() == sizes
        assert profile.seconds == pytest.approx(seconds, abs=1e-9)
        assert profile.runtime == pytest.approx(job["exclusive_runtime_s"], abs=1e-6)


@pytest.mark.skipif(not LOGS, reason=f"no authors_*.json.gz in {FOLDER}")
@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_both_published_kinds_of_rho_are_those_stored(path: Path) -> None:
    log, result, gpus = read(path), replayed(path), read(path)["gpus"]
    static = shockwave_rho(result.jobs, len(result.jobs) / gpus)
    assert np.round(static, 5).tolist() == log["ftf_static"]
    progress = replay_of(path).world.progress
    assert isinstance(progress, WholeSteps)
    around = progress.mean_active(len(result.jobs))
    themis = shockwave_rho(result.jobs, around / gpus)
    assert themis == pytest.approx(log["ftf_themis"], abs=1.001e-5)  # five digits, cut or rounded
    variants = result.summary["finish_time_fairness_variants"]
    assert variants["shockwave-static"]["max"] == pytest.approx(log["worst_ftf_static"], abs=1e-5)
    assert variants["shockwave-themis"]["max"] == pytest.approx(log["worst_ftf_themis"], abs=1e-5)
    assert variants["shockwave-static"]["unfair_fraction"] == log["unfair_fraction_static"]
