"""Any bytes are read as a valid trace, or refused in one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from simulate.traces.open import FORMATS, open_trace
from simulate.traces.options import ReadOptions

SEEDS = {
    "dlsched": "job_id,submit_time,num_gpus,duration,user\na,0,1,10,u\nb,5,2,20,v\n",
    "philly": '[{"status":"Pass","vc":"v","jobid":"a","user":"u",'
    '"submitted_time":"2017-10-07 01:11:39","attempts":[{"start_time":"2017-10-07 01:12:09",'
    '"end_time":"2017-10-07 02:12:09",'
    '"detail":[{"ip":"m1","gpus":["gpu0"]}]}]}]',
    "philly-passed": "submit_time,duration_s,num_gpus,vc\n2017-09-04 10:30:41,22,8,7f\n",
    "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
    "duration,queue\n1,u,v,1,1,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:05,"
    "2020-04-01 00:01:05,60,5\n",
    "venus": "row,submit_time,user,num_gpus,num_cpus,num_nodes,duration_s,status\n"
    "0,2020-05-27 23:58:26,1,1,1,1,84,Pass\n",
    "alibaba2023": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\np,4000,15258,1,220,,BE,Running,9,99,9\n",
    "acme": "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
    "duration,queue,gpu_time\n1,u,1,8,8,x,COMPLETED,2023-03-01 00:00:00+08:00,"
    "2023-03-01 00:00:05+08:00,2023-03-01 00:01:05+08:00,60,5,480\n",
    "slurm": "JobID|User|Account|State|Submit|Start|End|NNodes|AllocTRES|Timelimit\n"
    "7|u|a|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:05|2024-01-01T00:10:05|1|"
    "cpu=8,gres/gpu=8|01:00:00\n",
    "chronus": "job_id,user,num_gpu,submit_time,model_name,duration,expect_time_list,"
    "expect_value_list,best_effort,job_type\n0,u,1,5,vgg16,38,72-112,10-8,0,soft\n",
    "elasticflow": "job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,"
    "deadline,best_effort\n0,5,1,60,bert,64,300,99,0\n",
    "lucid": "seq,job_id,vc,submit_s,num_gpus,duration_s,model,dataset,batchsize,amp,gpu_util,"
    "gpu_mem_mib,share_score,est_lucid_s,est_qssf_s\n"
    "0,7,a,5,1,60,PPO,LunarLander,64,0,12.4,2051,0,62,59\n",
    "muri": "job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,"
    "iteration_ms,data_ms,gpu_ms,network_ms,opportunistic\n0,5,1,60,bert,4,300,99,1,90,0,1\n",
    "synergy": "job_id,model,submit_time,total_iterations,num_gpus\n0,alexnet,5,3349,1\n",
    "tiresias": "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    "0,1,0,1,vgg,50,1\n",
    "blox": "job_id,submit_time,num_gpus,duration\n0,0,1,1000\n",
    "gavel": "job_id,job_type,scale_factor,total_steps,duration_v100_s,priority_weight,"
    "arrival_time_s\n0,ResNet-18 (batch size 32),1,3066,102.4,1,0.5\n",
    "shockwave": "job_id,model,batch_size,scale_factor,total_steps,mode,duration_s,"
    "priority_weight,arrival_time_s\n0,LM,10,1,134583,gns,1418,1,0\n",
    "pollux": "name,submit_s,application,num_replicas,batch_size\ncifar10-0,107,cifar10,6,2048\n",
}
SPLICES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [
            b",",
            b'"',
            b"\n",
            b"\r",
            b"nan",
            b"inf",
            b"-1",
            b"1e400",
            b"\x00",
            b"\xff",
            b"|",
            b"[]",
            b"{",
        ]
    ),
)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A well-formed little file with a few bytes cut out, put in or put elsewhere."""
    format = draw(st.sampled_from(sorted(SEEDS)))
    data = bytearray(SEEDS[format].encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 5))] = draw(SPLICES)
    packed = draw(st.booleans())
    return format, gzip.compress(bytes(data), mtime=0) if packed else bytes(data)


@settings(max_examples=300)
@given(case=damaged(), auto=st.booleans(), skips=st.booleans())
def test_a_damaged_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[str, bytes], auto: bool, skips: bool
) -> None:
    format, data = case
    path = tmp_path_factory.getbasetemp() / "damaged.csv"
    path.write_bytes(data)
    trace, refusal = None, ""
    try:
        trace = open_trace(
            path, "auto" if auto else format, options=ReadOptions(skip_bad_rows=skips)
        )
    except BadInput as error:
        refusal = str(error)
    if trace is None:
        assert "\n" not in refusal
        assert str(path) in refusal
        return
    assert len(trace) > 0
    assert len(set(trace.job_id.tolist())) == len(trace)
    assert np.isfinite(trace.submit_time).all()
    assert (np.diff(trace.submit_time) >= 0).all()
    assert (trace.num_gpus > 0).all()
    assert not (trace.duration < 0).any()  # where it is not known, a profile says it


def test_every_single_file_format_is_damaged() -> None:
    assert set(SEEDS) == set(FORMATS) - {"pai", "sia"}  # a folder; the layout of pollux


@pytest.mark.parametrize("format", sorted(SEEDS))
def test_the_undamaged_files_are_read(tmp_path: Path, format: str) -> None:
    path = tmp_path / "whole.csv"
    path.write_text(SEEDS[format])
    assert len(open_trace(path)) >= 1


def test_an_endless_line_is_refused_where_it_is_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "endless.csv"
    path.write_text("job_id,submit_time,num_gpus,duration\n1,0,1," + "9" * 1_000_000 + "\n")
    with pytest.raises(BadInput, match=r"endless.csv:2: the line has more than 100,000 characters"):
        open_trace(path)
    path.write_text("x" * 1_000_000)
    with pytest.raises(BadInput, match=r"endless.csv:1: the line has more"):
        open_trace(path)
