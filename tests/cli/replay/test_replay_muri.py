"""`dlsched replay --policy muri`: a trace of its simulator from file to figures."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dlsched.cli.typer_app import app
from dlsched.core.errors import BadInput
from dlsched.core.speed.overlap import iterations_beside
from dlsched.core.speed.stages import Stages

HEADER = (
    "job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,iteration_ms,"
    "data_ms,gpu_ms,network_ms,opportunistic"
)
TRACE = f"""{HEADER}
a,0,8,999,gpt2,4,1000,437,0.6,419,49,0
b,0,8,999,a2c,64,1000,555,502,14,0.4,0
"""
A, B = Stages(0.6, 419, 49), Stages(502, 14, 0.4)  # milliseconds
TOGETHER_S = 0.676662  # gpt2 and a2c, in the artifact


def called(folder: Path, *words: str) -> Any:
    (folder / "jobs.csv").write_text(TRACE)
    given = ["replay", str(folder / "jobs.csv"), "--cluster", "1x8", "--policy", "muri"]
    return CliRunner().invoke(app, [*given, *words])


def test_jobs_that_take_turns_end_together_(tmp_path: Path) -> None:
    result = called(tmp_path, "-o", "semantics=muri", "--restart-overhead", "0", "--jobs-out", "-")
    assert result.exit_code == 0, result.output
    rows = {row["job_id"]: row for row in csv.DictReader(io.StringIO(result.stdout))}
    ends = {job: float(row["finish_time"]) for job, row in rows.items()}
    assert ends["a"] == ends["b"] == pytest.approx(1000 * TOGETHER_S, rel=1e-5)


def test_what_sharing_costs_may_be_said(tmp_path: Path) -> None:
    words = ("-o", "semantics=muri", "--restart-overhead", "0", "--jobs-out", "-")
    result = called(tmp_path, *words, "--interference", "stages:1.015,2.66,1,1")
    rows = {row["job_id"]: row for row in csv.DictReader(io.StringIO(result.stdout))}
    assert float(rows["a"]["finish_time"]) == pytest.approx(2000 * TOGETHER_S, rel=1e-5)


@pytest.mark.parametrize("factors", ["", "1,2", "1,2,3,x", "1,2,3,0", "1,2,3,inf"])
def test_factors_that_make_no_sense_are_refused_in_one_line(tmp_path: Path, factors: str) -> None:
    result = called(tmp_path, "--interference", f"stages:{factors}")
    assert isinstance(result.exception, BadInput)
    assert "needs 4 numbers above 0" in str(result.exception)
    assert "\n" not in str(result.exception)


def test_where_nothing_is_known_of_groups_none_is_formed(tmp_path: Path) -> None:
    pairs = tmp_path / "colocation.csv"
    pairs.write_text("model1,gpu_num1,speed1,model2,gpu_num2,speed2\nbert,8,0.9,vgg16,8,0.9\n")
    words = ("--interference", "measured", "--profiles", str(pairs), "--jobs-out", "-")
    result = called(tmp_path, *words, "--clock", "events")
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    spans = sorted((float(row["first_start_time"]), float(row["finish_time"])) for row in rows)
    assert spans[0][1] <= spans[1][0]


def test_antman_as_muris_authors_simulate_it(tmp_path: Path) -> None:
    """Beside a, b takes ceil(502 / 468) + ceil(0.4 / 419.6) iterations of a for each of its own."""
    (tmp_path / "jobs.csv").write_text(TRACE.removesuffix("0\n") + "1\n")
    words = ["--policy", "muri-antman", "-o", "semantics=muri", "--restart-overhead", "0"]
    given = ["replay", str(tmp_path / "jobs.csv"), "--cluster", "1x8", *words]
    result = CliRunner().invoke(app, [*given, "--interference", "overlap", "--jobs-out", "-"])
    assert result.exit_code == 0, result.output
    rows = {row["job_id"]: row for row in csv.DictReader(io.StringIO(result.stdout))}
    alone = {"a": 437 * 1.015, "b": 555 * 1.015}
    assert float(rows["a"]["finish_time"]) == pytest.approx(1000 * alone["a"] / 1e3)
    assert rows["b"]["beside"] == "a"
    beside_s = 1000 * alone["a"] / 1e3
    done = beside_s / (iterations_beside(B, A) * alone["a"] / 1e3)
    assert float(rows["b"]["finish_time"]) == pytest.approx(
        beside_s + (1000 - done) * alone["b"] / 1e3
    )


def test_overlap_needs_stages(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("job_id,submit_time,num_gpus,duration\n1,0,1,60\n")
    given = ["replay", str(tmp_path / "plain.csv"), "--cluster", "1x8", "--policy", "muri-antman"]
    result = CliRunner().invoke(app, [*given, "--interference", "overlap"])
    assert isinstance(result.exception, BadInput)
    assert str(result.exception) == (
        "--interference overlap: no job of plain has data_ms, in the trace or in --profiles"
    )
