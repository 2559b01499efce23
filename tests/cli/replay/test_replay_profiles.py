"""`dlsched replay --profiles`: from files to figures, and what a bad file or job says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dlsched.cli.typer_app import app
from dlsched.core.errors import DlschedError

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
        ("c,C,1,5,,1,0", "job c can run nowhere: C on 1 GPU has throughput 0 on slow, quick"),
        ("c,A (batch size 32),1,5,,1,0", "job c: the profile has no throughputs of A (batch size"),
        ("c,A (batch size 16),2,5,,1,0", "job c: the profile has no throughputs on 2 GPUs"),
    ],
)
def test_a_job_missing_in_the_table_is_an_error_or_left_out(
    files: Path, row: str, message: str
) -> None:
    (files / "more.csv").write_text(JOBS + row + "\n")
    result = called(files, jobs="more.csv")
    assert result.exit_code != 0
    assert message in str(result.exception or result.output)
    figures = summary(files, "--skip-bad-rows", jobs="more.csv")
    assert figures["completed"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["objective=cost", "prices=slow:0,quick:1"], "prices: 'slow:0': the number must be more"),
        (["objective=cost", "prices=slow:nan,quick:1"], "prices: 'slow:nan': the number must be"),
        (["objective=cost", "prices=slow:1"], "cost needs the price of quick"),
        (["objective=hierarchical", "entity_weights=a:-1"], "'a:-1': the number must be 0 or more"),
        (["objective=makespan-agnostic"], "uses the speeds on v100 only, but the cluster has"),
        (["objective=isolated-plus"], "is for replays only, and needs -o semantics=shockwave"),
    ],
)
def test_options_that_cannot_be_are_the_clients_fault(
    files: Path, words: list[str], message: str
) -> None:
    given = [word for option in words for word in ("-o", option)]
    result = called(files, "--policy", "gavel", *given)
    error = result.exception
    assert (error.exit_code if isinstance(error, DlschedError) else result.exit_code) == 2
    assert message in " ".join(f"{error} {result.output}".split())


@pytest.mark.parametrize("semantics", ["rounds", "gavel"])
@pytest.mark.parametrize("weights", [(0, 1), (0, 0)])
def test_a_weight_of_nothing_is_entitled_to_nothing_and_runs_on_what_is_idle(
    files: Path, weights: tuple[int, int], semantics: str
) -> None:
    rows = [f"{name},A (batch size 16),1,400,,{w},0" for name, w in zip("ab", weights, strict=True)]
    (files / "light.csv").write_text("\n".join([JOBS.splitlines()[0], *rows, ""]))
    words = ("--policy", "gavel", "-o", f"semantics={semantics}")
    assert summary(files, *words, jobs="light.csv")["completed"] == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("c,0,1,B,0,1", "job c has 0 total_iterations; it must have more than 0"),
        ("c,0,1,B,-5,1", "job c has -5 total_iterations; it must have more than 0"),
        ("c,0,1,B,5,-1", "job c has weight -1; a weight is 0 or more"),
        ("c,0,1,B,5,nan", "own.csv:3: weight is 'nan', not a number"),
        ("c,0,1,,5,1", "job c has no model; a profile needs it"),
    ],
)
def test_an_impossible_row_is_named(files: Path, row: str, message: str) -> None:
    header = "job_id,submit_time,num_gpus,model,total_iterations,weight"
    (files / "own.csv").write_text(f"{header}\na,0,1,B,10,1\n{row}\n")
    result = called(files, "--policy", "gavel", jobs="own.csv")
    assert message in str(result.exception)


def test_a_type_of_the_cluster_that_the_profile_does_not_know_is_named(files: Path) -> None:
    result = called(files, "--cluster", "1x1:slow+1x1:h100")
    assert "the cluster has GPUs of type h100, the profile knows quick, slow" in str(
        result.exception
    )
    figures = summary(files, "--cluster", "1x1:slow")  # the reverse is no fault
    assert figures["completed"] == 2


def test_a_folder_without_tables_is_refused(files: Path) -> None:
    (files / "empty").mkdir()
    result = called(files, profiles="empty")
    assert result.exit_code != 0
    assert "*throughputs*.csv" in str(result.exception or result.output)
