from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import sys

import pytest

IN_PROCESS = ("--executor", "processes:1")


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_single_run_prints_its_trace_its_parts_and_a_row(dlsched, trace):
    called = dlsched("replay", trace, "--cluster", "1x4:v100", "--clock", "events")
    assert called.code == 0
    assert called.err == ""
    assert called.out.splitlines() == [
        "tiny (dlsched): 5 jobs over 5.00 min, offered load 0.667 on 1x4:v100 (4 GPUs)",
        "  semantics events; placement min-nodes; admission accept-all; estimate oracle; "
        "ρ shockwave-static; seed 0",
        "  assumed: a start costs nothing; jobs are as fast wherever their GPUs lie",
        "",
        "policy  Done  Refused  Left  Avg JCT (min)  Median (min)  p95 (min)  p99 (min)  "
        "Avg delay (s)  Makespan (min)  GPU util (%)  Preempt  Restarts  Lost (s)  "
        "Worst ρ  ρ > 1 (%)",
        "fifo       5        0     0           2.37          3.00       3.71       3.81  "
        "         88.0            5.17          64.6        0         0         0  "
        "   14.4       60.0",
    ]


def test_the_jobs_file_has_the_columns_of_the_contract(dlsched, trace, tmp_path):
    out = tmp_path / "jobs.csv"
    called = dlsched("replay", trace, "--cluster", "1x4", "--clock", "events", "--jobs-out", out)
    assert called.code == 0
    assert out.read_text() == (
        "job_id,user,vc,num_gpus,submit_time,first_start_time,finish_time,jct,queueing_delay,"
        "gpu_seconds,starts,preemptions,migrations,resizes,lost_seconds,status\n"
        "a,ann,red,3,0,0,100,100,0,300,1,0,0,0,0,completed\n"
        "b,bob,red,4,10,100,200,190,90,400,1,0,0,0,0,completed\n"
        "c,ann,blue,1,20,200,250.5,230.5,180,50.5,1,0,0,0,0,completed\n"
        "d,bob,blue,1,30,200,210,180,170,10,1,0,0,0,0,completed\n"
        "e,ann,red,4,300,300,310,10,0,40,1,0,0,0,0,completed\n"
    )


def test_the_summary_of_one_run_is_an_object_and_standard_output_may_take_it(dlsched, trace):
    called = dlsched("replay", trace, "--cluster", "1x4", "--summary-out", "-")
    told = json.loads(called.out)
    assert told["policy"] == "fifo"
    assert told["jobs"] == told["completed"] == 5
    assert {"semantics", "options", "avg_jct", "p99_jct", "finish_time_fairness"} <= set(told)
    assert "tiny (dlsched): 5 jobs" in called.err


def test_a_study_tags_its_jobs_and_lists_its_summaries(dlsched, trace, tmp_path):
    jobs, summary = tmp_path / "jobs.csv", tmp_path / "summary.json"
    called = dlsched(
        "replay", trace, "--cluster", "1x4", "--policy", "fifo,las", "--load", "1,2",
        "--placement", "count,min-nodes", *IN_PROCESS, "--jobs-out", jobs, "--summary-out", summary,
    )  # fmt: skip
    assert called.code == 0, called.err
    rows = rows_of(jobs)
    assert list(rows[0])[:5] == ["policy", "placement", "load", "seed", "job_id"]
    keys = [(row["policy"], row["placement"], row["load"]) for row in rows[::5]]
    assert keys[:3] == [
        ("fifo", "count", "1"),
        ("fifo", "count", "2"),
        ("fifo", "min-nodes", "1"),
    ]
    told = json.loads(summary.read_text())
    assert [entry["label"] for entry in told[:3]] == [
        "fifo/count",
        "fifo/count",
        "fifo/min-nodes",
    ]
    assert len(told) == 8
    assert "fifo/min-nodes     2" in called.out


def test_seeds_give_means_with_intervals_and_paired_differences(dlsched, trace, tmp_path):
    summary = tmp_path / "summary.json"
    called = dlsched(
        "replay", trace, "--cluster", "2x2", "--policy", "fifo,srtf", "--seed", "1,2,3",
        "--mtbf", 300, "--mttr", 60, *IN_PROCESS, "--summary-out", summary,
    )  # fmt: skip
    assert called.code == 0, called.err
    assert " ± " in called.out
    assert "difference from fifo, by seed" in called.out
    runs = json.loads(summary.read_text())
    assert [entry.get("aggregate", False) for entry in runs] == [False] * 6 + [True] * 2
    fifo, srtf = runs[-2:]
    assert fifo["seeds"] == [1, 2, 3]
    assert "differences" not in fifo
    assert srtf["difference_from"] == "fifo"
    expected = sum(runs[3 + k]["avg_jct"] - runs[k]["avg_jct"] for k in range(3)) / 3
    assert srtf["differences"]["avg_jct"]["mean"] == pytest.approx(expected)
    assert sum(entry["lost_seconds"] for entry in runs[:6]) > 0


def test_seeds_without_effect_are_reported(dlsched, trace):
    called = dlsched("replay", trace, "--cluster", "1x4", "--seed", "1,2", *IN_PROCESS)
    assert "note: the seeds change nothing: nothing in this study is random" in called.out


