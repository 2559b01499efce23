"""Tiresias' simulator, job for job: start, end, preemptions, promotions; and its Gittins table.

Runs of the published simulator of Tiresias (NSDI 2019). Tolerance 0: times are whole seconds.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from dlsched.composition.number_files import read_numbers
from dlsched.core.cluster.description import Cluster, Node
from simulate.published.tiresias.gittins import TabledIndex
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from tests.fidelity.aliases import tiresias_policy

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "tiresias"
CASE = ("trace", "cluster", "policy", "scheme")
LONG_RUN = 10_000  # preemptions; cases with more take a minute

pytestmark = pytest.mark.fidelity


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of an index file, empty when it is absent."""
    path = FOLDER / name
    if not path.exists():
        return []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


def cases() -> list[object]:
    """One parameter a golden case."""
    return [
        pytest.param(
            tuple(row[key] for key in CASE),
            id="-".join(row[key] for key in CASE),
            marks=[pytest.mark.exhaustive] if int(row["preemptions"]) > LONG_RUN else [],
        )
        for row in rows_of("golden_summary.csv")
    ]


@cache
def golden_jobs() -> dict[tuple[str, ...], dict[str, tuple[int, ...]]]:
    """Start, end, preemptions, promotions per job, per case."""
    found: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = defaultdict(dict)
    for row in rows_of("golden_jobs.csv.gz"):
        values = (int(row["start"]), int(row["end"]), int(row["preempt"]), int(row["promote"]))
        found[tuple(row[key] for key in CASE)][row["job_id"]] = values
    return found


def cluster_of(name: str) -> Cluster:
    """One of the cluster shapes of the index, with its switches."""
    shape = next(row for row in rows_of("clusters.csv") if row["cluster"] == name)
    return Cluster(
        [
            Node(name=f"s{switch}n{node}", gpus=int(shape["gpus_per_node"]), switch=f"s{switch}")
            for switch in range(int(shape["num_switch"]))
            for node in range(int(shape["nodes_per_switch"]))
        ],
        spec=name,
    )


@pytest.mark.skipif(not cases(), reason=f"no golden_summary.csv in {FOLDER} (set DLSCHED_DATA)")
@pytest.mark.parametrize("case", cases())
def test_every_job_starts_ends_and_is_interrupted_as_in_the_artifact(case: tuple[str, ...]) -> None:
    trace, cluster, policy, scheme = case
    name, options = tiresias_policy(policy, FOLDER)
    settings = RunSettings(
        policy=name, placement=scheme, clock="events", options=options, record=False
    )
    jobs = replay(open_trace(FOLDER / f"trace_{trace}.csv"), cluster_of(cluster), settings).jobs
    promotions = jobs.extra.get("promotions", [0] * len(jobs))
    ours = {
        job: (int(start), int(end), int(preempted), int(promoted))
        for job, start, end, preempted, promoted in zip(
            jobs.job_id,
            jobs.first_start_time,
            jobs.finish_time,
            jobs.preemptions,
            promotions,
            strict=True,
        )
    }
    assert ours == golden_jobs()[case]


def tables() -> list[Path]:
    """The artifact's index tables, named gittins_delta<D>_<sample><count>.csv."""
    return sorted(FOLDER.glob("gittins_delta*.csv"))


@pytest.mark.skipif(not tables(), reason=f"no gittins_*.csv in {FOLDER} (set DLSCHED_DATA)")
@pytest.mark.parametrize("path", tables(), ids=lambda path: path.stem)
def test_the_artifact_index_equals_its_table_to_four_decimals(path: Path) -> None:
    delta = float(path.stem.split("_")[1].removeprefix("delta"))
    with path.open() as file:
        rows = list(csv.DictReader(file))
    sample = [float(row["gpu_seconds"]) for row in rows]
    index = TabledIndex(sample, delta).table
    assert index.tolist() == [float(row["index"]) for row in rows]


@pytest.mark.skipif(not tables(), reason=f"no gittins_*.csv in {FOLDER} (set DLSCHED_DATA)")
def test_the_shipped_sample_is_the_one_of_the_table() -> None:
    with (FOLDER / "gittins_delta3250_yarn1000.csv").open() as file:
        table = [float(row["gpu_seconds"]) for row in csv.DictReader(file)]
    assert list(read_numbers(str(FOLDER / "gpu_time_samples_1000.csv.gz"))) == table
