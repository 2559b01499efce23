"""Deadlines from the command line: generated, replayed, and in every output."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest


def test_the_command_line_makes_a_trace_with_deadlines_and_compares_policies(
    dlsched: Any, tmp_path: Path
) -> None:
    trace = tmp_path / "jobs.csv"
    flags = ("--jobs", "60", "--cluster", "2x8", "--load", "1", "--deadlines", "0.5")
    assert dlsched("trace", "generate", *flags, "-o", trace).code == 0
    jobs, figures, page = (tmp_path / name for name in ("out.csv", "out.json", "out.html"))
    files = ("--jobs-out", jobs, "--summary-out", figures, "--report", page)
    shown = dlsched(
        "replay", trace, "--cluster", "2x8", "--policy", "edf,fifo", "--load", "0.5,1", *files
    )
    assert shown.code == 0, shown.out
    assert "Met (%)" in shown.out + shown.err
    assert "deadlines only count in the figures" in shown.out + shown.err
    told = json.loads(figures.read_text())
    with jobs.open() as file:
        rows = [row for row in csv.DictReader(file) if row["deadline"]]
    assert sum(run["deadlines"]["met"] for run in told) == sum(
        float(row["late"]) <= 0 for row in rows
    )
    assert "Deadlines met" in page.read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--deadlines", "1.5"), "share of jobs with deadlines must be between 0 and 1"),
        (("--deadlines", "1", "--slack", "3:2"), "slack must be LOW:HIGH"),
        (("--deadlines", "1", "--slack", "x"), "--slack must be LOW:HIGH"),
    ],
)
def test_bad_deadlines_are_refused(
    dlsched: Any, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    target = tmp_path / "jobs.csv"
    refused = dlsched("trace", "generate", "--jobs", "5", *flags, "-o", target)
    assert refused.code == 2
    assert message in refused.err
    assert not target.exists()


@pytest.mark.slow
def test_elastic_jobs_are_generated_with_their_speeds_and_karuna_uses_both(
    dlsched: Any, tmp_path: Path
) -> None:
    trace, plain, speeds = (tmp_path / name for name in ("jobs.csv", "plain.csv", "speeds.csv"))
    flags = ("--jobs", "80", "--cluster", "2x8:v100", "--load", "1", "--deadlines", "0.6")
    assert dlsched("trace", "generate", *flags, "-o", plain).code == 0
    assert dlsched("trace", "generate", *flags, "--elastic", speeds, "-o", trace).code == 0
    told = {}
    for path, name in ((trace, "elastic"), (plain, "rigid")):
        figures = tmp_path / f"{name}.json"
        more = ("--profiles", speeds) if path == trace else ()
        call = ("replay", path, "--cluster", "2x8:v100", "--policy", "karuna", *more)
        shown = dlsched(*call, "--restart-overhead", "30", "--summary-out", figures)
        assert shown.code == 0, shown.err
        told[name] = json.loads(figures.read_text())
    assert told["elastic"]["jobs"] == told["rigid"]["jobs"] == 80
    assert told["elastic"]["resizes"] > 0 == told["rigid"]["resizes"]
    assert told["elastic"]["avg_jct"] < told["rigid"]["avg_jct"]
    refused = dlsched("trace", "generate", "--jobs", "5", "--elastic", speeds, "-o", trace)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--elastic needs --cluster" in refused.err
