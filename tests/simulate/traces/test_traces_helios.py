from __future__ import annotations

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u1,vcA,0,1,1,COMPLETED,2020-06-09 10:00:00,2020-06-09 10:00:00,2020-06-09 10:00:09,9,0\n"
    "2,u1,vcA,8,8,1,TIMEOUT,2020-06-09 11:00:00,2020-06-09 11:00:10,2020-06-09 12:00:10,1,1\n"
    "3,u2,vcB,16,8,2,NODE_FAIL,2020-06-09 10:30:00,2020-06-09 10:30:00,2020-06-09 10:30:00,0,0\n"
    "4,u2,vcB,16,8,2,CANCELLED,2020-06-09 10:45:00,2020-06-09 10:46:00,2020-06-09 10:47:00,60,60\n"
    "5,u2,vcB,1,1,1,RUNNING,2020-06-09 10:45:00,2020-06-09 10:46:00,,,\n"
)


def test_time_0_is_the_first_submit_of_the_kept_jobs(trace_file):
    trace = open_trace(trace_file(HELIOS))
    assert trace.job_id.tolist() == ["4", "2"]
    assert trace.submit_time.tolist() == [0, 900]
    assert trace.columns["start_time"].tolist() == [60, 910]
    assert trace.columns["end_time"].tolist() == [120, 4510]
    assert trace.duration.tolist() == [60, 3600]  # end - start, whatever the column says
    assert trace.status.tolist() == ["cancelled", "failed"]
    assert trace.vc.tolist() == ["vcB", "vcA"]
    assert trace.columns["num_nodes"].tolist() == [2, 1]
    assert trace.zone == "naive"
    assert trace.epoch == 1_591_699_500.0
    assert trace.dropped == {"CPU job": 1, "shorter than 1 s": 1, "status unfinished": 1}


def test_everything_can_be_kept(trace_file, everything):
    trace = open_trace(trace_file(HELIOS), options=everything)
    assert trace.job_id.tolist() == ["1", "3", "4", "5", "2"]
    assert trace.num_gpus[0] == 0
    assert np.isnan(trace.duration[3])
    assert trace.dropped == {}


def test_a_malformed_time_is_refused_or_counted(trace_file):
    path = trace_file(HELIOS.replace("2020-06-09 11:00:10", "09/06/2020 11:00"))
    with pytest.raises(BadInput, match=r":3: start_time is '09/06/2020 11:00', not a time like"):
        open_trace(path)
    trace = open_trace(path, options=ReadOptions(skip_bad_rows=True))
    assert trace.dropped["start_time is not a time"] == 1


def test_an_end_before_the_start_is_refused(trace_file):
    path = trace_file(HELIOS.replace("2020-06-09 12:00:10", "2020-06-08 12:00:10"))
    with pytest.raises(BadInput, match=r":3: duration is -82800, below 0"):
        open_trace(path)


def test_venus(trace_file):
    trace = open_trace(
        trace_file(
            "row,submit_time,user,num_gpus,num_cpus,num_nodes,duration_s,status\n"
            "0,2020-05-27 23:58:26,1,0,1,1,84,Pass\n"
            "1,2020-05-28 00:00:00,7,8,16,1,87,Killed\n"
            "2,2020-05-28 00:02:31,1,1,1,1,83,Failed\n"
        )
    )
    assert trace.source == "venus"
    assert trace.job_id.tolist() == ["1", "2"]
    assert trace.submit_time.tolist() == [0, 151]
    assert trace.user.tolist() == ["7", "1"]
    assert trace.status.tolist() == ["cancelled", "failed"]
    assert trace.columns["num_cpus"].tolist() == [16, 1]
