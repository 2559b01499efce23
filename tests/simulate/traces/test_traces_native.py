from __future__ import annotations

import math
import re

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions

HEADER = "job_id,submit_time,num_gpus,duration\n"
SKIP = ReadOptions(skip_bad_rows=True)


def test_times_stay_as_they_are_and_rows_are_sorted_by_submit_ties_in_file_order(trace_file):
    trace = open_trace(trace_file(HEADER + "b,20,1,5\na,10,2,6.5\nd,10,0.25,7\nc,10,4,8\n"))
    assert trace.source == "dlsched"
    assert trace.name == "trace"
    assert trace.job_id.tolist() == ["a", "d", "c", "b"]
    assert trace.submit_time.tolist() == [10, 10, 10, 20]
    assert trace.num_gpus.tolist() == [2, 0.25, 4, 1]
    assert trace.duration.tolist() == [6.5, 7, 8, 5]
    assert trace.epoch is None
    assert trace.dropped == {}


def test_optional_and_further_columns_are_kept(trace_file):
    trace = open_trace(
        trace_file(
            "job_id,submit_time,num_gpus,duration,user,vc,model,priority,deadline,ratio,phase\n"
            "1,0,1,10,alice,nlp,3090,2,,0.5,x1\n"
            "2,5,1,10,,,bert,,99,,\n"
        )
    )
    assert trace.user.tolist() == ["alice", ""]
    assert trace.vc.tolist() == ["nlp", ""]
    assert trace.columns["model"].tolist() == ["3090", "bert"]
    assert trace.columns["phase"].tolist() == ["x1", ""]
    for name, wanted in {
        "priority": [2, np.nan],
        "deadline": [np.nan, 99],
        "ratio": [0.5, np.nan],
    }.items():
        np.testing.assert_array_equal(trace.columns[name], wanted)


def test_an_account_stands_in_for_a_missing_vc(trace_file):
    trace = open_trace(trace_file("job_id,submit_time,num_gpus,duration,account\n1,0,1,1,nlp\n"))
    assert trace.vc.tolist() == ["nlp"]


def test_iterations_may_stand_in_for_the_duration(trace_file):
    trace = open_trace(
        trace_file("job_id,submit_time,num_gpus,total_iterations,model\n1,0,1,500,bert\n")
    )
    assert np.isnan(trace.duration).all()
    assert trace.columns["total_iterations"].tolist() == [500]


def test_a_native_trace_loses_no_short_or_unfinished_jobs(trace_file):
    trace = open_trace(
        trace_file(
            "job_id,submit_time,num_gpus,duration,status\n1,0,1,0.2,unfinished\n2,0,1,0,Pass\n"
        )
    )
    assert trace.status.tolist() == ["unfinished", "completed"]


def test_limits_apply_to_a_native_trace_when_asked_for(trace_file):
    path = trace_file(
        "job_id,submit_time,num_gpus,duration,status\n1,0,1,9,completed\n2,0,1,90,failed\n"
        "3,0,1,90,completed\n4,0,1,90,\n"
    )
    trace = open_trace(path, options=ReadOptions(min_duration=10, status=("completed",)))
    assert trace.job_id.tolist() == ["3", "4"]
    assert trace.dropped == {"shorter than 10 s": 1, "status failed": 1}


BAD = [
    ("7,x,1,1", "submit_time is 'x', not a number", "submit_time is not a number"),
    ("7,,1,1", "submit_time is empty", "submit_time is empty"),
    ("7,-1,1,1", "submit_time is -1, below 0", "submit_time is negative"),
    ("7,1,0,1", "num_gpus is 0; a job needs more than 0", "num_gpus is not positive"),
    ("7,1,-2,1", "num_gpus is -2; a job needs more than 0", "num_gpus is not positive"),
    ("7,1,,1", "num_gpus is empty", "num_gpus is empty"),
    ("7,1,1,", "duration is empty", "duration is empty"),
    ("7,1,1,-5", "duration is -5, below 0", "duration is negative"),
    ("7,1,1,1e300", "duration is 1e+300, above 1e+15", "duration is too large"),
    ("7,1,1,nan", "duration is 'nan', not a number", "duration is not a number"),
    ("7,1,1,inf", "duration is 'inf', not a number", "duration is not a number"),
    ("7,1,1,1_000", "duration is '1_000', not a number", "duration is not a number"),
    (",1,1,1", "job_id is empty", "job_id is empty"),
    ("7,1,1", "3 fields where the header has 4", "wrong number of fields"),
    ("7,1,1,1,1", "5 fields where the header has 4", "wrong number of fields"),
    ("1,1,1,1", "job_id '1' is there twice, first in line 2", "job_id is there twice"),
]


@pytest.mark.parametrize(("row", "message", "reason"), BAD, ids=[row for row, _, _ in BAD])
class TestBadRow:
    def test_is_refused_by_file_and_line(self, trace_file, row, message, reason):
        path = trace_file(f"{HEADER}1,0,1,1\n{row}\n3,5,1,1\n")
        with pytest.raises(BadInput) as caught:
            open_trace(path)
        assert str(caught.value).startswith(f"{path}:3: {message}")
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 2

    def test_is_counted_when_bad_rows_are_skipped(self, trace_file, row, message, reason):
        trace = open_trace(trace_file(f"{HEADER}1,0,1,1\n{row}\n3,5,1,1\n"), options=SKIP)
        assert trace.job_id.tolist() == ["1", "3"]
        assert trace.dropped == {reason: 1}


