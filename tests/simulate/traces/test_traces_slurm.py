from __future__ import annotations

import math

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.formats import slurm_fields as fields
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions

HEADER = (
    "JobID|JobName|User|Account|Partition|State|Submit|Start|End|Elapsed|Timelimit|NNodes|NCPUS|"
    "ReqTRES|AllocTRES|MaxRSS"
)


def line(job_id, **changed):
    values = {
        "JobID": job_id,
        "JobName": "bert",
        "User": "alice",
        "Account": "nlp",
        "Partition": "main",
        "State": "COMPLETED",
        "Submit": "2026-11-21T06:00:00",
        "Start": "2026-11-21T06:01:00",
        "End": "2026-11-21T06:03:00",
        "Elapsed": "00:02:00",
        "Timelimit": "1-02:03:04",
        "NNodes": "2",
        "NCPUS": "16",
        "ReqTRES": "billing=16,cpu=16,gres/gpu=8,node=2",
        "AllocTRES": "billing=16,cpu=16,gres/gpu:a100=8,gres/gpu=8,mem=64G,node=2",
        "MaxRSS": "",
    } | changed
    return "|".join(values.values())


@pytest.fixture
def sacct(trace_file):
    def write(*lines, header=HEADER):
        return trace_file("\n".join([header, *lines]) + "\n", "sacct.txt")

    return write


def test_one_job_with_its_steps_is_one_row(sacct):
    trace = open_trace(
        sacct(
            line("7"),
            line("7.batch", JobName="batch", User="", AllocTRES="cpu=8,gres/gpu=4", MaxRSS="512M"),
            line("7.extern", JobName="extern", User="", MaxRSS="1K"),
            line("7.0", JobName="python", User="", MaxRSS="2G"),
        )
    )
    assert trace.source == "slurm"
    assert trace.job_id.tolist() == ["7"]
    assert trace.num_gpus.tolist() == [8]
    assert trace.duration.tolist() == [120]
    assert trace.user.tolist() == ["alice"]
    assert trace.vc.tolist() == ["nlp"]
    row = {name: column[0] for name, column in trace.columns.items()}
    assert row["gpu_type"] == "a100"
    assert row["time_limit"] == 86_400 + 2 * 3_600 + 3 * 60 + 4
    assert (row["num_nodes"], row["num_cpus"], row["memory_gb"]) == (2, 16, 64)
    assert row["used_memory_gb"] == 2
    assert row["start_time"] == 60
    assert trace.zone == "naive"
    assert trace.dropped == {}


def test_rows_with_one_id_are_the_attempts_of_a_requeued_job(sacct):
    trace = open_trace(
        sacct(
            line("7", State="NODE_FAIL", Elapsed="00:00:30"),
            line("8"),
            line(
                "7",
                Submit="2026-11-21T07:00:00",
                Start="2026-11-21T07:30:00",
                End="2026-11-21T07:40:00",
                Elapsed="00:10:00",
            ),
        )
    )
    assert trace.job_id.tolist() == ["7", "8"]
    assert trace.submit_time.tolist() == [0, 0]
    assert trace.status.tolist() == ["completed", "completed"]
    assert trace.duration.tolist() == [630, 120]
    assert trace.columns["attempts"].tolist() == [2, 1]
    assert trace.columns["attempt_durations"].tolist() == ["30+600", "120"]
    assert trace.columns["end_time"].tolist() == [6000, 180]


def test_array_elements_are_jobs_and_pending_ones_are_unfolded(sacct, everything):
    pending = {"State": "PENDING", "Start": "Unknown", "End": "Unknown", "Elapsed": "00:00:00"}
    path = sacct(line("9_4"), line("9_[5-6,8%2]", AllocTRES="", **pending))
    assert open_trace(path).dropped == {"status unfinished": 3}
    trace = open_trace(path, options=everything)
    assert trace.job_id.tolist() == ["9_4", "9_5", "9_6", "9_8"]
    assert trace.num_gpus.tolist() == [8, 8, 8, 8]  # from ReqTRES
    np.testing.assert_array_equal(trace.duration, [120, *[np.nan] * 3])


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("COMPLETED", "completed"),
        ("CANCELLED by 1002", "cancelled"),
        ("CANCELLED+", "cancelled"),
        ("PREEMPTED", "cancelled"),
        ("TIMEOUT", "failed"),
        ("NODE_FAIL", "failed"),
        ("OUT_OF_MEMORY", "failed"),
        ("RUNNING", "unfinished"),
    ],
)
def test_states(sacct, everything, state, status):
    assert open_trace(sacct(line("1", State=state)), options=everything).status[0] == status


def test_a_running_job_has_no_duration(sacct, everything):
    trace = open_trace(sacct(line("1", State="RUNNING", End="Unknown")), options=everything)
    assert np.isnan(trace.duration[0])


def test_a_job_cancelled_before_it_started_is_dropped(sacct):
    never = line("2", State="CANCELLED by 0", Start="None", AllocTRES="")
    assert open_trace(sacct(line("1"), never)).dropped == {"duration unknown": 1}


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_no_limit_is_no_estimate(sacct, limit):
    assert np.isnan(open_trace(sacct(line("1", Timelimit=limit))).columns["time_limit"][0])


