"""Blox' strict walk, round for round: launch maps with GPU ids, suspend lists, every job's times.

Golden rounds of the round code in the artifact of Blox (EuroSys 2024), and its published results.
Tolerance 0: the semantics is deterministic and times are whole seconds.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.allocation import Allocation
from dlsched.core.cluster.description import parse_cluster_spec
from simulate.engine import Engine
from simulate.replay import prepare
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from simulate.traces.trace import Trace
from tests.fidelity.aliases import BLOX_PLACEMENTS, BLOX_POLICIES, blox_admission

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "blox"
CASE = ("trace", "policy", "admission", "placement", "nodes", "gpus_per_node")
ROUND_S = 300
LONG_RUN = 5_000  # rounds; longer ones take seconds and are marked slow

pytestmark = pytest.mark.fidelity


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of an index file, empty when it is absent."""
    path = FOLDER / name
    if not path.exists():
        return []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


GOLDEN = rows_of("golden_summary.csv")
PUBLISHED = rows_of("published_summary.csv")


@pytest.fixture(scope="module")
def golden_rounds() -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Rounds with a decision, per case."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    with gzip.open(FOLDER / "golden_rounds.jsonl.gz", "rt") as file:
        for line in file:
            entry = json.loads(line)
            found[tuple(str(entry[key]) for key in CASE)].append(entry)
    return found


@pytest.fixture(scope="module")
def golden_jobs() -> dict[tuple[str, ...], list[dict[str, str]]]:
    """Jobs, per case."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows_of("golden_jobs.csv.gz"):
        found[tuple(row[key] for key in CASE)].append(row)
    return found


class Logbook:
    """Notes every decision's launches and suspensions, as Blox would log them."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, Any]] = []

    def __call__(self, engine: Engine, allocation: Allocation) -> None:
        if allocation.suspended or allocation.launched:
            cluster = engine.world.occupancy.cluster
            self.rounds.append(
                {
                    "t": engine.now,
                    "launch": {
                        str(row): placement.gpu_ids(cluster)
                        for row, placement in allocation.launched.items()
                    },
                    "suspend": list(allocation.suspended),
                }
            )


def blox_engine(
    trace: Trace, row: dict[str, str], *, cluster: str, placement: str, **more: Any
) -> Engine:
    """A replay with the words that the command line would use."""
    admission, options = blox_admission(row["admission"])
    settings = RunSettings(
        policy=BLOX_POLICIES[row["policy"]],
        admission=admission,
        placement=placement,
        options=("semantics=blox", *options),
        clock="rounds",
        round_s=ROUND_S,
        record=False,
        **more,
    )
    return prepare(trace, parse_cluster_spec(cluster), settings)


@pytest.mark.skipif(not GOLDEN, reason=f"no golden_summary.csv in {FOLDER}")
@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: "-".join(row[key] for key in CASE))
def test_every_golden_round_and_job_is_equal(
    row: dict[str, str],
    golden_rounds: dict[tuple[str, ...], list[dict[str, Any]]],
    golden_jobs: dict[tuple[str, ...], list[dict[str, str]]],
) -> None:
    case = tuple(row[key] for key in CASE)
    trace = open_trace(FOLDER / f"trace_{row['trace']}.csv")
    engine = blox_engine(
        trace,
        row,
        cluster=f"{row['nodes']}x{row['gpus_per_node']}",
        placement=BLOX_PLACEMENTS[row["placement"]],
    )
    logbook = Logbook()
    engine.observers.append(logbook)
    stopped = engine.run()

    expected = [
        {key: entry[key] for key in ("t", "launch", "suspend")} for entry in golden_rounds[case]
    ]
    for ours, theirs in zip(logbook.rounds, expected, strict=False):
        assert ours == theirs
    assert len(logbook.rounds) == len(expected)

    table, jobs = engine.world.table, golden_jobs[case]
    assert table.finish.tolist() == [float(job["completed"]) for job in jobs]
    assert table.first_start.tolist() == [float(job["first_launch"]) for job in jobs]
    assert table.preemptions.tolist() == [int(job["preemptions"]) for job in jobs]
    assert stopped.time / ROUND_S == int(row["rounds"])


def published_jobs(row: dict[str, str]) -> list[dict[str, str]]:
    """Published jobs of one configuration, by id."""
    return [
        job
        for job in rows_of("published_jobs.csv.gz")
        if all(job[key] == row[key] for key in ("policy", "admission", "load"))
    ]


@pytest.mark.skipif(not PUBLISHED, reason=f"no published_summary.csv in {FOLDER}")
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=f"{row['policy']}-{row['admission']}-load{row['load']}",
            marks=[pytest.mark.slow] if int(row["rounds"]) > LONG_RUN else [],
        )
        for row in PUBLISHED
    ],
)
def test_every_published_job_and_suspension_is_equal(row: dict[str, str]) -> None:
    stream = FOLDER / f"input_load{row['load']}.csv.gz"
    if not stream.exists():
        pytest.skip(f"no {stream.name} in {FOLDER}")
    jobs = published_jobs(row)
    tracked = [int(job["job"]) for job in jobs]
    suspensions: Counter[int] = Counter()

    def count(engine: Engine, allocation: Allocation) -> None:
        if allocation.suspended:
            suspensions[int(engine.now)] += len(allocation.suspended)

    engine = blox_engine(
        open_trace(stream, "blox"),
        row,
        cluster="32x4",
        placement="first-free",
        track=(str(tracked[0]), str(tracked[-1])),
    )
    engine.observers.append(count)
    stopped = engine.run()

    table, rows = engine.world.table, np.array(tracked)
    submit = np.array([float(job["submit"]) for job in jobs])
    completed = np.array([float(job["completed"]) for job in jobs])
    assert (table.finish[rows] - table.submit_time[rows]).tolist() == (completed - submit).tolist()
    first_progress = [float(job["first_progress"]) for job in jobs]
    assert (table.first_start[rows] + ROUND_S).tolist() == first_progress
    expected = {
        int(entry["round_time"]): int(entry["preemptions"])
        for entry in rows_of("published_preemptions.csv.gz")
        if all(entry[key] == row[key] for key in ("policy", "admission", "load"))
    }
    assert dict(suspensions) == expected
    assert stopped.time / ROUND_S == int(row["rounds"])
