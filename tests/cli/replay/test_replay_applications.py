"""`dlsched replay --profiles` with measured applications, and files of several workloads."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dlsched.cli.typer_app import app
from dlsched.core.errors import BadInput

WORKLOADS = """set,workload,name,submit_s,application,num_replicas,batch_size
1.0,1,a,0,toy,1,16
1.0,1,b,5,toy,2,32
1.0,2,a,0,toy,1,16
"""
PROFILES = {
    "applications.csv": "application,init_batch_size,max_batch_size,min_local_bsz,max_local_bsz,"
    "max_epochs\ntoy,16,32,8,32,1\n",
    "placements.csv": "application,placement,local_bsz,step_time,sync_time\n"
    + "".join(f"toy,{shape},{m},{0.01 * m},0.001\n" for shape in (1, 2) for m in (8, 16, 32)),
    "validation.csv": "application,batch_size,epoch_index,progress,iteration,grad_sqr,grad_var\n"
    "toy,16,0,1000,1000,1,8\ntoy,32,0,1000,600,1,8\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PROFILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "workloads.csv").write_text(WORKLOADS)
    return tmp_path


def called(folder: Path, *words: str) -> Any:
    given = ["replay", str(folder / "workloads.csv"), "--profiles", str(folder)]
    given += ["--cluster", "1x4:t4", "--policy", "tiresias", "-o", "semantics=pollux"]
    return CliRunner().invoke(app, [*given, *words])


def test_one_workload_is_replayed(folder: Path) -> None:
    out = folder / "jobs.csv"
    result = called(folder, "--workload", "1.0:1", "--jobs-out", str(out), "--summary-out", "-")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["completed"] == 2
    assert summary["options"]["restart_overhead"] == 30
    assert summary["finish_time_fairness"]["max"] > 1
    with out.open() as file:
        jobs = list(csv.DictReader(file))
    assert (jobs[0]["job_id"], jobs[0]["finish_time"]) == ("a", "250")


def test_the_restart_overhead_of_the_call_takes_precedence(folder: Path) -> None:
    result = called(folder, "--workload", "1.0:2", "--restart-overhead", "0", "--summary-out", "-")
    assert json.loads(result.stdout)["avg_jct"] == 60 + 160


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "holds 2 workloads, choose one with --workload; there are 1.0:1, 1.0:2"),
        (["--workload", "2"], "holds 2 workloads, none is 2; there are 1.0:1, 1.0:2"),
        (
            ["--workload", "1.0:1", "--interference", "1"],
            "--interference must be at least 0 and less than 1, not 1",
        ),
    ],
)
def test_what_the_client_could_tell_is_refused(
    folder: Path, words: list[str], message: str
) -> None:
    result = called(folder, *words)
    assert isinstance(result.exception, BadInput)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("placements.csv", "toy,1,8,0.08", "toy,1,8,nan", "placements.csv:2: step_time"),
        ("validation.csv", "toy,16,0,1000", "toy,16,0,-1", "validation.csv:2: progress"),
        ("applications.csv", "16,32,8,32", "16,32,8,4", "applications.csv:2: toy: the smallest"),
        ("workloads.csv", "1.0,1,b,5,toy", "1.0,1,b,5,gpt", "job b: the profile has no applic"),
        ("workloads.csv", "toy,2,32", "toy,2,64", "job b: toy trains with batches of 16 to 32"),
        ("workloads.csv", "toy,2,32", "toy,0.5,32", "workloads.csv:3: num_replicas must be"),
    ],
)
def test_errors_in_the_files_are_one_line(
    folder: Path, file: str, old: str, new: str, message: str
) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    result = called(folder, "--workload", "1.0:1")
    assert isinstance(result.exception, BadInput), result.output
    assert "\n" not in str(result.exception)
    assert message in str(result.exception)


def test_a_shape_around_which_nothing_was_measured_ends_the_run(folder: Path) -> None:
    (folder / "workloads.csv").write_text(WORKLOADS.replace("toy,2,32", "toy,3,32"))
    result = called(folder, "--workload", "1.0:1")
    assert result.exit_code == 2
    assert "the profile of toy has no time of 10 samples on each of 3 GPUs as 3" in result.stderr
