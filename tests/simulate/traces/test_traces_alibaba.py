from __future__ import annotations

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import open_trace

JOBS = (
    "jobA,i1,u1,Terminated,1000.0,5000.0\n"
    "jobB,i2,u2,Failed,2000.0,2100.0\n"
    "jobC,i3,u2,Waiting,3000.0,\n"
    "jobD,i4,u2,Terminated,3000.0,4000.0\n"
    "jobE,i5,u2,Terminated,3500.0,4000.0\n"
)
TASKS = (
    "jobA,ps,1.0,Terminated,1010.0,5000.0,600.0,10.0,,\n"
    "jobA,worker,3.0,Terminated,1100.0,5000.0,400.0,20.0,50.0,MISC\n"
    "jobB,tf,2.0,Failed,2050.0,2100.0,100.0,1.0,100.0,V100\n"
    "jobC,tf,2.0,Waiting,,,100.0,1.0,100.0,V100\n"
    "jobD,tf,2.0,Terminated,3000.0,4000.0,100.0,1.0,,\n"
    "stranger,tf,9.0,Terminated,3000.0,4000.0,100.0,1.0,100.0,\n"
)
INSTANCES = (
    "jobA,ps,x,w0,i1,Terminated,1010.0,5000.0,m1\n"
    "jobA,worker,x,w1,i1,Terminated,1010.0,5000.0,m2\n"
    "jobA,worker,x,w2,i1,Terminated,1010.0,5000.0,m2\n"
    "stranger,worker,x,w3,i1,Terminated,1010.0,5000.0,m3\n"
)


@pytest.fixture
def pai(trace_file, tmp_path):
    trace_file(JOBS, "pai/pai_job_table.csv")
    trace_file(TASKS, "pai/pai_task_table.csv.gz")
    return tmp_path / "pai"


def test_a_pai_gang_is_all_instances_of_all_tasks(pai):
    trace = open_trace(pai)
    assert trace.source == "pai"
    assert trace.name == "pai"
    assert trace.job_id.tolist() == ["jobA", "jobB"]
    assert trace.submit_time.tolist() == [0, 1000]
    assert trace.num_gpus.tolist() == [1.5, 2]
    assert trace.duration.tolist() == [3990, 50]  # from the earliest task's start
    assert trace.columns["num_instances"].tolist() == [4, 2]
    assert trace.columns["num_cpus"].tolist() == [18, 2]
    assert trace.columns["gpu_type"].tolist() == ["MISC", "V100"]
    assert trace.epoch == 1000
    assert trace.zone == "+08:00"
    assert trace.dropped == {"status unfinished": 1, "CPU job": 1, "GPU count unknown": 1}


def test_pai_tables_beside_add_nodes_and_groups(pai, trace_file):
    trace_file(INSTANCES, "pai/pai_instance_table.csv")
    trace_file("i1,u1,,g7,nmt\n", "pai/pai_group_tag_table.csv")
    trace = open_trace(pai / "pai_job_table.csv")
    np.testing.assert_array_equal(trace.columns["num_nodes"], [2, np.nan])
    assert trace.columns["group"].tolist() == ["g7", ""]
    assert trace.columns["workload"].tolist() == ["nmt", ""]


def test_pai_header_files_say_the_order_of_columns(trace_file, tmp_path):
    trace_file("u1,jobA,i1,Terminated,1000.0,5000.0\n", "pai_job_table.csv")
    trace_file("user,job_name,inst_id,status,start_time,end_time\n", "pai_job_table.header")
    trace_file(TASKS, "pai_task_table.csv")
    trace = open_trace(tmp_path)
    assert trace.user.tolist() == ["u1"]


def test_a_pai_folder_without_its_tasks_is_refused(trace_file, tmp_path):
    trace_file(JOBS, "pai_job_table.csv")
    with pytest.raises(BadInput, match=r"no pai_task_table\.csv beside it"):
        open_trace(tmp_path)
    with pytest.raises(BadInput, match=r"no pai_job_table\.csv there"):
        open_trace(tmp_path / "nothing", "pai")


PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "p0,8000,2048,8,1000,,LS,Succeeded,100,500,110.0\n"
    "p1,4000,1024,1,220,V100M16|V100M32,BE,Running,120,420,120.0\n"
    "p2,4000,1024,2,1000,,BE,Pending,130,400,\n"
    "p3,4000,1024,0,1000,,BE,Failed,140,400,150.0\n"
)


def test_pods_keep_shares_allowed_models_and_the_source_time(trace_file):
    trace = open_trace(trace_file(PODS))
    assert trace.source == "alibaba2023"
    assert trace.job_id.tolist() == ["p0", "p1"]
    assert trace.submit_time.tolist() == [100, 120]
    assert trace.num_gpus.tolist() == [8, 0.22]
    assert trace.duration.tolist() == [390, 300]
    assert trace.status.tolist() == ["completed", "cancelled"]
    assert trace.columns["gpu_type"].tolist() == ["", "V100M16|V100M32"]
    assert trace.columns["memory_gb"].tolist() == [2, 1]
    assert trace.columns["note"].tolist() == ["", "running_until_deleted"]
    assert trace.epoch is None
    assert trace.dropped == {"status unfinished": 1, "CPU job": 1}


def test_a_pod_that_was_never_placed_is_unfinished(trace_file, everything):
    trace = open_trace(trace_file(PODS), options=everything)
    assert trace.status[2] == "unfinished"
    assert trace.columns["note"][2] == "never_scheduled"
    assert np.isnan(trace.duration[2])
    assert trace.num_gpus[3] == 0
