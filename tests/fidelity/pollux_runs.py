"""The recorded runs of Pollux' simulator, and the same runs by ours; for the tests beside it."""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

from dlsched.core.allocation import Allocation
from dlsched.core.cluster.description import parse_cluster_spec
from simulate.engine import Engine
from simulate.goodput.application import Application
from simulate.goodput.files import read_applications
from simulate.goodput.trainings import Trainings
from simulate.progress.measured import MeasuredProgress
from simulate.replay import prepare, replay
from simulate.results.tables import ReplayResult
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions
from simulate.traces.trace import Trace

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "pollux"
CLUSTER = "16x4:t4"
SMALL_CLUSTER = "4x4:t4"  # of the workload that is a file of its own

Round = tuple[int, str, str, int, int, int, str]  # time, job, placement, batch, passes, epoch, …


def rows_of(name: str) -> list[dict[str, str]]:
    """Rows of a file of the folder; none where it is absent."""
    path = FOLDER / name
    if not path.exists():
        return []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


@cache
def applications() -> dict[str, Application]:
    """The measured applications."""
    return read_applications(FOLDER)


@cache
def published(policy: str) -> dict[tuple[str, str], dict[str, int]]:
    """The authors' own runs of a policy: JCT of every job, by load and workload."""
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for row in rows_of("authors_jct.csv.gz"):
        name, _, load = row["run"].partition("-")
        if name == policy and row["family"] == "results-jobload":
            found[load, row["workload"]][row["job"]] = int(row["jct_s"])
    return dict(found)


def restarts(policy: str, load: str, workload: str) -> int | None:
    """Restarts of all jobs of a published run, where they are known."""
    for row in rows_of("expected_restarts.csv"):
        if (row["policy"], row["load"], row["workload"]) == (policy, load, workload):
            return int(row["restarts"])
    return None


def golden_cases(policy: str) -> list[dict[str, str]]:
    """Runs of the artifact of which every round was written down."""
    return [row for row in rows_of("golden_summary.csv") if row["policy"] == policy]


def workload(name: str) -> Trace:
    """A workload of the common file."""
    return open_trace(FOLDER / "workloads.csv.gz", options=ReadOptions(workload=name))


def settings_of(policy: str, *options: str) -> RunSettings:
    return RunSettings(policy=policy, options=("semantics=pollux", *options), record=False)


def run(load: str, number: str, policy: str, *options: str) -> ReplayResult:
    """Our run of a workload."""
    return replay(
        workload(f"{load}:{number}"),
        parse_cluster_spec(CLUSTER),
        settings_of(policy, *options),
        applications=applications(),
    )


def jcts(result: ReplayResult) -> dict[str, float]:
    """JCT of every job."""
    jobs = result.jobs
    return dict(
        zip(jobs.job_id.tolist(), (jobs.finish_time - jobs.submit_time).tolist(), strict=True)
    )


def golden_jobs(case: str) -> dict[str, tuple[int, int, int]]:
    """First start, completion and restarts of every job."""
    return {
        row["job"]: (int(row["first_alloc_s"]), int(row["completion_s"]), int(row["num_restarts"]))
        for row in rows_of(f"golden_{case}_jobs.csv")
    }


def golden_rounds(case: str) -> list[Round]:
    """Which jobs ran where after every round, in the order of the file."""
    return [
        (
            int(row["time_s"]),
            row["job"],
            row["placement"],
            int(row["batch_size"]),
            int(row["accum_steps"]),
            int(row["epoch"]),
            f"{float(row['progress']):.3f}",
        )
        for row in rows_of(f"golden_{case}_rounds.csv.gz")
    ]


def replay_of_golden(
    case: dict[str, str], policy: str, *options: str
) -> tuple[dict[str, tuple[int, int, int]], list[Round]]:
    """Our run of a golden case: the same two tables."""
    small = case["workload_set"] == "small"
    trace = (
        open_trace(FOLDER / f"{case['workload']}.csv")
        if small
        else workload(f"{case['workload_set']}:{case['workload'].removeprefix('workload-')}")
    )
    engine = prepare(
        trace,
        parse_cluster_spec(SMALL_CLUSTER if small else CLUSTER),
        RunSettings(
            policy=policy,
            options=("semantics=pollux", *options),
            round_s=float(case["interval_s"]),
            skipping=False,
            record=False,
        ),
        applications=applications(),
    )
    progress = engine.world.progress
    assert isinstance(progress, MeasuredProgress)
    trainings = progress.trainings
    assert isinstance(trainings, Trainings)
    rounds: list[Round] = []

    def note(engine: Engine, allocation: Allocation) -> None:
        for row in sorted(engine.world.occupancy.held):
            each = trainings.of[row]
            rounds.append(
                (
                    int(engine.now),
                    str(trace.job_id[row]),
                    "-".join(map(str, each.shape)),
                    each.split.batch,
                    each.split.accumulation,
                    each.epoch,
                    f"{each.progress:.3f}",
                )
            )

    engine.observers.append(note)
    engine.run()
    table = engine.world.table
    jobs = {
        str(job): (
            int(table.first_start[row]),
            int(table.finish[row]),
            int(table.starts[row]) - 1,
        )
        for row, job in enumerate(trace.job_id)
    }
    return jobs, rounds
