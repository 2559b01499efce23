"""The simple layouts of published schedulers: times count from the file's own 0."""

from __future__ import annotations

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import open_trace


def test_chronus_gives_deadlines_to_strict_and_soft_jobs(trace_file):
    header = "job_id,user,num_gpu,submit_time,model_name,duration,expect_time_list,"
    trace = open_trace(
        trace_file(
            header + "expect_value_list,best_effort,job_type\n"
            "a,u,1,0,vgg16,3,10,10,0,strict\nb,u,2,1,vgg16,3,10-20,10-8,0,soft\n"
            "c,v,1,2,vgg16,3,9,10,1,best\n"
        )
    )
    assert trace.source == "chronus"
    assert trace.submit_time.tolist() == [0, 60, 120]
    assert trace.duration.tolist() == [180, 180, 180]
    assert trace.columns["deadline"][:2].tolist() == [600, 600]
    assert np.isnan(trace.columns["deadline"][2])
    assert trace.columns["deadline_steps"].tolist() == ["", "600:10 1200:8", ""]


@pytest.mark.parametrize(
    "deadlines", ["10,10-8", "20-10,10-8", "a,10", ",", "0,10", "10-20,8-10", "nan,10"]
)
def test_unclear_deadlines_of_chronus_name_the_line(trace_file, deadlines):
    header = "job_id,user,num_gpu,submit_time,model_name,duration,expect_time_list,"
    path = trace_file(
        header + f"expect_value_list,best_effort,job_type\na,u,1,0,m,3,{deadlines},0,soft\n"
    )
    with pytest.raises(BadInput, match=r":2: expect_time_list"):
        open_trace(path)


def test_tiresias(trace_file):
    trace = open_trace(
        trace_file(
            "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
            "0,1,30,606,vgg19,164,30\n1,8,60,133,vgg11,147,23\n"
        )
    )
    assert trace.source == "tiresias"
    assert trace.submit_time.tolist() == [30, 60]
    assert trace.num_gpus.tolist() == [1, 8]
    assert trace.duration.tolist() == [164, 147]
    assert trace.columns["model"].tolist() == ["vgg19", "vgg11"]
    assert trace.columns["iterations"].tolist() == [606, 133]
    assert trace.columns["interval"].tolist() == [30, 23]
    assert trace.epoch is None


def test_blox_streams_keep_the_round_of_delivery(trace_file):
    trace = open_trace(
        trace_file("job,round_delivered,submit,num_gpus,duration\n0,0,65,1,1082\n1,300,65,1,2629\n")
    )
    assert trace.source == "blox"
    assert trace.job_id.tolist() == ["0", "1"]
    assert trace.submit_time.tolist() == [65, 65]
    assert trace.columns["round_delivered"].tolist() == [0, 300]


def test_blox_priorities_change_their_sign_because_lower_goes_first_there(trace_file):
    trace = open_trace(
        trace_file(
            "job,round_delivered,submit,num_gpus,duration,job_priority\n"
            "0,0,65,1,1082,999\n1,300,65,1,2629,1\n"
        )
    )
    assert trace.columns["priority"].tolist() == [-999, -1]


def test_the_plain_blox_layout_is_native_too(trace_file):
    path = trace_file("job_id,submit_time,num_gpus,duration\n0,1084,1,11545\n")
    for format in ("auto", "blox"):
        trace = open_trace(path, format)
        assert trace.submit_time.tolist() == [1084]
        assert trace.columns == {}


ELASTICFLOW = (
    "job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,deadline,best_effort\n"
)


def test_elasticflow_deadlines_count_from_the_submit_and_best_effort_jobs_have_none(trace_file):
    rows = "0,100,1,60,bert,64,300,250,0\n1,100,2,60,deepspeech2,32,300,250,1\n"
    trace = open_trace(trace_file(ELASTICFLOW + rows))
    assert trace.source == "elasticflow"
    assert trace.columns["deadline"][0] == 150
    assert np.isnan(trace.columns["deadline"][1])
    assert trace.columns["min_gpus"].tolist() == [1, 1]
    assert trace.columns["max_gpus"].tolist() == [64, 32]
    assert trace.columns["useful_gpus"].tolist() == [8, 32]


