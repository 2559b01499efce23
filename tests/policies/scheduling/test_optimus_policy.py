"""Optimus in a replay: by perfect knowledge, and by what it has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.registry import make
from dlsched.policies.scheduling.optimus.marginal_gain import divide_gpus
from dlsched.policies.scheduling.optimus.speed_samples import SpeedSamples

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


def test_the_job_that_scales_gets_the_gpus(lab: Any) -> None:
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
    with pytest.raises(BadInput, match="optimus needs to know how fast jobs run"):
        lab.run([(0, 1, 100)], "optimus", options=("oracle=true",))


def test_samples_are_taken_of_whole_stays_only(lab: Any) -> None:
    ctx = lab.context("1x4", [1, 2], holding={0: {0: 1}, 1: {0: 6}}, now=100.0)
    ctx.table.rate[:] = [0.5, 2.0]
    seen = SpeedSamples(1)
    seen.sample(ctx.running, 100.0)
    ctx.table.starts[1] += 1  # was restarted in between
    ctx.table.executed[:] = [0.0, 300.0]
    ctx.now = 160.0
    seen.sample(ctx.running, 160.0)
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
    again.renumber(np.array([3]), 0)
    model = again.model(0)
    assert model is not None
    assert model.sum() == pytest.approx(2.0)
    assert again.model(3) is None


def test_where_jobs_tell_their_steps_samples_are_of_those(lab: Any) -> None:
    ctx = lab.context("1x8", [4], holding={0: {0: 15}}, now=100.0)
    ctx.table.min_gpus[:], ctx.table.max_gpus[:] = 1, 8
    ctx.table.extra["steps_done"] = np.array([50.0])
    policy = make("scheduling", "optimus", {"samples": "2"})
    policy.load_state_dict({"seconds": [[0, 1, 0.9], [0, 2, 0.5]], "before": []})
    policy._samples.sample(ctx.running, 100.0)
    ctx.now, ctx.table.extra["steps_done"][0] = 130.0, 150.0
    policy._samples.sample(ctx.running, 130.0)
    left = policy._in_steps(ctx.units, np.array([60.0]))
    assert left[0] == pytest.approx(60.0 / 0.3, rel=0.01)  # 0.3 s a step on its gang of 4


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 1), st.floats(1, 1e4)), max_size=8),
    st.integers(0, 24),
    st.integers(1, 6),
)
def test_every_gpu_goes_to_the_job_that_it_saves_most(
    jobs: list[tuple[float, float, float]], gpus: int, most: int
) -> None:
    def step(job: int, size: int) -> float:
        return jobs[job][0] / size + jobs[job][1] * size

    count = len(jobs)
    left = [job[2] for job in jobs]
    sizes = divide_gpus([1] * count, [most] * count, left, gpus, step)
    plain = [1 if job < gpus else 0 for job in range(count)]
    room = gpus - sum(plain)
    while room > 0:
        gains = [
            (step(j, k) - step(j, k + 1)) * left[j] if 0 < k < most else 0.0
            for j, k in enumerate(plain)
        ]
        if not gains or max(gains) <= 0:
            break
        plain[gains.index(max(gains))] += 1
        room -= 1
    assert sizes == plain