def test_each_trace_has_a_table_of_its_own(dlsched, trace, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(trace.read_text())
    jobs = tmp_path / "jobs.csv"
    called = dlsched("replay", trace, other, "--cluster", "1x4", *IN_PROCESS, "--jobs-out", jobs)
    assert called.code == 0, called.err
    lines = called.out.splitlines()
    assert lines.index("tiny") < lines.index("other")
    assert {row["trace"] for row in rows_of(jobs)} == {"tiny", "other"}


def test_an_option_goes_to_the_policies_that_have_it(dlsched, trace, tmp_path):
    summary = tmp_path / "summary.json"
    called = dlsched(
        "replay", trace, "--cluster", "1x4", "--policy", "fifo,tiresias", "-o", "limits=5",
        "-o", "fifo.guard_s=7", *IN_PROCESS, "--summary-out", summary,
    )  # fmt: skip
    assert called.code == 0, called.err
    fifo, tiresias = json.loads(summary.read_text())
    assert fifo["options"]["fifo.guard_s"] == "7"
    assert tiresias["options"]["tiresias.limits"] == "5"


def test_events_from_a_file_lose_work_and_say_so(dlsched, trace, tmp_path):
    events = tmp_path / "events.csv"
    events.write_text("time,event,node\n50,fail,n1\n60,join,n1\n")
    out = tmp_path / "jobs.csv"
    called = dlsched(
        "replay", trace, "--cluster", "1x4", "--clock", "events", "--events", events,
        "--checkpoint-interval", 20, "--restart-overhead", 5, "--jobs-out", out,
    )  # fmt: skip
    assert called.code == 0, called.err
    first = rows_of(out)[0]
    # two starts of 5 s each, and 45 s of progress by 50 s, of which 40 were saved
    assert (first["lost_seconds"], first["starts"], first["status"]) == ("15", "2", "completed")


def test_the_notes_of_a_trace_come_with_its_results(dlsched, tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_time,num_gpus,duration\na,0,16,10\nb,0,1,10\n")
    called = dlsched("replay", trace, "--cluster", "1x4", "--skip-bad-rows")
    assert called.code == 0
    assert "note: job a refused: asks for 16 GPUs, the cluster has 4" in called.out


def test_the_report_and_the_plots_are_written(dlsched, trace, tmp_path):
    page = tmp_path / "report.html"
    called = dlsched(
        "replay", trace, "--cluster", "1x4", "--policy", "fifo,las", *IN_PROCESS, "--report", page
    )
    assert called.code == 0, called.err
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "tiny.csv"]


def test_a_failing_run_does_not_lose_the_others(dlsched, trace, tmp_path):
    out = tmp_path / "jobs.csv"
    called = dlsched(
        "replay", trace, "--cluster", "1x4", "--policy", "fifo,testing-raising", "--load", "1,2",
        *IN_PROCESS, "--jobs-out", out,
    )  # fmt: skip
    assert called.code == 1
    assert {row["policy"] for row in rows_of(out)} == {"fifo"}
    errors = called.err.splitlines()
    assert len(errors) == 2
    assert errors[0].startswith("dlsched: testing-raising at load 1, seed 0: policy testing-rai")


def test_a_single_run_that_fails_writes_nothing(dlsched, trace, tmp_path):
    out = tmp_path / "jobs.csv"
    called = dlsched(
        "replay", trace, "--cluster", "1x4", "--policy", "testing-raising", "--jobs-out", out
    )
    assert called.code == 1
    assert called.err.startswith("dlsched: policy testing-raising failed")
    assert called.err.count("\n") == 1
    assert not out.exists()


def test_a_terminal_gets_colours_and_no_line_wider_than_itself(trace):
    main, sub = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "dlsched", "replay", str(trace), "--cluster", "1x4",
         "--policy", "fifo,las", *IN_PROCESS],
        stdout=sub, stderr=subprocess.DEVNULL, check=True,
        env={**os.environ, "COLUMNS": "70", "TERM": "xterm", "NO_COLOR": ""},
    )  # fmt: skip
    os.close(sub)
    text = b""
    try:
        while piece := os.read(main, 65536):
            text += piece
    except OSError:
        pass  # the end of a terminal
    os.close(main)
    table = text.decode().split("seed 0")[1].split("has the lowest")[0]
    assert "\x1b[1;32m" in table
    plain = table.replace("\x1b[1;32m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert max(len(line) for line in plain.splitlines()[1:-1]) <= 70
    assert "Refused" not in plain


def test_a_replay_says_what_it_takes_for_granted(dlsched, trace):
    words = ["replay", trace, "--cluster", "1x4:v100+1x4:k80", "--policy", "fifo,srtf,sia"]
    called = dlsched(*words, "--estimate", "noise", "--restart-overhead", "30")
    assert called.code == 0
    assert (
        "  assumed: a start costs 30 s; jobs are as fast on v100 as on k80 (no --profiles); jobs "
        "are as fast wherever their GPUs lie; durations are believed as noise has them (srtf)\n"
    ) in called.out
    assert "note: sia: all GPU types are taken for alike: no --profiles say" in called.out
    called = dlsched(*words[:3], "1x4:v100", "--policy", "sia", "--launch", "elan")
    assert "  assumed: a start costs what elan says, and else nothing; " in called.out
    assert "taken for alike" not in called.out


def test_a_replay_of_jobs_with_classes_says_that_their_limits_do_not_hold(dlsched, tmp_path):
    path = tmp_path / "classes.csv"
    path.write_text("job_id,submit_time,num_gpus,duration,class\n1,0,1,60,urgent\n2,0,1,60,\n")
    called = dlsched("replay", path, "--cluster", "1x1:v100", "--policy", "fifo")
    assert called.code == 0
    assert "; no limit of a priority class holds; " in called.out