def test_an_elasticflow_deadline_before_the_submit_names_the_line(trace_file):
    path = trace_file(ELASTICFLOW + "0,100,1,60,bert,64,300,99,0\n")
    with pytest.raises(BadInput, match=r":2: deadline must be after submit_time"):
        open_trace(path)


LUCID = (
    "seq,job_id,vc,submit_s,num_gpus,duration_s,model,dataset,batchsize,amp,gpu_util,gpu_mem_mib,"
    "share_score,est_lucid_s,est_qssf_s\n"
)


def test_lucid_jobs_keep_their_times_and_the_order_of_the_file(trace_file):
    rows = "0,9,a,13219316,1,66,DCGAN,LSUN,32,0,57.8,2458.0,1,92,90\n"
    rows += "1,3,b,13219316,8,50,PPO,LunarLander,64,0,12.4,2051.0,0,40,41\n"
    trace = open_trace(trace_file(LUCID + rows))
    assert trace.source == "lucid"
    assert trace.job_id.tolist() == ["9", "3"]
    assert trace.submit_time.tolist() == [13219316.0, 13219316.0]
    assert trace.columns["share_score"].tolist() == [1.0, 0.0]
    assert trace.columns["est_qssf_s"].tolist() == [90.0, 41.0]


def test_lucid_rows_out_of_order_name_the_line(trace_file):
    rows = "1,9,a,5,1,66,DCGAN,LSUN,32,0,57.8,2458.0,1,92,90\n"
    rows += "0,3,b,6,8,50,PPO,LunarLander,64,0,12.4,2051.0,0,40,41\n"
    with pytest.raises(BadInput, match=r":3: seq must ascend"):
        open_trace(trace_file(LUCID + rows))


def test_synergy_jobs_have_iterations_and_keep_their_times(trace_file):
    rows = "0,alexnet,8,23349,1\n1,gnmt,126,26435,4\n"
    trace = open_trace(trace_file("job_id,model,submit_time,total_iterations,num_gpus\n" + rows))
    assert trace.source == "synergy"
    assert trace.submit_time.tolist() == [8, 126]
    assert trace.columns["total_iterations"].tolist() == [23349, 26435]
    assert np.isnan(trace.duration).all()


def test_a_synergy_job_without_iterations_names_the_line(trace_file):
    path = trace_file("job_id,model,submit_time,total_iterations,num_gpus\n0,alexnet,8,0,1\n")
    with pytest.raises(BadInput, match=r":2: total_iterations must be a number above 0"):
        open_trace(path)


MURI = (
    "job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,iteration_ms,data_ms,"
    "gpu_ms,network_ms,opportunistic\n"
)


def test_muri_jobs_take_their_iterations_each_a_little_longer_for_being_measured(trace_file):
    trace = open_trace(trace_file(MURI + "0,5,8,60,gpt2,4,1000,437,0.6,419,49,1\n"))
    assert trace.source == "muri"
    assert trace.submit_time.tolist() == [5]
    assert trace.duration[0] == pytest.approx(1000 * 0.437 * 1.015)
    assert trace.columns["data_ms"].tolist() == [0.6]
    assert trace.columns["guarantee"].tolist() == ["opportunistic"]
    assert np.isnan(trace.columns["restart_overhead"]).all()


def test_a_muri_job_without_a_stage_names_the_line(trace_file):
    path = trace_file(MURI + "0,5,8,60,gpt2,4,1000,437,,419,49,1\n")
    with pytest.raises(BadInput, match=r":2: data_ms must be 0 or more"):
        open_trace(path)