def test_what_starts_take_is_a_time(trace_file):
    header = "job_id,submit_time,num_gpus,duration,restart_overhead\n"
    trace = open_trace(trace_file(f"{header}1,0,1,9,2.5\n2,0,1,9,\n"))
    assert trace.columns["restart_overhead"].tolist() == [2.5, pytest.approx(math.nan, nan_ok=True)]
    for given, message in (
        ("-1", "restart_overhead is -1, below 0"),
        ("1e300", "restart_overhead is 1e+300, above 1e+15"),
        ("soon", "restart_overhead is 'soon', not a number"),
    ):
        with pytest.raises(BadInput, match=rf":2: {re.escape(message)}"):
            open_trace(trace_file(f"{header}1,0,1,9,{given}\n"))


def test_a_part_of_a_gpu_is_above_0_and_at_most_1(trace_file):
    header = "job_id,submit_time,num_gpus,duration,gpu_share\n"
    trace = open_trace(trace_file(f"{header}1,0,1,9,0.5\n2,0,1,9,\n3,0,1,9,1\n"))
    nothing = pytest.approx(math.nan, nan_ok=True)
    assert trace.columns["gpu_share"].tolist() == [0.5, nothing, 1.0]
    for given in ("0", "-0.5", "1.5"):
        message = f"gpu_share is {given}, not above 0 and at most 1"
        with pytest.raises(BadInput, match=rf":2: {re.escape(message)}"):
            open_trace(trace_file(f"{header}1,0,1,9,{given}\n"))


def test_an_unknown_status_is_refused(trace_file):
    path = trace_file("job_id,submit_time,num_gpus,duration,status\n1,0,1,1,exploded\n")
    with pytest.raises(BadInput, match="2: status is 'exploded', none of completed"):
        open_trace(path)


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("deadline", "-5", "deadline is -5; it must be after the submit (more than 0 s)"),
        ("deadline_kind", "hard", "deadline_kind is 'hard', none of strict, soft, best-effort"),
        ("deadline_kind", "soft", "deadline_kind is soft, and the job has no deadline"),
        ("deadline_kind,sla", 'strict,"asap:5,60"', "deadline_kind is strict, and the job has no"),
        ("deadline_steps", "5:1 4:1", "deadline_steps is '5:1 4:1', not TIME:VALUE"),
        ("sla", "5:1 4:1", "sla is '5:1 4:1', no function of time: 4 s comes after 5 s"),
    ],
)
def test_a_deadline_that_makes_no_sense_is_refused_by_line(trace_file, column, cell, message):
    empty = "," * column.count(",")
    header = f"job_id,submit_time,num_gpus,duration,{column}"
    path = trace_file(f"{header}\n1,0,1,1,{empty}\n2,0,1,1,{cell}\n")
    with pytest.raises(BadInput) as caught:
        open_trace(path)
    assert str(caught.value).startswith(f"{path}:3: {message}")


def test_a_kind_needs_a_deadline_or_a_curve_with_one_unless_it_is_best_effort(trace_file):
    header = "job_id,submit_time,num_gpus,duration,deadline,deadline_kind,sla\n"
    rows = [
        "9,strict,",
        "9,soft,",
        ',soft,"step:5,1"',
        ",best-effort,",
        "9,best-effort,",
        "9,,",
        ",,",
    ]
    lines = "".join(f"{place},0,1,1,{row}\n" for place, row in enumerate(rows))
    assert len(open_trace(trace_file(header + lines))) == len(rows)
    trace = open_trace(trace_file(f"{header}1,0,1,1,,soft,\n2,0,1,1,9,soft,\n"), options=SKIP)
    assert trace.dropped == {"deadline_kind without a deadline": 1}


def test_reasons_come_in_file_order_and_a_row_counts_once(trace_file):
    trace = open_trace(
        trace_file(f"{HEADER}1,0,1\n2,x,y,z\n3,0,0,1\n4,0,1\n5,0,1,1\n"), options=SKIP
    )
    assert list(trace.dropped.items()) == [
        ("wrong number of fields", 2),
        ("submit_time is not a number", 1),
        ("num_gpus is not positive", 1),
    ]


def test_cpu_jobs_and_gaps_can_be_kept(trace_file, everything):
    trace = open_trace(trace_file(HEADER + "1,0,0,5\n2,1,,\n"), options=everything)
    assert trace.num_gpus[0] == 0
    assert np.isnan(trace.num_gpus[1])
    assert np.isnan(trace.duration[1])


def test_a_missing_duration_column_is_refused(trace_file):
    path = trace_file("job_id,submit_time,num_gpus\n1,0,1\n")
    with pytest.raises(BadInput, match="no column duration"):
        open_trace(path, "dlsched")


def test_a_column_that_is_there_twice_is_refused(trace_file):
    path = trace_file("job_id,submit_time,num_gpus,duration,user,user\n1,0,1,1,a,b\n")
    with pytest.raises(BadInput, match=r":1: column user is there twice"):
        open_trace(path)


def test_a_trace_without_jobs_is_refused(trace_file):
    with pytest.raises(BadInput, match="no job to use"):
        open_trace(trace_file(HEADER))


def test_many_rows_are_read_over_block_borders(trace_file):
    count = 5_000
    rows = "".join(f"{job},{job},1,{job + 0.5}\n" for job in range(count))
    trace = open_trace(trace_file(HEADER + rows))
    assert np.array_equal(trace.submit_time, np.arange(count))
    assert np.array_equal(trace.duration, np.arange(count) + 0.5)
    assert trace.job_id[-1] == str(count - 1)


def test_a_bad_row_far_down_has_its_line(trace_file):
    rows = [f"{job},{job},1,1\n" for job in range(4_000)]
    rows[3_210] = "3210,oops,1,1\n"
    path = trace_file(HEADER + "".join(rows))
    with pytest.raises(BadInput, match=r":3212: submit_time is 'oops'"):
        open_trace(path)
