"""The comparison of docs/policies/sharing.md, smaller: one trace, one command, one page."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dlsched.cli.typer_app import app

EXAMPLES = Path(__file__).parents[3] / "examples"
WORKLOADS = EXAMPLES / "workloads.csv"
CLUSTER = "2x4:v100@32"


def generate(made: Path, table: Path, *more: str) -> Path:
    words = ["--jobs", "30", "--seed", "3", "--cluster", CLUSTER, "--load", "2", *more]
    given = ["trace", "generate", "-o", str(made), *words, "--workloads", str(table)]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    return made


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return generate(tmp_path / "jobs.csv", WORKLOADS)


def test_generated_jobs_train_workloads_of_the_table(jobs: Path) -> None:
    rows = list(csv.DictReader(jobs.read_text().splitlines()))
    known = {row["model"]: row for row in csv.DictReader(WORKLOADS.read_text().splitlines())}
    assert len({row["model"] for row in rows}) > 3
    for row in rows:
        for name, value in known[row["model"]].items():
            assert row[name] == value


def test_policies_that_share_are_compared_in_one_command(jobs: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    policies = "srtf,gavel,lucid,muri"
    words = ["--cluster", CLUSTER, "--policy", policies, "--interference", "stages"]
    words += ["-o", "gavel.objective=max-min-packed", "--executor", "processes:1"]
    words += ["--summary-out", str(tmp_path / "s.json"), "--report", str(page), "--jobs-out", "-"]
    result = CliRunner().invoke(app, ["replay", str(jobs), *words])
    assert result.exit_code == 0, result.output
    found = {each["policy"]: each for each in json.loads((tmp_path / "s.json").read_text())}
    assert all(each["completed"] == 30 for each in found.values())
    assert all(each["options"]["interference"] == "stages" for each in found.values())
    assert "jobs_with_partners" not in found["srtf"]
    assert found["muri"]["jobs_with_partners"] > 0
    assert 0 < found["muri"]["mean_shared_speed"] < 1
    rows = [row for row in csv.DictReader(io.StringIO(result.stdout)) if row["policy"] == "muri"]
    names = {row["job_id"]: row["beside"].split() for row in rows}
    for job, partners in names.items():
        for other in partners:
            assert other.startswith("+") or job in names[other] or len(names[other]) > 8
    assert "Jobs on the same GPUs" in page.read_text()


def test_owners_lanes_and_parts_are_compared_in_the_same_command(tmp_path: Path) -> None:
    """Opportunistic jobs, Salus' lanes, and jobs that name parts of GPUs, in a trace of theirs."""
    share = ("--opportunistic", "0.5")
    jobs = generate(tmp_path / "jobs.csv", WORKLOADS, *share)
    parts = generate(tmp_path / "parts.csv", EXAMPLES / "parts.csv", *share)
    with jobs.open() as one, parts.open() as other:
        for whole, part in zip(csv.DictReader(one), csv.DictReader(other), strict=True):
            assert all(whole[name] == part[name] for name in ("duration", "model", "guarantee"))
    words = ["--profiles", str(WORKLOADS), "--cluster", CLUSTER, "--policy", "srtf,antman,salus"]
    words += ["--interference", "stages", "--executor", "processes:1"]
    words += ["--summary-out", str(tmp_path / "s.json")]
    result = CliRunner().invoke(app, ["replay", str(jobs), str(parts), *words])
    assert result.exit_code == 0, result.output
    found = {
        (each["trace"], each["policy"]): each
        for each in json.loads((tmp_path / "s.json").read_text())
    }
    assert all(each["completed"] == 30 for each in found.values())
    assert "jobs_with_partners" not in found["jobs", "srtf"]
    for run in (("jobs", "antman"), ("jobs", "salus"), ("parts", "srtf")):
        assert found[run]["jobs_with_partners"] > 0
        assert 0 < found[run]["mean_shared_speed"] <= 1


def test_a_share_that_is_none_makes_no_trace(dlsched: Any, tmp_path: Path) -> None:
    made = tmp_path / "jobs.csv"
    refused = dlsched("trace", "generate", "--jobs", "5", "--opportunistic", "1.5", "-o", made)
    assert refused.code == 2
    assert "share of opportunistic jobs must be between 0 and 1, not 1.5" in refused.err
    assert not made.exists()
