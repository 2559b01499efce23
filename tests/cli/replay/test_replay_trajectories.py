"""`--trajectories-out`: what elastic jobs had over time, as a file."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

from typer.testing import CliRunner

from dlsched.cli.typer_app import app
from dlsched.core.errors import BadInput

TRACE = """job_id,submit_time,num_gpus,model,total_iterations,min_gpus,max_gpus
long,0,1,m,2000,1,4
short,100,1,m,200,1,4
"""
PROFILE = """accelerator,scale_factor,model,steps_per_s
v100,1,m,1.0
v100,2,m,1.8
v100,4,m,3.0
"""


def test_trajectories_are_written_for_each_policy(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "profile.csv").write_text(PROFILE)
    target = tmp_path / "trajectories.csv.gz"
    words = ["replay", str(tmp_path / "jobs.csv"), "--cluster", "1x4:v100", "--policy", "afs,fifo"]
    words += ["--profiles", str(tmp_path / "profile.csv"), "--trajectories-out", str(target)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(gzip.decompress(target.read_bytes()).decode().splitlines()))
    had = [row["gpus"] for row in rows if row["policy"] == "afs" and row["job_id"] == "long"]
    assert had[0] == "4"
    assert had[-1] == "0"
    assert {row["batch_size"] for row in rows} == {""}
    assert [row["gpus"] for row in rows if row["policy"] == "fifo"] == ["1", "1", "0", "0"]


def test_a_path_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    words = ["replay", str(tmp_path / "jobs.csv"), "--cluster", "1x4:v100"]
    done = CliRunner().invoke(app, [*words, "--trajectories-out", str(tmp_path / "no" / "x.csv")])
    assert isinstance(done.exception, BadInput)
    assert str(done.exception).startswith("--trajectories-out")
