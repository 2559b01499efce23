"""Optimus+Oracle against the per-job results, restarts and rounds of Pollux' artifact: exactly."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.units import RUNNING, Units
from simulate.engine import Engine
from simulate.goodput.trainings import Trainings
from simulate.profiles.open import open_applications
from simulate.progress.measured import MeasuredProgress
from simulate.replay import prepare, replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "pollux"
SETTINGS = RunSettings(
    policy="optimus", round_s=60.0, options=("semantics=pollux", "oracle=true"), record=False
)
LARGE, SMALL = "16x4:t4", "4x4:t4"
EXAMPLE = [  # application, batch size, epochs done
    ("cifar10", 2048, 0), ("bert", 192, 0), ("deepspeech2", 320, 40), ("ncf", 32768, 0),
]  # fmt: skip


def rows_of(name: str) -> list[dict[str, str]]:
    path = FOLDER / name
    if not path.exists():
        return []
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    return list(csv.DictReader(io.StringIO(text)))


AUTHORS: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
for _row in rows_of("authors_jct.csv.gz"):
    if _row["run"].startswith("optimus-"):
        AUTHORS[_row["run"].removeprefix("optimus-"), _row["workload"]][_row["job"]] = float(
            _row["jct_s"]
        )
RESTARTS = {
    (row["load"], row["workload"]): int(row["restarts"])
    for row in rows_of("expected_restarts.csv")
    if row["policy"] == "optimus"
}
GOLDEN = [row for row in rows_of("golden_summary.csv") if row["policy"] == "optimus"]
ABSENT = pytest.mark.skipif(not AUTHORS, reason=f"{FOLDER} is not there (set DLSCHED_DATA)")


@pytest.fixture(scope="module")
def applications() -> Any:
    return open_applications(str(FOLDER))


def workload(name: str) -> Any:
    if name.startswith("small"):
        return open_trace(FOLDER / f"{name}.csv", "pollux")
    return open_trace(FOLDER / "workloads.csv.gz", "pollux", options=ReadOptions(workload=name))


@ABSENT
@pytest.mark.parametrize(("load", "number"), sorted(AUTHORS) or [("", "")], ids=str)
def test_every_job_takes_as_long_as_in_the_authors_run(
    load: str, number: str, applications: Any
) -> None:
    result = replay(
        workload(f"{load}:{number}"),
        parse_cluster_spec(LARGE),
        SETTINGS,
        applications=applications,
    )
    jct = dict(zip(result.jobs.job_id.tolist(), result.jobs.jct.tolist(), strict=True))
    assert jct == AUTHORS[load, number]
    if (load, number) in RESTARTS:
        assert int((result.jobs.starts - 1).sum()) == RESTARTS[load, number]


@ABSENT
@pytest.mark.parametrize("case", GOLDEN or [{}], ids=lambda row: row.get("case", "none"))
def test_every_round_is_the_recorded_one(case: dict[str, str], applications: Any) -> None:
    large = case["workload_set"] != "small"
    name = f"{case['workload_set']}:{case['workload'].removeprefix('workload-')}"
    engine = prepare(
        workload(name if large else case["workload"]),
        parse_cluster_spec(LARGE if large else SMALL),
        SETTINGS,
        applications=applications,
    )
    ids = engine_ids(name if large else case["workload"])
    rounds: dict[float, dict[str, tuple[str, float]]] = {}

    def note(engine: Engine, _: object) -> None:
        table, held = engine.world.table, engine.world.occupancy.held
        running = np.flatnonzero(table.status == RUNNING).tolist()
        rounds[engine.now] = {
            ids[row]: (shape(held[row]), round(table.executed.item(row), 3)) for row in running
        }

    engine.observers.append(note)
    engine.run()
    recorded: dict[float, dict[str, tuple[str, float]]] = defaultdict(dict)
    for row in rows_of(f"golden_{case['case']}_rounds.csv.gz"):
        where = row["placement"], float(row["progress"])
        recorded[float(row["time_s"])][row["job"]] = where
    assert set(rounds) <= {time for time in rounds if recorded[time] or not rounds[time]}
    for time, expected in recorded.items():
        assert rounds.get(time, {}).keys() == expected.keys(), time
        for job, (placed, progress) in expected.items():
            assert rounds[time][job][0] == placed, (time, job)
            assert rounds[time][job][1] == pytest.approx(progress, abs=2e-3), (time, job)
    for row in rows_of(f"golden_{case['case']}_jobs.csv"):
        at, table = ids.index(row["job"]), engine.world.table
        assert table.first_start[at] == float(row["first_alloc_s"])
        assert table.finish[at] == float(row["completion_s"])
        assert table.starts[at] - 1 == int(row["num_restarts"])


def engine_ids(name: str) -> list[str]:
    ids: list[str] = workload(name).job_id.tolist()
    return ids


def shape(placement: Placement) -> str:
    return "-".join(str(mask.bit_count()) for mask in placement.masks)


STEPS = {
    "cifar10": [1.40364, 0.837972, 0.546091, 0.394457, 0.346655, 0.268777],
    "bert": [14.5388, 6.96961, 4.9719, 3.54987, 4.47825, 3.98149],
    "deepspeech2": [10.1579, 5.19583, 3.22001, 2.6229, 2.11692, 1.83447],
    "ncf": [0.0295983],
}


@ABSENT
def test_the_example_of_four_jobs(applications: Any, lab: Any) -> None:
    names = [name for name, _, _ in EXAMPLE]
    trace = lab.trace(
        [(0, 1, 1)] * 4,
        names=names,
        model=names,
        batch_size=[size for _, size, _ in EXAMPLE],
    )
    engine = prepare(trace, parse_cluster_spec(SMALL), SETTINGS, applications=applications)
    progress = engine.world.progress
    assert isinstance(progress, MeasuredProgress)
    trainings = progress.trainings
    assert isinstance(trainings, Trainings)
    for training, (_, _, epochs) in zip(trainings.of, EXAMPLE, strict=True):
        training.epoch = epochs
        training.progress = float(
            training.application.learning.progress_at[epochs - 1] if epochs else 0
        )
    scaling = engine.cycle.ctx.perf.by_count
    assert scaling is not None
    rows = np.arange(4)
    rates = scaling.rates(rows, 6)
    for row, name in enumerate(names):
        known = STEPS[name]
        assert 1 / rates[row, : len(known)] == pytest.approx(known, rel=2e-6)
    assert not rates[3, 1:].any()
    left = scaling.steps_left(Units(engine.world.table, rows, 0.0))
    assert left.astype(int).tolist() == [3066, 462, 873, 1377]

    engine.horizon = 60.0
    engine.run()
    assert nodes(engine) == {
        "ncf": [0],
        "cifar10": [1, 1, 1, 1],
        "bert": [2, 2, 2, 2],
        "deepspeech2": [3, 3, 3, 3, 0, 0, 0],
    }
    engine.world.complete(names.index("bert"), 60.0, 60.0)
    engine._note_ends([names.index("bert")])
    engine._decide_in("full")
    assert nodes(engine) == {
        "ncf": [0],
        "cifar10": [1, 1, 1, 1, 2, 2],
        "deepspeech2": [3, 3, 3, 3, 0, 0, 0, 2, 2],
    }


def nodes(engine: Engine) -> dict[str, list[int]]:
    """Nodes by rank of each job."""
    return {
        EXAMPLE[row][0]: [
            node
            for node, mask in zip(held.nodes, held.masks, strict=True)
            for _ in range(mask.bit_count())
        ]
        for row, held in engine.world.occupancy.held.items()
    }