def test_gres_counts_are_per_node(trace_file):
    trace = open_trace(
        trace_file(
            "JobID|State|Submit|Start|End|ElapsedRaw|NNodes|AllocGRES|\n"
            "1|COMPLETED|1700000000|1700000010|1700000110|90|3|gpu:v100:2|\n"
            "2|COMPLETED|1700000000|1700000010|1700000110|90|3||\n"
        )
    )
    assert trace.num_gpus.tolist() == [6]
    assert trace.columns["gpu_type"].tolist() == ["v100"]
    assert trace.duration.tolist() == [90]  # suspended time isn't in it
    assert trace.epoch == 1_700_000_000
    assert trace.zone == "UTC"
    assert trace.dropped == {"CPU job": 1}


BAD = [
    (line("1", Timelimit="soon"), "Timelimit: 'soon' is no time span"),
    (line("1_[a-b]"), "JobID: '1_[a-b]' is no list of array elements"),
    (line("1", State="EXPLODED"), "State is 'EXPLODED'"),
    (line("1", Submit="early"), "Submit is 'early'"),
    (line("1", NNodes="many"), "NNodes: 'many' is no count"),
    (line("1.batch"), "a step of '1', which has no row"),
    (line("1", JobName="a|b"), "17 fields where the header has 16"),
    (line("1", AllocTRES="gres/gpu=lots"), "AllocTRES: could not convert"),
]


@pytest.mark.parametrize(("bad", "message"), BAD, ids=[message for _, message in BAD])
def test_a_malformed_field_is_refused_or_counted(sacct, bad, message):
    path = sacct(line("5"), bad)
    with pytest.raises(BadInput) as caught:
        open_trace(path)
    assert str(caught.value).startswith(f"{path}:3: {message}")
    trace = open_trace(path, options=ReadOptions(skip_bad_rows=True))
    assert trace.job_id.tolist() == ["5"]
    assert sum(trace.dropped.values()) == 1


def test_a_needed_field_that_was_not_printed_is_named(sacct):
    with pytest.raises(BadInput, match="none of the fields AllocTRES, ReqTRES"):
        open_trace(sacct("1|COMPLETED|x|", header="JobID|State|Submit|Elapsed"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93_784),
        ("02:03:04", 7_384),
        ("03:04", 184),
        ("03:04.500", 184.5),
        ("2-12", 216_000),
        ("90", 5_400),
    ],
)
def test_time_spans(text, seconds):
    assert fields.span_seconds(text) == seconds


@pytest.mark.parametrize(
    ("gres", "wanted"),
    [
        ("gpu:2", (2, "")),
        ("gpu", (1, "")),
        ("gpu:v100:2", (2, "v100")),
        ("gpu:a100:4(IDX:0-3)", (4, "a100")),
        ("gpu:a100:4(IDX:0,2-4),nic:1", (4, "a100")),
        ("gres:gpu:a100:4", (4, "a100")),
        ("nic:1", (0, "")),
    ],
)
def test_gres_lists(gres, wanted):
    assert fields.gres_gpus(gres) == wanted


@pytest.mark.parametrize(
    ("tres", "wanted"),
    [
        ("cpu=8,gres/gpu=8,node=1", (8, "")),
        ("cpu=8,gres/gpu:a100=8,gres/gpu=8", (8, "a100")),
        ("gres/gpu:a100=4,gres/gpu:v100=2", (6, "a100+v100")),
        ("cpu=8", (0, "")),
    ],
)
def test_tres_lists(tres, wanted):
    assert fields.tres_gpus(tres) == wanted


@pytest.mark.parametrize("nothing", ["", "(null)"])
def test_an_empty_list_says_nothing(nothing):
    assert math.isnan(fields.gres_gpus(nothing)[0])
    assert math.isnan(fields.tres_gpus(nothing)[0])


def test_requested_memory_is_by_cpu_by_node_or_by_job():
    assert fields.requested_memory("4Gc") == (4, "c")
    assert fields.requested_memory("4Gn") == (4, "n")
    assert fields.requested_memory("512M") == (0.5, "")
    assert math.isnan(fields.requested_memory("")[0])


def test_requested_memory_counts_for_the_whole_job(trace_file):
    row = "COMPLETED|2026-11-21T06:00:00|2026-11-21T06:00:00|2026-11-21T06:10:00|2|16|gpu:1"
    trace = open_trace(
        trace_file(
            "JobID|ReqMem|State|Submit|Start|End|NNodes|NCPUS|ReqGRES\n"
            f"1|4Gc|{row}\n2|4Gn|{row}\n3|4G|{row}\n"
        )
    )
    assert trace.columns["memory_gb"].tolist() == [64, 8, 4]


def test_array_lists():
    assert fields.array_elements("12") == ["12"]
    assert fields.array_elements("12_[1-3,7,10-14:2%4]") == [
        f"12_{number}" for number in (1, 2, 3, 7, 10, 12, 14)
    ]
    for wrong in ("12_[1-3", "12_[]", "12_[1,2...]", "12_[1-99999999]"):
        with pytest.raises(ValueError, match="12_"):
            fields.array_elements(wrong)
