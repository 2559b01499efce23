from __future__ import annotations

from simulate.traces.open import open_trace


def test_times_are_converted_from_their_offset_and_cpu_jobs_dropped(trace_file):
    trace = open_trace(
        trace_file(
            "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
            "duration,queue,gpu_time\n"
            "1,u1,1,8,128,Eval,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,"
            "2023-03-01 00:20:51+08:00,117,32,936.0\n"
            "2,u1,0,0,4,,COMPLETED,2023-03-01 00:30:00+08:00,2023-03-01 00:30:00+08:00,"
            "2023-03-01 00:31:00+08:00,60,0,0.0\n"
        )
    )
    assert trace.source == "acme"
    assert trace.epoch == 1_677_601_102.0  # 2023-02-28T16:18:22Z
    assert trace.zone == "+08:00"
    assert trace.duration.tolist() == [117]
    assert trace.columns["workload"].tolist() == ["Eval"]
    assert trace.dropped == {"CPU job": 1}


def test_kalos_durations_are_taken_from_the_times_not_from_the_column(trace_file):
    trace = open_trace(
        trace_file(
            "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,"
            "submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
            "a,u1,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,"
            "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,,,18,10.0,1152.0\n"
        )
    )
    assert trace.duration.tolist() == [8]
    assert trace.columns["memory_gb"].tolist() == [8000]
    assert trace.zone == "+00:00"
