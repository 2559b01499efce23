"""Gavel's traces: kinds of jobs and steps, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import open_trace

HEADER = "job_id,job_type,scale_factor,total_steps,duration_v100_s,priority_weight,arrival_time_s\n"


def test_a_job_type_is_a_model_and_a_batch_size(trace_file: Any) -> None:
    rows = "0,ResNet-18 (batch size 32),1,3066,102.4,1,0.5\n1,A3C,4,10,,5,0\n"
    trace = open_trace(trace_file(HEADER + rows))
    assert trace.source == "gavel"
    assert trace.job_id.tolist() == ["1", "0"]
    assert trace.submit_time.tolist() == [0, 0.5]
    assert trace.num_gpus.tolist() == [4, 1]
    assert trace.columns["model"].tolist() == ["A3C", "ResNet-18"]
    assert np.isnan(trace.columns["batch_size"][0])
    assert trace.columns["batch_size"][1] == 32
    assert trace.columns["total_iterations"].tolist() == [10, 3066]
    assert trace.columns["weight"].tolist() == [5, 1]
    assert np.isnan(trace.duration[0])
    assert trace.duration[1] == 102.4


def test_deadlines_may_be_given(trace_file: Any) -> None:
    header = HEADER.replace("\n", ",deadline\n")
    trace = open_trace(trace_file(header + "0,A3C,1,10,,1,0,600\n"))
    assert trace.columns["deadline"].tolist() == [600]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,A3C,1,0,,1,0", "total_steps must be above 0"),
        ("0,A3C,0,5,,1,0", "scale_factor must be above 0"),
        ("0,A3C,1,5,,-1,0", "priority_weight is below 0"),
        ("0,A3C,1,many,,1,0", "total_steps"),
    ],
)
def test_a_bad_row_is_named_by_its_line(trace_file: Any, row: str, message: str) -> None:
    path: Path = trace_file(HEADER + "9,A3C,1,5,,1,0\n" + row + "\n")
    with pytest.raises(BadInput, match=message) as caught:
        open_trace(path)
    assert ":3: " in str(caught.value)
