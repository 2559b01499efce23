"""`dlsched replay --interference`: from files to figures, and what bad profiles say."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dlsched.cli.typer_app import app

JOBS = """job_id,submit_time,num_gpus,duration,gpu_share,model,dataset,batch_size,amp
a,0,1,100,0.5,gpt2,web,8,0
b,0,1,100,0.5,a2c,atari,64,0
"""
WORKLOADS = """model,batchsize,gpu_util,gmem,iteration_ms,data_ms,gpu_ms,network_ms
gpt2,8,90,10240,437,0.6,419,49
a2c,64,30,5120,555,502,14,0.4
"""
HALF = "model{0},dataset{0},gpu_num{0},batchsize{0},amp{0},speed{0}"
PAIRS = f"""{HALF.format(1)},{HALF.format(2)}
a2c,atari,1,64,0,0.5,gpt2,web,1,8,0,0.8
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "workload_profiles.csv").write_text(WORKLOADS)
    (tmp_path / "colocation_speeds.csv").write_text(PAIRS)
    return tmp_path


def called(folder: Path, *words: str, cluster: str = "1x1") -> Any:
    given = ["replay", str(folder / "jobs.csv"), "--cluster", cluster, "--clock", "events"]
    return CliRunner().invoke(app, [*given, "--profiles", str(folder), *words])


def finishes(folder: Path, *words: str, **given: str) -> dict[str, float]:
    result = called(folder, *words, "--jobs-out", "-", **given)
    assert result.exit_code == 0, result.output
    rows = csv.DictReader(io.StringIO(result.stdout))
    return {row["job_id"]: float(row["finish_time"] or "nan") for row in rows}


# as long as both are there: the speed of each; then the other is alone
SPEEDS = {
    "none": (1.0, 1.0),
    "measured": (0.8, 0.5),
    "utilisation": (1 / 1.2, 1 / 1.2),
    "stages": (0.437 * 1.015 / 0.676662, 0.555 * 1.015 / 0.676662),
}


@pytest.mark.parametrize("source", SPEEDS)
def test_halves_of_a_gpu_run_as_fast_as_the_source_says(files: Path, source: str) -> None:
    a, b = SPEEDS[source]
    first = 100 / max(a, b)
    ends = {job: first + max(100 - first * speed, 0) for job, speed in (("a", a), ("b", b))}
    found = finishes(files, "--interference", source)
    assert found == pytest.approx(ends, rel=1e-5)


def test_without_a_word_pairs_are_as_measured(files: Path) -> None:
    assert finishes(files) == finishes(files, "--interference", "measured")
    result = called(files, "--summary-out", "-", "--interference", "stages")
    summary = json.loads(result.stdout)
    assert summary["options"]["interference"] == "stages"
    assert "jobs on the same GPUs are as fast as stages says" in summary["assumptions"]


def test_memory_that_cannot_fit_keeps_jobs_apart_or_out(files: Path) -> None:
    """Together they need 15 GiB; gpt2 alone needs 10."""
    assert finishes(files, cluster="1x1:v100@14") == {"a": 100, "b": 200}
    assert finishes(files, cluster="1x1:v100@16")["a"] > 100
    result = called(files, "--summary-out", "-", cluster="1x1:v100@8")
    assert json.loads(result.stdout)["refused"] == 1
    found = finishes(files, cluster="1x1:small@8+1x1:large@16")
    assert found == {"a": 100, "b": 100}, "gpt2 goes where its memory is"


@pytest.mark.parametrize(
    ("file", "old", "new", "words", "message"),
    [
        ("colocation_speeds.csv", "0.5,gpt2", "nan,gpt2", (), "speeds.csv:2: speed1 must be a num"),
        ("colocation_speeds.csv", PAIRS, PAIRS + PAIRS.splitlines()[1], (), "3: this pair stands"),
        ("workload_profiles.csv", "419", "nan", (), "profiles.csv:2: gpu_ms must be a number of"),
        ("workload_profiles.csv", "a2c,64", "gpt2,8", (), "profiles.csv:3: gpt2 8.0 stands there"),
        ("workload_profiles.csv", "gpu_ms", "gpu_us", ("stages",), "no job of jobs has gpu_ms"),
        ("workload_profiles.csv", "gpu_util", "use", ("utilisation",), "no job of jobs has gpu_ut"),
        (
            "workload_profiles.csv",
            "419",
            "419",
            ("guessed",),
            "'guessed' is not known; known: none",
        ),
        ("workload_profiles.csv", "419", "419", ("1.5",), "must be at least 0 and less than 1"),
    ],
)
def test_bad_profiles_are_one_line(
    files: Path, file: str, old: str, new: str, words: tuple[str, ...], message: str
) -> None:
    text = (files / file).read_text()
    assert old in text
    (files / file).write_text(text.replace(old, new))
    result = called(files, *(("--interference", *words) if words else ()))
    assert result.exit_code != 0, result.output
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_without_any_pair_measured_says_what_it_needs(files: Path) -> None:
    (files / "colocation_speeds.csv").unlink()
    result = called(files, "--interference", "measured")
    assert "no speeds of pairs; --profiles needs a table with co_model" in str(result.exception)


def test_jobs_that_were_not_measured_together_do_not_share(files: Path) -> None:
    (files / "jobs.csv").write_text(JOBS.replace("a2c,atari", "a2c,pong"))
    assert finishes(files) == {"a": 100, "b": 200}


LUCID = ("--policy", "lucid", "-o", "sharing=always", "-o", "profiling_nodes=0", "-o", "check_s=1")
NOT_PACKED = "note: 1 job could not be packed (first: job b): "


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("colocation_speeds.csv", ""),  # the stages of the workloads say how fast they are
        ("", ""),
        ("a pair", "how fast jobs run together is not known; --profiles with these pairs say it"),
        ("workload_profiles.csv", "what jobs use of a GPU is not known; share_score or gpu_util, "
            "and gpu_memory_gib, say it, in the trace or in --profiles"),
    ],
)  # fmt: skip
def test_jobs_that_lucid_could_not_pack_are_told(files: Path, missing: str, told: str) -> None:
    (files / "workload_profiles.csv").write_text(WORKLOADS.replace("8,90,", "8,20,"))
    if missing == "a pair":
        pairs = (files / "colocation_speeds.csv").read_text()
        (files / "colocation_speeds.csv").write_text(pairs.replace("gpt2,web", "bert,web"))
    elif missing:
        (files / missing).unlink()
    result = called(files, *LUCID)
    assert result.exit_code == 0, result.output
    notes = [line for line in result.output.splitlines() if "could not be packed" in line]
    assert notes == ([NOT_PACKED + told] if told else [])
