from __future__ import annotations

import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import FORMATS, detect_format, open_trace
from simulate.traces.options import ReadOptions

HEADERS = {
    "dlsched": "job_id,submit_time,num_gpus,duration,anything",
    "philly-passed": "submit_time,duration_s,num_gpus,vc",
    "philly": "row,submit_time,user,num_gpus,num_nodes,duration_s,status",
    "venus": "row,submit_time,user,num_gpus,num_cpus,num_nodes,duration_s,status",
    "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
    "duration,queue",
    "acme": "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
    "duration,queue,gpu_time",
    "alibaba2023": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time",
    "slurm": "JobID|JobName|State|Submit|AllocTRES|Elapsed|",
    "chronus": "job_id,user,num_gpu,submit_time,model_name,duration,expect_time_list,"
    "expect_value_list,best_effort,job_type",
    "elasticflow": "job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,"
    "deadline,best_effort",
    "lucid": "seq,job_id,vc,submit_s,num_gpus,duration_s,model,dataset,batchsize,amp,gpu_util,"
    "gpu_mem_mib,share_score,est_lucid_s,est_qssf_s",
    "muri": "job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,"
    "iteration_ms,data_ms,gpu_ms,network_ms,opportunistic",
    "synergy": "job_id,model,submit_time,total_iterations,num_gpus",
    "tiresias": "job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
    "gavel": "job_id,job_type,scale_factor,total_steps,arrival_time_s",
    "shockwave": "job_id,model,scale_factor,total_steps,mode,arrival_time_s",
    "pollux": "set,workload,name,submit_s,application,num_replicas,batch_size",
    "blox": "job,round_delivered,submit,num_gpus,duration",
}


@pytest.mark.parametrize("format", HEADERS)
def test_a_format_is_recognised_by_its_header(trace_file, format):
    assert detect_format(trace_file(HEADERS[format] + "\n")) == format
    assert detect_format(trace_file(HEADERS[format] + "\n", "t.gz")) == format


def test_the_philly_log_is_recognised_by_its_bracket_and_parquet_by_its_name(trace_file):
    assert detect_format(trace_file("  [ {", "log")) == "philly"
    assert detect_format(trace_file("", "t.parquet")) == "dlsched"


def test_folders_are_recognised_by_the_file_they_are_published_with(trace_file, tmp_path):
    trace_file("", "a/pai_job_table.csv")
    trace_file("", "b/cluster_job_log")
    trace_file("", "c/cluster_log.csv")
    trace_file("", "d/other.csv")
    assert [detect_format(tmp_path / folder) for folder in "abc"] == ["pai", "philly", "helios"]
    with pytest.raises(BadInput, match="name the trace file itself"):
        detect_format(tmp_path / "d")
    with pytest.raises(BadInput, match="a folder"):
        open_trace(tmp_path / "d", "slurm")


def test_every_known_format_but_pai_has_a_case_above():
    assert set(FORMATS) - set(HEADERS) == {"pai", "sia"}  # a folder; the layout of pollux


@pytest.mark.parametrize("format", ["excel", "csv", ""])
def test_an_unknown_format_is_refused_with_the_known_ones(trace_file, format):
    with pytest.raises(BadInput) as caught:
        open_trace(trace_file(HEADERS["dlsched"]), format)
    assert all(known in str(caught.value) for known in ("auto", *FORMATS))


def test_a_named_format_with_another_header_names_the_missing_columns(trace_file):
    with pytest.raises(BadInput, match=r":1: no column num_gpu; "):
        open_trace(trace_file("job_id,submit_time,num_gpus,duration\n1,0,1,1\n"), "tiresias")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"status": ("done",)}, "status 'done' is not known"),
        ({"min_duration": -1}, "must be 0 s or more"),
        ({"min_duration": float("nan")}, "must be 0 s or more"),
        ({"on_missing": "guess"}, "must be drop or keep"),
    ],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(BadInput, match=message):
        ReadOptions(**wrong)
