"""Gandiva's reduced model, job for job and tick for tick, against Tiresias' simulator."""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from simulate.engine import Engine
from simulate.published.gandiva.policy import ReducedPolicy
from simulate.published.gandiva.reduced import SIZES, Tick
from simulate.replay import prepare
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "gandiva"
pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"no folder {FOLDER} (set DLSCHED_DATA)"),
]


def cases() -> list[str]:
    return sorted(path.name.removesuffix(".jobs.csv") for path in FOLDER.glob("*.jobs.csv"))


def summary(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "summary.json").read_text())[case]
    return found


def run(case: str) -> tuple[Engine, list[Tick]]:
    about = summary(case)
    engine = prepare(
        open_trace(FOLDER / about["trace"]),
        parse_cluster_spec(f"{about['nodes']}x{about['gpus_per_node']}"),
        RunSettings(policy="gandiva", options=("semantics=gandiva",), check=True, record=False),
    )
    ticks: list[Tick] = []

    def note(engine: Engine, _: Any) -> None:
        policy = engine.parts.scheduling
        assert isinstance(policy, ReducedPolicy)
        assert policy.model is not None
        assert policy.model.last is not None
        ticks.append(policy.model.last)

    engine.observers.append(note)
    stopped = engine.run()
    assert stopped.reason == ""
    return engine, ticks


@pytest.mark.parametrize("case", cases())
def test_every_job_starts_and_ends_as_in_the_simulator(case: str) -> None:
    engine, _ = run(case)
    table, placed = engine.world.table, engine.columns["placed_at"]
    about = summary(case)
    rows = {str(job): row for row, job in enumerate(open_trace(FOLDER / about["trace"]).job_id)}
    with (FOLDER / f"{case}.jobs.csv").open() as file:
        theirs = list(csv.DictReader(file))
    assert len(theirs) == about["jobs"] == len(table)
    for job in theirs:
        row = rows[job["job_id"]]
        assert table.finish[row] == float(job["end_time"]), job
        assert placed[row] == float(job["start_time"]), job
    assert (table.finish - table.submit_time).mean() == pytest.approx(about["avg_jct_s"])
    assert table.finish.max() == about["makespan_s"]


@pytest.mark.parametrize("case", cases())
def test_every_tick_at_which_there_is_a_job_is_that_of_the_simulator(case: str) -> None:
    """Between the last end and the next arrival we do not tick; nothing could change then."""
    _, ticks = run(case)
    nodes = summary(case)["nodes"]
    with gzip.open(FOLDER / f"{case}.ticks.csv.gz", "rt") as file:
        theirs = {float(row["time"]): row for row in csv.DictReader(file)}
    for tick in ticks:
        row = theirs.pop(tick.time)
        assert int(row["idle_node"]) == tick.idle_nodes
        assert int(row["busy_node"]) == nodes - tick.idle_nodes
        assert int(row["fra_gpu"]) == tick.idle_gpus
        assert int(row["busy_gpu"]) == tick.busy_gpus
        assert int(row["pending_job"]) == tick.pending
        assert int(row["running_job"]) == tick.running
        assert int(row["completed_job"]) == tick.completed
        for gang, sets in zip(SIZES, tick.sets, strict=True):
            assert int(row.get(f"len_g{gang}", sets)) == sets
    assert all(row["running_job"] == row["pending_job"] == "0" for row in theirs.values())
