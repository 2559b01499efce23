"""Lucid's simulator, job for job: six policies on real arrivals, and tiny cases.

Times are whole seconds and the sums of floats are those of the simulator, so nothing is tolerated.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulate.engine import Engine
from simulate.profiled_first import prepare_in_two
from simulate.profiles.open import open_profiles
from simulate.published.lucid import LUCID
from simulate.published.lucid.policy import PublishedLucid, PublishedLucidOptions
from simulate.replay import prepare, replay
from simulate.results.tables import JobOutcomes
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from tests.fidelity.lucid_cases import (
    FOLDER,
    LENDER,
    SEMANTICS,
    cases,
    cluster_of,
    golden,
    is_venus,
    jobs_of,
)

pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"no folder {FOLDER} (set DLSCHED_DATA)"),
]


def settings_of(policy: str) -> RunSettings:
    options = [f"semantics={SEMANTICS.get(policy, 'lucid-queue')}"]
    if policy != "qssf":
        return RunSettings(policy=policy, options=tuple(options), record=False)
    options.append("estimator.column=est_qssf_s")
    return RunSettings(policy=policy, estimate="declared", options=tuple(options), record=False)


def waited(jobs: JobOutcomes) -> np.ndarray:
    """Seconds without GPUs between submit and end."""
    return jobs.jct - jobs.gpu_seconds / jobs.num_gpus


@pytest.mark.parametrize(("case", "policy"), [each for each in cases() if each[1] != "lucid"])
def test_every_job_starts_waits_and_ends_as_in_the_simulator(case: str, policy: str) -> None:
    expected = golden(case, policy)
    jobs = replay(open_trace(jobs_of(case)), cluster_of(case), settings_of(policy)).jobs
    assert set(jobs.job_id.tolist()) == set(expected)
    rows = [expected[job] for job in jobs.job_id]
    assert jobs.first_start_time.tolist() == [float(row["start_time"]) for row in rows]
    assert jobs.finish_time.tolist() == [float(row["end_time"]) for row in rows]
    assert waited(jobs).tolist() == [float(row["queue"]) for row in rows]
    if "ckpt_times" in rows[0]:
        assert jobs.preemptions.tolist() == [int(row["ckpt_times"]) for row in rows]


# GPUs, submit, duration
A = [(8, 0, 100), (4, 1, 50), (2, 2, 10), (16, 3, 30), (1, 4, 20), (4, 60, 5)]
B = [(8, 0, 3000), (8, 60, 600), (4, 90, 200), (8, 2400, 100)]
TINY = {
    ("A", "fifo"): "1:0-100 2:1-51 3:2-12 4:100-130 5:130-150 6:130-135",
    ("A", "sjf"): "1:0-100 2:1-51 3:2-12 4:100-130 5:4-24 6:60-65",
    ("A", "qssf"): "1:0-100 2:1-51 3:2-12 4:100-130 5:4-24 6:60-65",
    ("A", "srtf"): "1:0-272 2:1-52 3:2-13 4:52-149 5:4-25 6:60-66",
    ("A", "tiresias"): "1:0-101 2:60-111 3:60-71 4:120-151 5:60-81 6:180-186",
    ("B", "fifo"): "1:0-3000 2:3000-3600 3:3600-3800 4:3800-3900",
    ("B", "sjf"): "1:0-3000 2:3300-3900 3:3100-3300 4:3000-3100",
    ("B", "qssf"): "1:0-3000 2:3300-3900 3:3000-3200 4:3200-3300",
    ("B", "srtf"): "1:0-4024 2:60-902 3:90-291 4:2400-2501",
    ("B", "tiresias"): "1:0-4061 2:2280-2881 3:2940-3141 4:3180-3281",
}
INTERRUPTED = {  # preemptions, and seconds without GPUs
    ("A", "srtf"): {1: (2, 91), 4: (1, 55)},
    ("B", "srtf"): {1: (2, 943), 2: (1, 201)},
    ("B", "tiresias"): {1: (1, 1020)},
}


@pytest.mark.parametrize(("case", "policy"), TINY)
def test_a_tiny_case_comes_out_as_worked_out(lab, case: str, policy: str) -> None:
    jobs = {"A": A, "B": B}[case]
    rows = lab.trace([(s, g, d) for g, s, d in jobs], names=[str(n + 1) for n in range(len(jobs))])
    found = lab.run(
        rows,
        policy,
        cluster={"A": "2x8", "B": "1x8"}[case],
        options=(f"semantics={SEMANTICS.get(policy, 'lucid-queue')}",),
    ).jobs
    shown = " ".join(
        f"{job}:{start:g}-{end:g}"
        for job, start, end in zip(
            found.job_id, found.first_start_time, found.finish_time, strict=True
        )
    )
    assert shown == TINY[case, policy]
    for job, counted in INTERRUPTED.get((case, policy), {}).items():
        assert (found.preemptions[job - 1], waited(found)[job - 1]) == counted


def series(column: str, folder: Path) -> Path:
    """A column of the published predictions, as a file of numbers."""
    with gzip.open(FOLDER / "venus_sept_throughput_pred.csv.gz", "rt") as file:
        numbers = [row[column] for row in csv.DictReader(file)]
    path = folder / column
    path.write_text("\n".join(numbers))
    return path


VENUS = (
    "profiling_s=200",
    "profiling_gpus=8",
    "lender=" + LENDER,
    "slots_from=13219200",  # 2020-09-01, in seconds since 2020-04-01
)
PHILLY = ("profiling_s=80", "profiling_gpus=4", "scaling=false", "sharing=always")


def lucid_settings(case: str, folder: Path) -> RunSettings:
    options = ["semantics=lucid", "estimator.column=est_lucid_s"]
    if is_venus(case):
        options += [*VENUS, f"predicted_jobs={series('pred_gpu_job', folder)}"]
        options.append(f"predicted_gpus={series('pred_gpu_num', folder)}")
    else:
        options += PHILLY
    return RunSettings(policy="lucid", estimate="declared", options=tuple(options), record=False)


def lucid_run(case: str, folder: Path) -> JobOutcomes:
    return replay(
        open_trace(jobs_of(case)),
        cluster_of(case, profiles=True),
        lucid_settings(case, folder),
        pairs=open_profiles(str(FOLDER / "colocation_speeds.csv.gz")).pairs,
    ).jobs


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.exhaustive if case == "venus" else ())
        for case, policy in cases()
        if policy == "lucid"
    ],
)
def test_lucid_profiles_packs_and_ends_every_job_as_the_simulator(
    case: str, tmp_path: Path
) -> None:
    expected, jobs = golden(case, "lucid"), lucid_run(case, tmp_path)
    assert set(jobs.job_id.tolist()) == set(expected)
    rows = [expected[job] for job in jobs.job_id]
    assert jobs.first_start_time.tolist() == [float(row["start_time"]) for row in rows]
    assert jobs.finish_time.tolist() == [float(row["end_time"]) for row in rows]
    assert jobs.preemptions.sum() == 0
    profiled = jobs.extra["profiling_wait"]
    assert profiled.tolist() == [float(row["profqueue"]) for row in rows]
    assert jobs.extra["profiled"].tolist() == [int(row["profiled"]) for row in rows]
    ended_there = np.array([row["toskip"] == "1" for row in rows])
    waited_for_cluster = np.where(ended_there, 0.0, jobs.first_start_time - jobs.submit_time)
    assert (profiled + waited_for_cluster).tolist() == [float(row["queue"]) for row in rows]
    joined = [float(row["Tcolocate"]) > 0 for row in rows]
    assert (jobs.extra["packed"] == 1).tolist() == joined


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*_profiler_scaling_golden.csv")))
def test_the_profiling_stage_borrows_and_gives_back_as_the_simulator(
    path: Path, tmp_path: Path
) -> None:
    case = path.name.removesuffix("_profiler_scaling_golden.csv")
    with path.open() as file:
        expected = [(float(row["time_s"]), int(row["node_change"])) for row in csv.DictReader(file)]
    found: list[Any] = []

    def remember(*given: Any, **named: Any) -> Engine:
        engine = prepare(*given, **named)
        if named.get("stage") == "profiling":
            found.append(engine.parts.scheduling)
        return engine

    stage = PublishedLucid(PublishedLucidOptions(artifact_compat=True, lender=LENDER))
    cluster = cluster_of(case, profiles=True)
    first = stage.first_stage(cluster)
    prepare_in_two(
        open_trace(jobs_of(case)), cluster, lucid_settings(case, tmp_path), first, remember
    )
    assert list(found[0].changes) == expected


PPO64, PPO32 = ("PPO", "LunarLander", 64, 0), ("PPO", "LunarLander", 32, 0)
RESNET32, RESNET64, RESNET128 = (
    ("ResNet18", "CIFAR-10", size, amp) for size, amp in ((32, 1), (64, 1), (128, 0))
)
DCGAN, MOBILENET = ("DCGAN", "LSUN", 64, 1), ("MobileNetV2", "CIFAR-10", 64, 1)
# GPUs, submit, duration, estimate, workload
PACKING = {
    "A": [(*job, job[2], RESNET32) for job in A],
    "C1": [(1, 0, 300, 300, PPO64), (1, 150, 600, 100, RESNET64)],
    "C2": [(1, 0, 900, 900, RESNET64), (1, 150, 200, 200, PPO64)],
    "C3": [(1, 0, 400, 400, DCGAN), (1, 100, 500, 100, MOBILENET), (1, 600, 200, 50, DCGAN)],
    "D": [
        (8, 0, 500, 100, RESNET128),
        (8, 150, 50, 201, PPO64),
        (8, 151, 50, 10, RESNET32),
        (4, 152, 40, 10, PPO64),
        (8, 153, 50, 200, PPO32),
    ],
}
PACKED = {
    ("A", "artifact"): "1:0-101 2:1-52 3:2-13 4:101-132 5:4-25 6:60-66",
    ("C1", "artifact"): "1:0-301 2:150-888",
    ("C1", "correct"): "1:0-301 2:150-779",
    ("C2", "artifact"): "1:0-939 2:150-351",
    ("C3", "artifact"): "1:0-428 2:100-634 3:600-801",
    ("D", "artifact"): "1:0-501 2:593-644 3:542-593 4:501-542 5:153-204",
}


@pytest.mark.parametrize(("case", "restores"), PACKED)
def test_a_tiny_case_of_packing_comes_out_as_worked_out(lab, case: str, restores: str) -> None:
    profiles = open_profiles(f"{FOLDER / 'colocation_speeds.csv.gz'}")
    with (FOLDER / "workload_profiles.csv").open() as file:
        measured = {
            (row["model"], row["dataset"], int(row["batchsize"]), int(row["amp"])): row
            for row in csv.DictReader(file)
        }
    rows = PACKING[case]
    kinds = [row[4] for row in rows]
    trace = lab.trace(
        [(submit, gpus, seconds) for gpus, submit, seconds, *_ in rows],
        names=[str(number + 1) for number in range(len(rows))],
        expected=[row[3] for row in rows],
        model=[kind[0] for kind in kinds],
        dataset=[kind[1] for kind in kinds],
        batch_size=[kind[2] for kind in kinds],
        amp=[kind[3] for kind in kinds],
        share_score=[float(measured[kind]["label"]) for kind in kinds],
        gpu_memory_gib=[float(measured[kind]["gmem"]) / 1024 for kind in kinds],
    )
    left = "first-restored" if restores == "artifact" else "restored"
    engine = lab.engine(
        trace,
        "lucid",
        cluster="2x8" if case == "A" else "1x8",
        estimate="declared",
        options=("profiling_nodes=0", "sharing=always", f"restore_partner={restores}"),
        semantics=replace(LUCID, partners_left=left),
        pairs=profiles.pairs,
    )
    engine.run()
    table = engine.world.table
    shown = " ".join(
        f"{job}:{start:g}-{end:g}"
        for job, start, end in zip(trace.job_id, table.first_start, table.finish, strict=True)
    )
    assert shown == PACKED[case, restores]
