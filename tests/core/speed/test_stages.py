"""How long jobs take that take turns: Muri's examples, and what holds of any stages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dlsched.core.speed.stages import (
    MEASURED_FACTORS,
    efficiencies,
    group_times,
    interleaved_times,
    wheel_times,
)

# on 8 GPUs: data, GPU, network, and the whole iteration alone [ms]
MODELS = {
    "gpt2": (0.6, 419, 49, 437),
    "a2c": (502, 14, 0.4, 555),
    "bert": (0.5, 167, 59, 192),
    "shufflenet": (769, 57, 10, 957),
    "vgg16": (82, 75, 66, 214),
}


def together(*models: str) -> tuple[float, float, float]:
    """Seconds of an iteration together, one after the other, and the efficiency."""
    stages = np.array([[MODELS[model][:3] for model in models]]) / 1e3
    alone = np.array([[MODELS[model][3] for model in models]]) * MEASURED_FACTORS[0] / 1e3
    times = group_times(stages, alone)
    return float(times[0]), float(alone.sum()), float(efficiencies(stages, times)[0])


def test_two_jobs_of_different_resources_gain() -> None:
    time, apart, efficiency = together("gpt2", "a2c")
    assert time == pytest.approx(0.676662, abs=1e-6)
    assert efficiency == pytest.approx(0.363919, abs=1e-6)
    assert time < apart == pytest.approx(0.443555 + 0.563325)
    time, _, efficiency = together("bert", "shufflenet")
    assert (time, efficiency) == pytest.approx((1.095448, 0.242481), abs=1e-6)


def test_two_jobs_of_the_same_resource_lose() -> None:
    time, apart, _ = together("gpt2", "gpt2")
    assert time == pytest.approx(1.098855, abs=1e-6)
    assert time > apart == pytest.approx(0.88711)


def test_equal_jobs_of_even_stages_gain() -> None:
    time, apart, _ = together("vgg16", "vgg16")
    assert time / (MEASURED_FACTORS[1] / MEASURED_FACTORS[0]) == pytest.approx(0.232)
    assert time == pytest.approx(0.304, abs=1e-6)
    assert time < apart


def test_a_job_alone_takes_what_was_measured() -> None:
    assert together("a2c")[0] == pytest.approx(0.563325)


groups = st.integers(1, 4).flatmap(
    lambda jobs: arrays(np.float64, (3, jobs, 3), elements=st.floats(0, 1e3, allow_subnormal=False))
)


@given(groups)
def test_no_order_is_better_than_the_best_or_worse_than_the_worst(stages: np.ndarray) -> None:
    best, worst = interleaved_times(stages), interleaved_times(stages, "worst")
    for order in ([*range(stages.shape[1])], [*range(stages.shape[1])][::-1]):
        times = interleaved_times(stages[:, order], "given")
        assert (best <= times).all()
        assert (times <= worst).all()
        assert (interleaved_times(stages[:, order]) == best).all()


@given(groups)
def test_groups_do_not_depend_on_each_other(stages: np.ndarray) -> None:
    one_by_one = [float(wheel_times(stages[k : k + 1])[0]) for k in range(len(stages))]
    assert wheel_times(stages).tolist() == one_by_one


@given(groups)
def test_a_resource_is_never_used_by_two_at_once(stages: np.ndarray) -> None:
    """An iteration is at least as long as the GPU work, and as the network work, of all jobs."""
    times = interleaved_times(stages, "best")
    per_resource = stages[:, :, 1:].sum(axis=1).max(axis=1)
    assert (times >= per_resource * (1 - 3e-3) - 1e-9).all()
