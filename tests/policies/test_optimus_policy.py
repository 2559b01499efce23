"""Optimus in a replay: by perfect knowledge, and by what it has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import PolicyFailed
from dlsched.core.throughputs import JobKind, Measurement, ThroughputTable
from dlsched.policies.scheduling.optimus.samples import SpeedSamples

FAST, SLOW = [1 / (1.0 / k + 0.05) for k in range(1, 9)], [1 / (0.02 / k + 1) for k in range(1, 9)]


def table() -> ThroughputTable:
    return ThroughputTable(
        [
            Measurement(gpu_type="v100", scale=k, kind=JobKind(model), rate=rate)
            for model, curve in (("scales", FAST), ("hardly", SLOW))
            for k, rate in enumerate(curve, 1)
        ]
    )


def run(lab: Any, models: list[str], steps: float = 6000.0, **given: Any) -> Any:
    count = len(models)
    trace = lab.trace(
        [(10.0 * k, 1, 1) for k in range(count)],
        model=models,
        total_iterations=[steps] * count,
        min_gpus=[1] * count,
        max_gpus=[8] * count,
    )
    given = {"cluster": "2x4:v100", "clock": "rounds", "overhead": 5.0} | given
    return lab.run(trace, "optimus", throughputs=table(), **given)


def gpus_at(result: Any, time: float) -> list[int]:
    held = result.segments
    return [
        int(held.gpus[(held.job == job) & (held.start <= time) & (time < held.end)].sum())
        for job in range(len(result.jobs))
    ]


def test_who_scales_gets_the_gpus(lab: Any) -> None:
    result = run(lab, ["scales", "hardly"], options=("oracle=true",))
    assert gpus_at(result, 130.0) == [7, 1]
    assert result.summary["completed"] == 2


def test_what_was_seen_leads_to_nearly_the_same(lab: Any) -> None:
    knows = run(lab, ["scales", "hardly"], options=("oracle=true",))
    sees = run(lab, ["scales", "hardly"], options=("samples=3",))
    assert gpus_at(sees, 2 * 60 + 600.0) == [7, 1]
    assert sees.summary["avg_jct"] == pytest.approx(knows.summary["avg_jct"], rel=0.3)


def test_rounds_may_be_skipped_or_not(lab: Any) -> None:
    for option in ("oracle=true", "samples=2"):
        one = run(lab, ["scales", "hardly", "scales"], options=(option,))
        other = run(lab, ["scales", "hardly", "scales"], options=(option,), skipping=False)
        assert one.jobs.finish_time.tolist() == other.jobs.finish_time.tolist()


def test_perfect_knowledge_must_come_from_somewhere(lab: Any) -> None:
    with pytest.raises(PolicyFailed, match="oracle=true needs to know how fast"):
        lab.run([(0, 1, 100)], "optimus", options=("oracle=true",))


def test_samples_are_taken_of_whole_stays_only(lab: Any) -> None:
    ctx = lab.context("1x4", [1, 2], holding={0: {0: 1}, 1: {0: 6}}, now=100.0)
    ctx.table.rate[:] = [0.5, 2.0]
    seen = SpeedSamples(1)
    seen.look(ctx.running, 100.0)
    ctx.table.starts[1] += 1  # was restarted in between
    ctx.table.executed[:] = [0.0, 300.0]
    ctx.now = 160.0
    seen.look(ctx.running, 160.0)
    model = seen.model(0)
    assert model is not None
    assert model[0] + model[1] + model[2] == pytest.approx(2.0)
    assert seen.model(1) is None
    assert (seen.next_size(0), seen.next_size(1)) == (2, 1)


def test_samples_survive_and_follow_their_rows() -> None:
    seen, again = SpeedSamples(2), SpeedSamples(2)
    seen.load_state_dict({"seconds": [[3, 1, 2.0], [3, 2, 1.5]], "before": [[3, 10.0, 5.0, 1]]})
    again.load_state_dict(seen.state_dict())
    assert again.state_dict() == seen.state_dict()
    again.renumber(np.array([3]))
    model = again.model(0)
    assert model is not None
    assert model.sum() == pytest.approx(2.0)
    assert again.model(3) is None
