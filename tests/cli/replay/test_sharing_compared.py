"""The comparison of docs/policies/sharing.md, smaller: one trace, one command, one page."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dlsched.cli.main import app

WORKLOADS = Path(__file__).parents[3] / "examples" / "workloads.csv"
CLUSTER = "2x4:v100@32"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    made = tmp_path / "jobs.csv"
    words = ["--jobs", "30", "--seed", "3", "--cluster", CLUSTER, "--load", "2"]
    given = ["trace", "generate", "-o", str(made), *words, "--workloads", str(WORKLOADS)]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    return made


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
