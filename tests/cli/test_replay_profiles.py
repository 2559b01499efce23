"""`dlsched replay --profiles`: from files to figures, and what a bad file or job says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dlsched.cli.main import app

HEADER = (
    "accelerator,scale_factor,model,batch_size,co_model,co_batch_size,steps_per_s,co_steps_per_s"
)
TABLE = f"""{HEADER}
slow,1,A,16,,,1,
quick,1,A,16,,,4,
slow,1,B,,,,1,
quick,1,B,,,,0,
slow,1,C,,,,0,
quick,1,C,,,,0,
slow,1,A,16,B,,0.9,0.9
"""
JOBS = """job_id,job_type,scale_factor,total_steps,duration_v100_s,priority_weight,arrival_time_s
a,A (batch size 16),1,400,,1,0
b,B,1,50,,1,0
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "throughputs.csv").write_text(TABLE)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def called(folder: Path, *words: str, jobs: str = "jobs.csv", profiles: str = "") -> Any:
    given = ["replay", str(folder / jobs), "--cluster", "1x1:slow+1x1:quick"]
    given += ["--profiles", str(folder / profiles) if profiles else str(folder)]
    return CliRunner().invoke(app, [*given, *words])


def summary(folder: Path, *words: str, **given: str) -> dict[str, Any]:
    result = called(folder, "--summary-out", "-", *words, **given)
    assert result.exit_code == 0, result.output
    figures: dict[str, Any] = json.loads(result.stdout)
    return figures


def test_jobs_run_as_fast_as_the_table_says(files: Path) -> None:
    for words in (["--policy", "fifo"], ["--policy", "gavel", "-o", "objective=max-min"]):
        figures = summary(files, *words)
        assert figures["completed"] == 2
        assert figures["makespan"] >= 100
    gavel = summary(files, "--policy", "gavel", profiles="throughputs.csv")
    assert gavel["makespan"] == 100
    assert gavel["avg_jct"] == 75


def test_a_folder_and_a_file_are_the_same(files: Path) -> None:
    words = ("--policy", "gavel", "-o", "semantics=gavel", "--round", "360")
    one, other = summary(files, *words), summary(files, *words, profiles="throughputs.csv")
    assert one["avg_jct"] == other["avg_jct"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("c,C,1,5,,1,0", "job c can run nowhere: C on 1 GPUs has throughput 0 on slow, quick"),
        ("c,A (batch size 32),1,5,,1,0", "job c: the profile has no throughputs of A (batch size"),
        ("c,A (batch size 16),2,5,,1,0", "job c: the profile has no throughputs on 2 GPUs"),
    ],
)
def test_a_job_that_the_table_cannot_serve_is_one_line_or_left_out(
    files: Path, row: str, message: str
) -> None:
    (files / "more.csv").write_text(JOBS + row + "\n")
    result = called(files, jobs="more.csv")
    assert result.exit_code != 0
    assert message in str(result.exception or result.output)
    figures = summary(files, "--skip-bad-rows", jobs="more.csv")
    assert figures["completed"] == 2


def test_a_folder_without_tables_is_refused(files: Path) -> None:
    (files / "empty").mkdir()
    result = called(files, profiles="empty")
    assert result.exit_code != 0
    assert "*throughputs*.csv" in str(result.exception or result.output)
