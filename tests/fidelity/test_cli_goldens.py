"""Golden cases by the words that a user types: `dlsched replay` and its jobs file.

The other fidelity tests compare everything on the inside; these few show that the same results are
reachable from the command line. Tolerance 0: times are whole seconds.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dlsched.cli.main import run
from tests.fidelity.aliases import (
    BLOX_PLACEMENTS,
    BLOX_POLICIES,
    blox_admission,
    tiresias_policy,
)

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
BACKFILL, TIRESIAS, BLOX = (ROOT / name for name in ("baselines", "tiresias", "blox"))
SMALL = 1_000  # preemptions; larger cases are compared on the inside

pytestmark = pytest.mark.fidelity


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, empty when it is absent."""
    if not path.exists():
        return []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Call `dlsched replay`; gives the rows of the jobs file and the summary."""

    def call(*words: object) -> tuple[list[dict[str, str]], Any]:
        jobs, summary = tmp_path / "jobs.csv", tmp_path / "summary.json"
        outputs = ("--jobs-out", jobs, "--summary-out", summary)
        monkeypatch.setattr("sys.argv", ["dlsched", "replay", *map(str, (*words, *outputs))])
        with pytest.raises(SystemExit) as stop:
            run()
        assert stop.value.code == 0
        return rows_of(jobs), json.loads(summary.read_text())

    return call


def options(texts: tuple[str, ...]) -> list[str]:
    """`-o KEY=VALUE` for each."""
    return [word for text in texts for word in ("-o", text)]


CASES = rows_of(BACKFILL / "backfill_summary.csv")
STUDIES = sorted({(row["trace"], row["gpus"]) for row in CASES})


@pytest.mark.skipif(not STUDIES, reason=f"no backfill_summary.csv in {BACKFILL}")
@pytest.mark.parametrize(("trace", "gpus"), STUDIES)
def test_backfill_and_its_baselines_in_one_study(replayed: Any, trace: str, gpus: str) -> None:
    cases = [row for row in CASES if (row["trace"], row["gpus"]) == (trace, gpus)]
    policies = ",".join(row["policy"] for row in cases)
    jobs, summaries = replayed(
        TIRESIAS / f"trace_{trace}.csv", "--cluster", f"1x{gpus}", "--policy", policies,
        "--placement", "count", "--clock", "events", "--executor", "processes:1",
    )  # fmt: skip
    ours = {
        (row["policy"], row["job_id"]): (row["first_start_time"], row["finish_time"])
        for row in jobs
    }
    golden = {
        (row["policy"], row["job_id"]): (row["start"], row["end"])
        for row in rows_of(BACKFILL / f"backfill_{trace}.csv.gz")
        if row["policy"] in policies.split(",")
    }
    assert ours == golden
    for case, summary in zip(cases, summaries, strict=True):
        assert summary["policy"] == case["policy"]
        assert summary["avg_jct"] == pytest.approx(float(case["avg_jct"]), abs=5e-7)
        assert summary["makespan"] == int(case["makespan"])


def tiresias_cases() -> list[dict[str, str]]:
    """One small golden case a policy and scheme."""
    chosen: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows_of(TIRESIAS / "golden_summary.csv"):
        if int(row["preemptions"]) <= SMALL:
            chosen.setdefault((row["policy"], row["scheme"]), row)
    return list(chosen.values())


@pytest.mark.skipif(not tiresias_cases(), reason=f"no golden_summary.csv in {TIRESIAS}")
@pytest.mark.parametrize(
    "case", tiresias_cases(), ids=lambda row: f"{row['trace']}-{row['policy']}-{row['scheme']}"
)
def test_tiresias_on_a_cluster_file(replayed: Any, tmp_path: Path, case: dict[str, str]) -> None:
    (shape,) = (
        row for row in rows_of(TIRESIAS / "clusters.csv") if row["cluster"] == case["cluster"]
    )
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        "".join(
            f'[[nodes]]\nname = "s{switch}n[1-{shape["nodes_per_switch"]}]"\n'
            f'gpus = {shape["gpus_per_node"]}\nswitch = "s{switch}"\n'
            for switch in range(int(shape["num_switch"]))
        )
    )
    policy, given = tiresias_policy(case["policy"], TIRESIAS)
    jobs, _ = replayed(
        TIRESIAS / f"trace_{case['trace']}.csv", "--cluster", cluster, "--policy", policy,
        "--placement", case["scheme"], "--clock", "events", *options(given),
    )  # fmt: skip
    golden = [
        row
        for row in rows_of(TIRESIAS / "golden_jobs.csv.gz")
        if all(row[key] == case[key] for key in ("trace", "cluster", "policy", "scheme"))
    ]
    ours = [
        (row["job_id"], row["first_start_time"], row["finish_time"], row["preemptions"],
         row.get("promotions", "0"))
        for row in jobs
    ]  # fmt: skip
    names = ("job_id", "start", "end", "preempt", "promote")
    assert ours == [tuple(row[name] for name in names) for row in golden]


def blox_cases() -> list[dict[str, str]]:
    """One golden case a policy, admission and placement."""
    chosen: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows_of(BLOX / "golden_summary.csv"):
        key = tuple(row[name] for name in ("policy", "admission", "placement"))
        if int(row["preemptions"]) <= SMALL:
            chosen.setdefault(key, row)
    return list(chosen.values())


@pytest.mark.skipif(not blox_cases(), reason=f"no golden_summary.csv in {BLOX}")
@pytest.mark.parametrize(
    "case",
    blox_cases(),
    ids=lambda row: "-".join(row[key] for key in ("trace", "policy", "admission", "placement")),
)
def test_blox_rounds(replayed: Any, case: dict[str, str]) -> None:
    admission, given = blox_admission(case["admission"])
    jobs, summary = replayed(
        BLOX / f"trace_{case['trace']}.csv",
        "--cluster", f"{case['nodes']}x{case['gpus_per_node']}",
        "--clock", "rounds", "--round", 300, "--policy", BLOX_POLICIES[case["policy"]],
        "--admission", admission, "--placement", BLOX_PLACEMENTS[case["placement"]],
        "-o", "semantics=blox", *options(given),
    )  # fmt: skip
    same = ("trace", "policy", "admission", "placement", "nodes", "gpus_per_node")
    golden = [
        row
        for row in rows_of(BLOX / "golden_jobs.csv.gz")
        if all(row[key] == case[key] for key in same)
    ]
    ours = [(row["first_start_time"], row["finish_time"], row["preemptions"]) for row in jobs]
    names = ("first_launch", "completed", "preemptions")
    assert ours == [tuple(row[name] for name in names) for row in golden]
    assert summary["rounds"] == int(case["rounds"])


PUBLISHED = [row for row in rows_of(BLOX / "published_summary.csv") if int(row["rounds"]) < 5_000]


@pytest.mark.skipif(not PUBLISHED, reason=f"no published_summary.csv in {BLOX}")
@pytest.mark.parametrize("case", PUBLISHED, ids=lambda row: f"{row['policy']}-{row['admission']}")
def test_a_published_blox_configuration_on_its_tracked_jobs(
    replayed: Any, case: dict[str, str]
) -> None:
    admission, given = blox_admission(case["admission"])
    _, summary = replayed(
        BLOX / f"input_load{case['load']}.csv.gz", "--cluster", "32x4", "--clock", "rounds",
        "--round", 300, "--policy", BLOX_POLICIES[case["policy"]], "--admission", admission,
        "--placement", "first-free", "-o", "semantics=blox", "--track", "1000:2000",
        *options(given),
    )  # fmt: skip
    assert summary["jobs"] == int(case["tracked_jobs"])
    assert summary["avg_jct"] == pytest.approx(float(case["avg_jct"]), abs=5e-7)
    assert summary["rounds"] == int(case["rounds"])
