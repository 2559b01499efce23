"""Each promise is broken by a history, and the verdict names it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.torture.marks import Marks
from dlsched.torture.verdict import PROMISES, Accepted, History, Seen, judge

LINES = (("1", "1", "0", "begin"), ("1", "1", "0", "end", "7"), ("2", "2", "0", "begin"))
GOOD = History(
    accepted=(Accepted(job=1, code=7, lines=2), Accepted(job=2, lines=1, may_fail=True)),
    jobs={
        1: Seen(state="FAILED", code=7, signal=0, starts=1),
        2: Seen(state="COMPLETED", code=0, signal=0, starts=2),
    },
    marks=Marks(lines=LINES),
    outputs={1: "1 1\n1 2\n", 2: "1 1\n2 1\n"},
    earlier=((1, Seen(state="RUNNING", starts=1)), (2, Seen(state="PENDING", reason="Resources"))),
)
DONE = GOOD.jobs[2]


def test_a_history_that_keeps_every_promise_breaks_none() -> None:
    assert judge(GOOD) == []


def without(job: int) -> dict[int, Seen]:
    return {number: seen for number, seen in GOOD.jobs.items() if number != job}


BROKEN = [
    ("accepted", "job 1 was acknowledged and is not known", {"jobs": without(1)}),
    (
        "terminal",
        "job 2 is RUNNING",
        {"jobs": {**GOOD.jobs, 2: Seen(state="RUNNING", starts=2)}},
    ),
    ("unique-ids", "job 1 was given twice", {"accepted": (*GOOD.accepted, GOOD.accepted[0])}),
    ("one-run", "job-1-0: 1 2 0", {"marks": Marks(lines=LINES, clashes=("job-1-0: 1 2 0",))}),
    (
        "one-run",
        "run 1 of job 1 began 2 times as rank 0",
        {"marks": Marks(lines=(*LINES, LINES[0]))},
    ),
    (
        "one-run",
        "job 1 has begun 2 runs and is shown with 1 starts",
        {"marks": Marks(lines=(*LINES, ("1", "2", "0", "begin")))},
    ),
    ("gpu-once", "GPU-5: 2 1 0", {"marks": Marks(lines=LINES, clashes=("GPU-5: 2 1 0",))}),
    ("gpu-once", "GPU 0 of n1 has jobs", {"shared": ("GPU 0 of n1 has jobs (1, 2)",)}),
    (
        "exit-codes",
        "job 1 ended as COMPLETED 0:0, its script as FAILED 7:0",
        {"jobs": {**GOOD.jobs, 1: replace(DONE, starts=1)}},
    ),
    (
        "exit-codes",
        "job 1 ended as FAILED 0:9",
        {"jobs": {**GOOD.jobs, 1: Seen(state="FAILED", code=0, signal=9, starts=1)}},
    ),
    (
        "ends-stay",
        "job 2 had ended as FAILED 1:0 and was COMPLETED later",
        {"earlier": ((2, Seen(state="FAILED", code=1, signal=0, starts=2)),)},
    ),
    (
        "ends-stay",
        "job 2 had ended as COMPLETED 0:0 and was PENDING later",
        {"earlier": ((2, DONE), (2, Seen(state="PENDING", reason="Resources")))},
    ),
    (
        "logs-whole",
        "lines are lost or doubled",
        {"outputs": {**GOOD.outputs, 1: "1 1\n1 1\n1 2\n"}},
    ),
    ("logs-whole", "1 of 2 lines", {"outputs": {**GOOD.outputs, 1: "1 1\n"}}),
    ("logs-whole", "job 1 has no output", {"outputs": {2: GOOD.outputs[2]}}),
    (
        "reasons",
        "job 2 waits without a reason",
        {"jobs": {**GOOD.jobs, 2: Seen(state="PENDING", starts=2)}},
    ),
]


@pytest.mark.parametrize(("promise", "told", "changes"), BROKEN)
def test_a_broken_promise_is_named(promise: str, told: str, changes: dict[str, object]) -> None:
    found = judge(replace(GOOD, **changes))  # type: ignore[arg-type]
    mine = [each for each in found if each.promise == promise]
    assert mine
    assert told in mine[0].what


def test_every_promise_has_a_history_that_breaks_it() -> None:
    assert {promise for promise, _, _ in BROKEN} == set(PROMISES)


def test_a_job_whose_processes_a_fault_ended_may_have_failed_and_not_succeeded_wrongly() -> None:
    killed = Seen(state="FAILED", code=0, signal=9, starts=2)
    history = replace(GOOD, jobs={**GOOD.jobs, 2: killed}, outputs={**GOOD.outputs, 2: "2 1\n"})
    assert judge(history) == []
    cancelled = replace(killed, state="CANCELLED")
    [broken] = judge(replace(history, jobs={**GOOD.jobs, 2: cancelled}))
    assert broken.promise == "exit-codes"
