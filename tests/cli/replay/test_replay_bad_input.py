"""Whatever is wrong: one line on stderr, exit 2, and nothing left behind."""

from __future__ import annotations

import os

import pytest

CASES = [
    ([], "--cluster is missing: describe the cluster, for example --cluster 16x8:v100"),
    (["--cluster", "4x"], "'4x' does not read COUNTxGPUS[:TYPE]"),
    (["--cluster", "1x4", "--policy", "nope"], "policy 'nope' is not known; known: fifo,"),
    (["--cluster", "1x4", "--placement", "x"], "placement 'x' is not known"),
    (["--cluster", "1x4", "--admission", "x"], "admission 'x' is not known"),
    (["--cluster", "1x4", "--fairness", "x"], "fairness 'x' is not known"),
    (["--cluster", "1x4", "--estimate", "noise:x"], "noise.sigma must be a number, not 'x'"),
    (["--cluster", "1x4", "--estimate", "user"], "needs the column time_limit"),
    (["--cluster", "1x4", "--round", "0"], "--round must be a positive number of seconds, not 0"),
    (["--cluster", "1x4", "--round", "x"], "invalid value for '--round'"),
    (["--cluster", "1x4", "--clock", "events", "--round", "9"], "has no rounds"),
    (["--cluster", "1x4", "--clock", "x"], "--clock must be rounds or events, not 'x'"),
    (["--cluster", "1x4", "-o", "semantics=x"], "semantics 'x' is not known; known: "),
    (["--cluster", "1x4", "-o", "x=1"], "-o x: neither fifo nor another part of this call has it"),
    (["--cluster", "1x4", "-o", "x"], "-o 'x' does not read KEY=VALUE"),
    (["--cluster", "1x4", "-o", "las.guard_s=1"], "'las' names no part of this call"),
    (["--cluster", "1x4", "-o", "guard_s=-1"], "option fifo.guard_s must be at least 0, not -1"),
    (["--cluster", "1x4", "--load", "1,-1"], "--load must be a positive number, not '-1'"),
    (["--cluster", "1x4", "--seed", "x"], "--seed must be a whole number of at least 0"),
    (["--cluster", "1x4", "--mttr", "5"], "--mttr needs --mtbf"),
    (["--cluster", "1x4", "--mtbf", "0"], "--mtbf must be a number of seconds of at least 1"),
    (["--cluster", "1x4", "--track", "z:y"], "--track: job z is not in tiny"),
    (["--cluster", "1x4", "--events", "none.csv"], "none.csv: no such file"),
    (["--cluster", "1x4", "--executor", "threads"], "--executor 'threads' is not known"),
    (["--cluster", "1x4", "--executor", "dask://x"], "give the scheduler as dask://HOST:PORT"),
    (["--cluster", "1x4", "--format", "x"], "trace format 'x' is not known; known: auto, "),
    (["--cluster", "1x4", "--profiles", "x"], "x: no such file"),
    (["--cluster", "1x4", "--plots", "none/x"], "--plots none/x: the folder"),
    (["--cluster", "1x4", "--resume", "none/x"], "--resume none/x: the folder"),
    (["--cluster", "1x4", "--summary-out", "none/x.json"], "none does not exist"),
    (["--courses-out", "x.csv"], "--courses-out is now called --trajectories-out"),
    (["--cluster", "1x4", "--report", "."], "--report .: a folder; name a file"),
    (["--cluster", "1x4", "--jobs-out", "tiny.csv"], "--jobs-out tiny.csv is also the trace"),
    (
        ["--cluster", "1x4", "--jobs-out", "-", "--summary-out", "-"],
        "cannot share standard output",
    ),
    (["--cluster", "1x3"], "tiny.csv:3: job b asks for 4 GPUs, the cluster has 3; so does another"),
]


@pytest.mark.parametrize(("words", "message"), CASES, ids=[case[1][:40] for case in CASES])
def test_a_wrong_word_is_one_line_and_exit_2(dlsched, trace, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    wanted = ["--jobs-out", "jobs.csv", "--summary-out", "sum.json"]
    called = dlsched("replay", trace.name, *wanted, *words)
    assert called.code == 2
    assert called.out == ""
    assert called.err.startswith("dlsched: ")
    assert called.err.count("\n") == 1
    assert message in called.err
    assert os.listdir(tmp_path) == ["tiny.csv"]


BROKEN = {
    "empty": ("", "the file is empty"),
    "no header": ("1,2,3,4\n", "not the header of a known trace format"),
    "negative": ("job_id,submit_time,num_gpus,duration\na,0,-1,5\n", "trace.csv:2: "),
    "twice": ("job_id,submit_time,num_gpus,duration\na,0,1,5\na,1,1,5\n", "trace.csv:3: "),
    "no jobs": ("job_id,submit_time,num_gpus,duration\n", "trace.csv: "),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_trace_is_one_line_and_exit_2(dlsched, tmp_path, broken):
    text, message = BROKEN[broken]
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    called = dlsched("replay", trace, "--cluster", "1x4", "--jobs-out", tmp_path / "jobs.csv")
    assert called.code == 2
    assert called.err.count("\n") == 1
    assert message in called.err
    assert os.listdir(tmp_path) == ["trace.csv"]


def test_a_gang_larger_than_its_virtual_cluster_is_found(dlsched, trace, tmp_path):
    cluster = tmp_path / "c.toml"
    cluster.write_text(
        '[[nodes]]\ncount = 2\ngpus = 4\n[[vcs]]\nname = "red"\ngpus = 3\n'
        '[[vcs]]\nname = "blue"\ngpus = 5\n'
    )
    called = dlsched("replay", trace, "--cluster", cluster)
    assert called.code == 2
    assert "tiny.csv:3: job b asks for 4 GPUs, vc red has 3" in called.err
    called = dlsched("replay", trace, "--cluster", cluster, "--skip-bad-rows")
    assert called.code == 0
    assert called.err == ""


def test_a_gpu_type_that_the_cluster_lacks_is_found(dlsched, tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("job_id,submit_time,num_gpus,duration,gpu_type\nx,0,1,5,v100\ny,1,1,5,h9\n")
    called = dlsched("replay", trace, "--cluster", "1x4:v100+1x4:k80")
    assert called.code == 2
    assert "t.csv:3: job y wants GPU type h9, the cluster has v100, k80" in called.err


def test_debugging_shows_where_an_error_came_from(dlsched, trace, monkeypatch):
    monkeypatch.setenv("DLSCHED_DEBUG", "1")
    monkeypatch.setattr("sys.argv", ["dlsched", "replay", str(trace), "--cluster", "x"])
    from dlsched.cli.main import run  # noqa: PLC0415
    from dlsched.core.errors import BadInput  # noqa: PLC0415

    with pytest.raises(BadInput):
        run()
