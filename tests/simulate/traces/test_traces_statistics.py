from __future__ import annotations

import json

import numpy as np

from simulate.traces.open import open_trace
from simulate.traces.statistics import describe, offered_load


def test_a_description_counts_shares_by_jobs_and_by_gpu_time(trace_file):
    trace = open_trace(
        trace_file(
            "job_id,submit_time,num_gpus,duration,user,vc,status\n"
            "1,0,1,3600,a,x,completed\n2,3600,1,3600,a,y,completed\n3,7200,8,900,b,x,failed\n"
        )
    )
    told = describe(trace, gpus=4)
    assert told["schema"] == "dlsched.trace/1"
    assert told["jobs"] == 3
    assert told["gpu_hours"] == 4
    assert told["submit_span_s"] == 7200
    assert told["mean_demand_gpus"] == 2
    assert told["offered_load"] == 0.5 == offered_load(trace, 4)
    assert [(size["num_gpus"], size["jobs"], size["gpu_time_share"]) for size in told["sizes"]] == [
        (1, 2, 0.5),
        (8, 1, 0.5),
    ]
    assert told["duration_s"]["p50"] == 3600
    assert told["users"] == 2
    assert [(vc["name"], vc["jobs"]) for vc in told["vcs"]] == [("x", 2), ("y", 1)]
    assert told["arrivals"]["mean_gap_s"] == 3600
    assert told["first_submit"] is None


def test_what_is_not_known_is_null(trace_file, everything):
    trace = open_trace(
        trace_file("job_id,submit_time,num_gpus,duration\n1,0,,\n"), options=everything
    )
    told = describe(trace, gpus=8)
    json.dumps(told, allow_nan=False)
    assert told["duration_s"]["mean"] is None
    assert told["mean_demand_gpus"] is None
    assert told["offered_load"] is None
    assert told["arrivals"]["gap_cv"] is None
    assert told["sizes"] == []


def test_the_first_submit_is_an_instant_only_where_the_zone_is_known(trace_file):
    begin, end = "2020-06-09 10:00:00{0}", "2020-06-09 11:00:00{0}"
    rows = f"1,u,v,1,1,1,COMPLETED,{begin},{begin},{end}\n"
    header = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time\n"
    naive = describe(open_trace(trace_file(header + rows.format("")), "helios"))
    zoned = describe(open_trace(trace_file(header + rows.format("+08:00")), "helios"))
    assert naive["first_submit"] == "2020-06-09T10:00:00"
    assert zoned["first_submit"] == "2020-06-09T02:00:00Z"
    assert np.isclose(naive["gpu_hours"], 1)
