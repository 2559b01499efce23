"""What-if answers beside the reference schedules of the sheet on SLA what-if, exactly.

A live snapshot knows of no later arrival, so the cases are those whose jobs are all there at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.round.forecasts.alternatives import Alternative, Question
from dlsched.daemon.round.forecasts.answering import answer
from dlsched.daemon.round.snapshot_builder import take_snapshot

pytestmark = pytest.mark.fidelity


@pytest.fixture(scope="module")
def cases(data_root: Path) -> list[dict[str, Any]]:
    file = data_root / "classic" / "sla-whatif" / "queue.json"
    if not file.exists():
        pytest.skip(f"no {file}")
    found = json.loads(file.read_text())
    return [case for case in found if all(submit == 0 for *_, submit in case["queue"])]


@pytest.mark.parametrize("policy", ["fifo", "easy"])
def test_schedules_and_alternatives_are_those_of_the_reference(
    live: Any, cases: list[dict[str, Any]], policy: str
) -> None:
    assert cases
    for case in cases:
        lab = live.LiveLab((case["gpus"],), parts={"scheduling": policy})
        for _, gpus, end in case["running"]:
            lab.submit(0.0, gpus, expected_s=float(end))
        lab.round(0.0)
        assert len(lab.running()) == len(case["running"])
        names = {
            lab.submit(0.0, gpus, expected_s=float(estimate)): name
            for name, gpus, estimate, _ in case["queue"]
        }
        new = {
            int(gpus): lab.submit(0.0, int(gpus), expected_s=float(duration))
            for gpus, duration in case["whatif"]["durations"].items()
        }
        question = Question(
            snapshot=take_snapshot(lab.state, "full", 0.0),
            supposed=tuple(new.values()),
            alternatives=(Alternative(), *(Alternative(job=job) for job in new.values())),
            lists_jobs=True,
        )
        base, *others = answer(question)
        rows = zip(base.job.tolist(), base.start.tolist(), base.end.tolist(), strict=True)
        schedule = {names[job]: [start, end] for job, start, end in rows if job in names}
        assert schedule == case["expected"]["schedule"][policy], case["id"]
        for gpus, found in zip(new, others, strict=True):
            told = [float(found.starts[0]), float(found.ends[0])]
            assert told == case["expected"]["whatif"][str(gpus)][policy], (case["id"], gpus)
        deadline = case["whatif"]["deadline"]
        meet = [g for g, found in zip(new, others, strict=True) if found.ends[0] <= deadline]
        smallest = case["expected"]["min_gpus_meeting_deadline"][policy]
        assert min(meet, default=None) == smallest, case["id"]
