"""The two reference queues of the sheet on SLA what-if: whole schedules, and what-if answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulate.supposing import Choice, suppose

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FILE = ROOT / "classic" / "sla-whatif" / "queue.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
QUEUES = ("fifo", "easy")


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{FILE} is not there")


def trace_of(case: dict[str, Any], lab: Any, *, actual: bool = False, new: int = 0) -> Any:
    """Running jobs came first; the job of the question behind all that are there at once."""
    jobs = [(name, gpus, end, 0, end) for name, gpus, end in case["running"]]
    jobs += [
        (name, gpus, estimate, submit, case["actual"][name] if actual else estimate)
        for name, gpus, estimate, submit in case["queue"]
    ]
    if new:
        seconds = case["whatif"]["durations"][str(new)]
        jobs.append(("~new", new, seconds, 0, seconds))
    jobs.sort(key=lambda job: job[3])
    deadline = [float(case["whatif"]["deadline"]) if job[0] == "~new" else np.nan for job in jobs]
    return lab.trace(
        [(submit, gpus, takes) for _, gpus, _, submit, takes in jobs],
        names=[job[0] for job in jobs],
        expected=[float(estimate) for _, _, estimate, _, _ in jobs],
        deadline=deadline,
    )


@pytest.mark.parametrize("policy", QUEUES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_schedules_are_those_of_the_reference(case: dict[str, Any], policy: str, lab: Any) -> None:
    for actual, name in ((False, policy), (True, f"{policy}_actual")):
        result = lab.run(
            trace_of(case, lab, actual=actual),
            policy,
            cluster=f"1x{case['gpus']}",
            clock="events",
            estimate="declared",
        )
        jobs = result.jobs
        times = zip(jobs.first_start_time.tolist(), jobs.finish_time.tolist(), strict=True)
        found = dict(zip(jobs.job_id.tolist(), map(list, times), strict=True))
        assert {job: found[job] for job in case["actual"]} == case["expected"]["schedule"][name]


@pytest.mark.parametrize("policy", QUEUES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_answers_in_a_replay_are_those_of_the_reference(
    case: dict[str, Any], policy: str, lab: Any
) -> None:
    sizes = {int(gpus): float(s) for gpus, s in case["whatif"]["durations"].items()}
    first, *more = sizes
    answer = suppose(
        trace_of(case, lab, new=first),
        lab.cluster(f"1x{case['gpus']}"),
        lab.settings(policy, clock="events", check=False),
        "~new",
        [Choice(gpus=gpus, seconds=sizes[gpus]) for gpus in more],
        arrivals=True,
    )
    expected = case["expected"]
    for gpus, told in zip(sizes, answer.supposed, strict=True):
        assert [told.starts[0], told.ends[0]] == expected["whatif"][str(gpus)][policy], gpus
    assert answer.due == case["whatif"]["deadline"]
    enough = [told.gpus for told in answer.supposed if told.ends[0] <= answer.due]
    assert min(enough, default=None) == expected["min_gpus_meeting_deadline"][policy]
