"""What the daemon takes of short tasks, from a submission and from a run."""

from __future__ import annotations

import pytest

from dlsched.core.errors import DlschedError
from dlsched.daemon.control.short_tasks import with_short_tasks
from dlsched.daemon.short_tasks.exchange import ends_of
from dlsched.daemon.short_tasks.task_list import MOST_GIVEN
from dlsched.db.records import ArrayShape
from dlsched.db.task_runs import TaskEnd
from dlsched.jobs.short_tasks import COMMAND, LONGEST_LINE, MOST_BYTES, MOST_TASKS
from dlsched.jobs.sweep import Sweep
from dlsched.rpc.v1 import control_pb2

TOKENS = ArrayShape(tasks=(0, 1))


def wanted(*lines: str, **more: object) -> control_pb2.JobRequest:
    return control_pb2.JobRequest(tasks=lines, argv=[COMMAND], **more)  # type: ignore[arg-type]


def test_lines_become_part_of_the_array() -> None:
    array = with_short_tasks(wanted("true", "echo é"), TOKENS, nodes=1)
    assert array is not None
    assert (array.short_tasks, array.short_task_bytes) == (("true", "echo é"), 11)
    assert with_short_tasks(control_pb2.JobRequest(), TOKENS, nodes=9) is TOKENS


@pytest.mark.parametrize(
    ("request_", "array", "nodes", "message"),
    [
        (wanted("true"), None, 1, "short tasks: they need an array of tokens"),
        (
            wanted("true"),
            ArrayShape(tasks=(0,), sweep=Sweep(columns=("a",), rows=(("1",),))),
            1,
            "and no sweep",
        ),
        (wanted("true"), TOKENS, 2, "a token is on one node"),
        (wanted("true", script=b"#!/bin/sh\n"), TOKENS, 1, "no script, command or container"),
        (wanted("true", container="x.sif"), TOKENS, 1, "no script, command or container"),
        (wanted("true", " "), TOKENS, 1, "short task 2: empty"),
        (wanted("a\nb"), TOKENS, 1, "short task 1: not one line"),
        (wanted("x" * (LONGEST_LINE + 1)), TOKENS, 1, "short task 1: longer than 4096 bytes"),
        (wanted(*["true"] * (MOST_TASKS + 1)), TOKENS, 1, "short tasks: 100001, at most 100000"),
        (
            wanted(*["x" * LONGEST_LINE] * (MOST_BYTES // LONGEST_LINE + 1)),
            TOKENS,
            1,
            "bytes of the short tasks",
        ),
    ],
)
def test_a_submission_is_bounded(
    request_: control_pb2.JobRequest, array: ArrayShape | None, nodes: int, message: str
) -> None:
    with pytest.raises(DlschedError, match=message) as refused:
        with_short_tasks(request_, array, nodes=nodes)
    assert "\n" not in str(refused.value)


def told(task: int, **more: object) -> control_pb2.TaskExchange:
    values = {"codes": [0], "signals": [0], "ran_s": [1.0], **more}
    return control_pb2.TaskExchange(ended=[task], **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "exchange",
    [
        told(0),
        told(10),
        told(1, codes=[]),
        told(1, codes=[256]),
        told(1, signals=[-1]),
        told(1, ran_s=[float("nan")]),
        told(1, held=[11]),
        told(1, held=[2] * (4 * MOST_GIVEN + 1)),
    ],
)
def test_a_run_cannot_tell_what_cannot_be(exchange: control_pb2.TaskExchange) -> None:
    with pytest.raises(DlschedError, match="short tasks: "):
        ends_of(exchange, 9)


def test_what_a_run_tells_is_taken() -> None:
    assert ends_of(told(9, ran_s=[-1.0]), 9) == [TaskEnd(task=9, code=0, signal=0, ran_s=0.0)]
