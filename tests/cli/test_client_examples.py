"""The examples of `dlsched.client` in its docstring and on the page of commands."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import dlsched.client
from dlsched.rpc.v1 import control_pb2 as pb

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def of_the_docstring() -> str:
    return textwrap.dedent(str(dlsched.client.__doc__).partition("Example:\n")[2])


def of_the_page() -> str:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return str(example)


@pytest.mark.parametrize("example", [of_the_docstring, of_the_page])
def test_the_example_submits_a_job_and_prints_its_final_state(
    example: Any, control: Any, job_view: Any, capsys: Any
) -> None:
    control.answers["Submit"] = pb.SubmitReply(jobs=[pb.Submitted(job=7)])
    ended = job_view(7, state="COMPLETED", ended_at=1795242440.0)
    control.answers["Wait"] = [pb.WaitReply(job=ended)]
    exec(example(), {})
    assert capsys.readouterr().out == "COMPLETED\n"
    job = control.request("Submit").jobs[0]
    assert list(job.argv) == ["python", "train.py"]
    assert control.request("Wait").filter.jobs == [7]
