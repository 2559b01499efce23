from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dlsched.cli.trace import trace_app
from dlsched.core.errors import BadInput

LOG = (
    "row,submit_time,user,num_gpus,num_cpus,num_nodes,duration_s,status\n"
    "0,2020-05-28 00:00:00,1,0,1,1,84,Pass\n"
    "1,2020-05-28 00:01:00,7,8,16,1,87,Killed\n"
    "2,2020-05-28 00:02:31,1,1,1,1,83,Failed\n"
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def run(*arguments):
    return CliRunner().invoke(trace_app, [str(each) for each in arguments])


def test_import_writes_the_native_form_and_says_what_was_dropped(log, tmp_path):
    result = run("import", log, "-o", tmp_path / "native.csv")
    assert result.exit_code == 0, result.output
    assert result.output == (
        f"{tmp_path / 'native.csv'}: 2 jobs of {log} (venus)\ndropped 1: 1 x CPU job\n"
    )
    assert (tmp_path / "native.csv").read_text() == (
        "job_id,submit_time,num_gpus,duration,user,status,num_nodes,num_cpus\n"
        "1,0,8,87,7,cancelled,1,16\n"
        "2,91,1,83,1,failed,1,1\n"
    )


def test_import_takes_the_readers_options(log, tmp_path):
    out = tmp_path / "native.csv"
    result = run(
        *("import", log, "-o", out, "--format", "venus", "--keep-cpu-jobs"),
        *("--status", "completed,failed", "--min-duration", 84),
    )
    assert result.exit_code == 0, result.output
    assert [line.split(",")[0] for line in out.read_text().splitlines()[1:]] == ["0"]


def test_show_prints_a_table(log):
    result = run("show", log, "--cluster", "2x8:v100")
    assert result.exit_code == 0, result.output
    for part in (
        "log (venus)",
        "jobs        2",
        "of 16 GPUs",
        "cancelled",
        "dropped 1: 1 x CPU job",
    ):
        assert part in result.output


def test_show_json_is_one_object_with_its_schema(log):
    result = run("show", log, "--json")
    told = json.loads(result.output)
    assert told["schema"] == "dlsched.trace/1"
    assert told["jobs"] == 2
    assert told["dropped"] == {"CPU job": 1}


def test_generate_reaches_the_load_and_reads_back(tmp_path):
    out = tmp_path / "made.csv.gz"
    result = run(
        *("generate", "--profile", "venus", "--jobs", 500, "--seed", 7),
        *("--cluster", "4x8:v100", "--load", 0.8, "-o", out),
    )
    assert result.exit_code == 0, result.output
    assert "500 jobs like venus, seed 7, offered load 0.800 on 32 GPUs" in result.output
    assert "larger than the cluster's 32 GPUs" in result.output
    assert json.loads(run("show", out, "--json").output)["jobs"] == 500


def test_a_cluster_file_counts_its_gpus(log, tmp_path):
    cluster = tmp_path / "cluster.toml"
    cluster.write_text("[[nodes]]\ncount = 3\ngpus = 4\n")
    assert "of 12 GPUs" in run("show", log, "--cluster", cluster).output
    cluster.write_text("[[nodes")
    assert "not TOML" in str(run("show", log, "--cluster", cluster).exception)
    missing = run("show", log, "--cluster", tmp_path / "none.toml").exception
    assert "can't be read" in str(missing)


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nowhere.csv"),
        ("show", "{log}", "--format", "gavel"),
        ("show", "{log}", "--status", "done"),
        ("import", "{log}", "-o", "out.xlsx"),
        ("generate", "-o", "out.csv", "--load", "0.5"),
        ("generate", "-o", "out.csv", "--cluster", "many"),
    ],
)
def test_wrong_input_is_an_error_of_one_line(log, arguments):
    error = run(*(each.format(log=log) for each in arguments)).exception
    assert isinstance(error, BadInput)
    assert "\n" not in str(error)


def test_trace_commands_import_numpy_only_when_they_run():
    code = "import sys, dlsched.cli.trace; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
