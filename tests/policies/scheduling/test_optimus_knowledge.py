"""What Optimus makes of what it sees, and of what it is told or is not."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlsched.core.speed.belief import Belief
from dlsched.policies.scheduling.optimus.policy import _by_oracle as by_oracle
from dlsched.policies.scheduling.optimus.speed_samples import SpeedSamples


def looked(seen: SpeedSamples, ctx: Any, now: float, executed: float) -> float | None:
    """Seconds a unit of work on one GPU, as it is believed after one more look."""
    ctx.now = now
    ctx.table.executed[:] = executed
    ctx.table.progress_from[:] = np.maximum(ctx.table.progress_from, now)
    seen.sample(ctx.running, now)
    model = seen.model(0)
    return None if model is None else float(model.sum())


def test_a_new_sample_counts_as_much_as_all_before_it_unless_it_says_the_same(lab: Any) -> None:
    ctx, seen = lab.context("1x4", [1], holding={0: {0: 1}}, now=100.0), SpeedSamples(1)
    assert looked(seen, ctx, 100.0, 0.0) is None
    assert looked(seen, ctx, 160.0, 30.0) == pytest.approx(2.0)
    assert looked(seen, ctx, 220.0, 50.0) == pytest.approx(2.5)  # this time 3 s
    assert looked(seen, ctx, 280.0, 50.0 + 60 / 2.52) == pytest.approx(2.5)  # 2.52: the same
    assert looked(seen, ctx, 340.0, 60.0) == pytest.approx(2.5)  # it lost work: no sample


def test_a_start_is_no_part_of_a_sample(lab: Any) -> None:
    ctx, seen = lab.context("1x4", [1], holding={0: {0: 1}}, now=100.0), SpeedSamples(1)
    ctx.table.rate[:], ctx.table.progress_from[:] = 0.5, 130.0  # it is starting until then
    for now, believed in ((100.0, None), (160.0, None), (220.0, 2.0)):
        ctx.now = now
        seen.sample(ctx.running, now)
        model = seen.model(0)
        assert (None if model is None else pytest.approx(float(model.sum()))) == believed


def divided(lab: Any, gpus: int, steps: list[dict[int, float]]) -> list[int]:
    """GPUs of jobs whose gang is 3, of 1 to 8, by what is said of them."""
    ctx = lab.context("1x8", [3] * len(steps))
    ctx.table.min_gpus[:], ctx.table.max_gpus[:] = 1, 8
    scaling: Any = SimpleNamespace(
        step=lambda row, size: steps[row].get(size, math.inf),
        steps_left=lambda units: np.full(len(units), 100.0),
    )
    found: list[int] = by_oracle(ctx.units, gpus, Belief(by_count=scaling)).tolist()
    return found


def test_a_job_unknown_to_the_oracle_has_its_gang(lab: Any) -> None:
    nothing = dict.fromkeys(range(1, 9), math.nan)
    scales = {size: 1.0 / size for size in range(1, 9)}
    assert divided(lab, 8, [nothing, scales]) == [3, 5]
    assert divided(lab, 2, [nothing, scales]) == [0, 2]


def test_a_job_that_does_not_run_on_few_gpus_begins_with_its_minimum(lab: Any) -> None:
    scales = {size: 1.0 / size for size in range(1, 9)}
    large = {4: 1.0, 5: 1.0}
    assert divided(lab, 8, [large, scales]) == [4, 4]
    assert divided(lab, 3, [large, scales]) == [0, 3]
    assert divided(lab, 8, [{}, scales]) == [0, 8]  # runs nowhere
