from __future__ import annotations

import json

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions


def attempt(start, end, *gpus_by_machine):
    detail = [
        {"ip": f"m{number}", "gpus": [f"gpu{gpu}" for gpu in range(gpus)]}
        for number, gpus in enumerate(gpus_by_machine)
    ]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(name, submitted, *attempts, status="Pass"):
    return {
        "status": status,
        "vc": "vcA",
        "jobid": name,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "u1",
    }


RETRIED = job(
    "retried",
    "2017-10-07 01:00:00",
    attempt("2017-10-07 01:00:30", "2017-10-07 01:01:00", 4, 4),
    attempt("2017-10-07 01:10:00", "2017-10-07 01:20:00", 8),
)
UNSIZED = job("unsized", "2017-10-07 02:00:00", status="Killed")
LOST_START = job("lost", "2017-10-07 02:00:00", attempt("None", "2017-10-07 03:00:00", 1))
STILL_RUNNING = job("running", "2017-10-07 02:00:00", attempt("2017-10-07 02:30:00", None, 2))


def log(*jobs):
    return json.dumps(list(jobs), indent=4)


def test_gang_of_the_first_attempt_run_time_over_all_service_by_attempt(trace_file):
    trace = open_trace(trace_file(log(RETRIED), "cluster_job_log"))
    assert trace.source == "philly"
    assert trace.num_gpus.tolist() == [8]
    assert trace.duration.tolist() == [1170]
    assert trace.columns["num_nodes"].tolist() == [2]
    assert trace.columns["attempts"].tolist() == [2]
    assert trace.columns["attempt_durations"].tolist() == ["30+600"]
    assert trace.columns["service_time"].tolist() == [630]
    assert trace.columns["gpu_seconds"].tolist() == [630 * 8]
    assert trace.columns["start_time"].tolist() == [30]
    assert trace.zone == "America/Los_Angeles"
    assert trace.epoch == 1_507_363_200.0  # 2017-10-07 08:00 UTC: summer time


def test_what_the_log_lost_is_dropped_or_kept_as_unknown(trace_file, everything):
    path = trace_file(log(UNSIZED, RETRIED, LOST_START, STILL_RUNNING), "cluster_job_log")
    trace = open_trace(path)
    assert trace.job_id.tolist() == ["retried"]
    assert trace.dropped == {"GPU count unknown": 1, "duration unknown": 2}

    trace = open_trace(path, options=everything)
    assert trace.job_id.tolist() == ["retried", "unsized", "lost", "running"]
    np.testing.assert_array_equal(trace.num_gpus, [8, np.nan, 1, 2])
    np.testing.assert_array_equal(trace.duration, [1170, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(trace.columns["gpu_seconds"], [5040, 0, np.nan, np.nan])
    assert [bool(note) for note in trace.columns["note"]] == [False, True, True, True]


def test_the_night_the_clock_was_set_back_is_an_hour_short_and_said_so(trace_file):
    through = job(
        "through",
        "2017-11-05 00:00:00",
        attempt("2017-11-05 00:30:00", "2017-11-05 03:30:00", 1),
    )
    trace = open_trace(trace_file(log(through), "cluster_job_log"))
    assert trace.duration.tolist() == [10_800]
    assert any("2017-11-05" in note for note in trace.notes)
    assert open_trace(trace_file(log(RETRIED), "other_log")).notes == ()


def test_an_object_that_is_no_job_is_refused_by_its_line(trace_file):
    path = trace_file(log(RETRIED, {"status": "Pass"}), "cluster_job_log")
    line = log(RETRIED).count("\n") + 1
    with pytest.raises(BadInput, match=rf":{line}: not a job"):
        open_trace(path)
    trace = open_trace(path, options=ReadOptions(skip_bad_rows=True))
    assert trace.dropped == {"not a job": 1}


@pytest.mark.parametrize("damage", ["[1, 2", "[{]", '[{"status": "Pass"} {"a": 1}]', "["])
def test_broken_json_is_refused_even_when_bad_rows_are_skipped(trace_file, damage):
    path = trace_file(damage, "cluster_job_log")
    with pytest.raises(BadInput, match="not JSON"):
        open_trace(path, options=ReadOptions(skip_bad_rows=True))


def test_a_malformed_time_or_status_is_refused_by_its_job(trace_file):
    wrong = job("wrong", "yesterday", attempt("2017-10-07 01:00:30", "2017-10-07 01:01:00", 1))
    with pytest.raises(BadInput, match="submitted_time is 'yesterday'"):
        open_trace(trace_file(log(wrong), "cluster_job_log"))
    with pytest.raises(BadInput, match="status is 'Lost'"):
        open_trace(trace_file(log(RETRIED | {"status": "Lost"}), "cluster_job_log"))


def test_philly_passed_says_what_is_missing(trace_file):
    trace = open_trace(
        trace_file(
            "submit_time,duration_s,num_gpus,vc\n"
            "2017-12-04 10:00:00,100,8,aa\n2017-12-04 09:00:00,200,1,bb\n"
        )
    )
    assert trace.job_id.tolist() == ["1", "0"]
    assert trace.submit_time.tolist() == [0, 3600]
    assert trace.status.tolist() == ["completed", "completed"]
    assert trace.epoch == 1_512_406_800.0  # 17:00 UTC: winter time
    assert any("only status Pass" in note for note in trace.notes)


def test_rows_of_an_attempts_table_with_one_submit_user_and_size_are_one_job(trace_file):
    trace = open_trace(
        trace_file(
            "row,submit_time,user,num_gpus,num_nodes,duration_s,status\n"
            "0,2017-08-07 10:00:00,1,2,1,40,Failed\n"
            "1,2017-08-07 10:00:00,2,2,1,50,Pass\n"
            "2,2017-08-07 10:00:00,1,2,1,60,Failed\n"
        )
    )
    assert trace.source == "philly"
    assert trace.job_id.tolist() == ["0", "1"]
    assert trace.duration.tolist() == [100, 50]
    assert trace.columns["attempts"].tolist() == [2, 1]
    assert trace.columns["attempt_durations"].tolist() == ["40+60", "50"]
