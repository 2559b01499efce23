"""Speed, efficiency and best batch sizes: points worked out by hand, to six digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.core.goodput.batch import best_batch, best_batches
from dlsched.core.goodput.efficiency import UNKNOWN_NOISE, efficiency, gain
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.core.goodput.throughput import (
    accumulation_time,
    iteration_time,
    network_time,
    optimiser_time,
    throughput,
)

PERF = PerfParams(0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5)
GRADS = GradParams(0.5, 4.0)
LIMITS = BatchLimits.of(128, 4096, 32, 256)

# nodes, replicas, local, accumulation, batch, times (pass, network, last pass, step), throughput,
# efficiency, goodput
POINTS = [
    (1, 1, 128, 0, 128, 0.306, 1e-8, 0.306, 0.306, 418.301, 1, 418.301),
    (1, 1, 128, 1, 256, 0.306, 1e-8, 0.306, 0.612, 418.301, 0.9, 376.471),
    (1, 1, 512, 3, 2048, 1.074, 1e-8, 1.074, 4.296, 476.723, 0.375, 178.771),
    (1, 2, 64, 0, 128, 0.178, 0.02, 0.182442, 0.182442, 701.594, 1, 701.594),
    (1, 2, 256, 0, 512, 0.562, 0.02, 0.564512, 0.564512, 906.977, 0.75, 680.233),
    (1, 4, 128, 0, 512, 0.306, 0.026, 0.311032, 0.311032, 1646.13, 0.75, 1234.6),
    (1, 4, 512, 1, 4096, 1.074, 0.026, 1.0767, 2.1507, 1904.5, 0.225, 428.513),
    (2, 2, 128, 0, 256, 0.306, 0.1, 0.343013, 0.343013, 746.327, 0.9, 671.694),
    (2, 8, 128, 0, 1024, 0.306, 0.16, 0.378943, 0.378943, 2702.25, 0.5625, 1520.02),
    (2, 8, 256, 2, 6144, 0.562, 0.16, 0.617563, 1.74156, 3527.87, 0.160714, 566.978),
    (4, 16, 64, 0, 1024, 0.178, 0.24, 0.333592, 0.333592, 3069.62, 0.5625, 1726.66),
    (4, 16, 256, 0, 4096, 0.562, 0.24, 0.662215, 0.662215, 6185.3, 0.225, 1391.69),
    (16, 64, 32, 0, 2048, 0.114, 0.72, 0.749932, 0.749932, 2730.91, 0.375, 1024.09),
]
SHAPES = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 2), (2, 8), (4, 16), (8, 32), (16, 64)]
BEST = [418.301, 745.259, 1025.13, 1271.16, 679.114, 1535.59, 1806.71, 1670.27, 1184.8]
LOCAL = [128, 121, 100, 87, 161, 106, 97, 94, 64]


def six(value: float) -> object:
    """Equal to six digits."""
    return pytest.approx(value, rel=5e-6)


@pytest.mark.parametrize("point", POINTS)
def test_points_of_the_model(point: tuple[float, ...]) -> None:
    nodes, replicas, local, passes, batch, compute, network, last, step, rate, eff, good = point
    n, k, s = int(nodes), int(replicas), int(passes)
    assert float(accumulation_time(PERF, local)) == six(compute)
    assert float(network_time(PERF, n, k)) == pytest.approx(network, rel=1e-6)
    assert float(optimiser_time(PERF, n, k, local)) == six(last)
    assert float(iteration_time(PERF, n, k, local, s)) == six(step)
    assert float(throughput(PERF, n, k, local, s)) == six(rate)
    assert float(efficiency(GRADS, batch / 128)) == six(eff)
    assert float(throughput(PERF, n, k, local, s) * efficiency(GRADS, batch / 128)) == six(good)


def test_best_batch_sizes() -> None:
    nodes, replicas = np.array(SHAPES).T
    best = best_batch(PERF, GRADS, LIMITS, nodes, replicas)
    assert best.goodput.tolist() == [six(value) for value in BEST]
    assert best.local.tolist() == LOCAL
    assert best.accumulation.tolist() == [0] * len(SHAPES)
    speedup = best.goodput / best.goodput[0]
    assert speedup[[1, 3, 4, 5, 6]].tolist() == [
        six(value) for value in (1.78164, 3.03887, 1.62351, 3.67102, 4.31917)
    ]


def test_without_accumulation_one_gpu_may_take_more_at_once() -> None:
    best = best_batch(PERF, GRADS, LIMITS._replace(accumulation=False), 1, 1)
    assert float(best.goodput) == six(420.743)
    assert (int(best.local), int(best.accumulation)) == (159, 0)


def test_many_jobs_at_once_are_the_jobs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlsched.core.goodput.batch.LARGEST_PASS", 700)
    nodes, replicas = np.array(SHAPES).T
    factors = np.array([1.0, 2.0, 0.5])
    perf = PerfParams(*(np.array([v] * 3) for v in PERF))._replace(beta_c=0.002 * factors)
    grads = GradParams(np.full(3, 0.5), 4.0 * factors)
    limits = BatchLimits(*(np.array([v] * 3) for v in LIMITS))
    together = best_batches(perf, grads, limits, nodes, replicas)
    for job in range(3):
        alone = best_batch(
            PerfParams(*(float(v[job]) for v in perf)),  # type: ignore[index]  # arrays
            GradParams(*(float(v[job]) for v in grads)),  # type: ignore[index]
            LIMITS,
            nodes,
            replicas,
        )
        for all_jobs, one in zip(together, alone, strict=True):
            assert all_jobs[job].tolist() == one.tolist()


def test_a_shape_that_no_batch_size_allows_has_no_goodput() -> None:
    few = BatchLimits.of(256, 512, 64, 128, accumulation=False)
    best = best_batch(PERF, GRADS, few, np.array([1, 1]), np.array([4, 1]))
    assert best.goodput[0] > 0
    assert best.goodput[1] == 0
    assert best_batch(PERF, GRADS, few, 1, 0).goodput == 0
    nothing_known = PerfParams(*[np.nan] * 7)
    assert best_batch(nothing_known, GRADS, few, 1, 1).goodput == 0


def test_clamping_brings_a_batch_into_its_limits() -> None:
    few = BatchLimits.of(128, 256, 64, 128, accumulation=False)
    assert best_batch(PERF, GRADS, few, 2, 5, clamp=True).local == 64
    assert best_batch(PERF, GRADS, few, 1, 1, clamp=True).local == 128


def test_a_fixed_batch_is_split_and_not_changed() -> None:
    fixed = BatchLimits.of(256, 32768, 32, 32768, fixed=True)
    best = best_batch(PERF, GRADS, fixed, np.array([1, 1]), np.array([1, 3]))
    assert best.local.tolist() == [16384, 10923]
    assert best.accumulation.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("total", "replicas", "local", "accumulation"),
    [
        (640, 1, 214, 2),  # 2.5 times what a GPU holds: three passes
        (512, 1, 256, 1),  # twice exactly
        (257, 1, 129, 1),  # one sample too many
        (256, 1, 128, 1),  # held at once, but no noise could be measured then
        (1600, 3, 178, 2),  # 533.3 each
        (768, 3, 256, 0),
        (771, 3, 129, 1),
    ],
)
def test_what_a_gpu_cannot_hold_at_once_takes_as_few_passes_as_can_be(
    total: int, replicas: int, local: int, accumulation: int
) -> None:
    fixed = BatchLimits(128, total, 32, 256, True, True)
    best = best_batch(PERF, GRADS, fixed, 1, replicas)
    assert (int(best.local), int(best.accumulation)) == (local, accumulation)
    speed = throughput(PERF, 1, replicas, local, accumulation)
    batch = replicas * local * (accumulation + 1)
    assert float(best.goodput) == six(float(speed * efficiency(GRADS, batch / 128)))


def test_a_part_that_is_whole_but_for_rounding_is_whole() -> None:
    limits = BatchLimits.of(187, 768, 1, 256)  # 187 * (768 / 187) is a little more than 768
    best = best_batch(PERF, UNKNOWN_NOISE, limits, 1, 3)
    assert (int(best.local), int(best.accumulation)) == (256, 0)


def test_gain_where_nothing_is_known() -> None:
    assert efficiency(UNKNOWN_NOISE, 64.0) == 1
    assert gain(GradParams(0.0, 0.0), 8.0) == 1


@pytest.mark.parametrize(
    ("given_limits", "words"),
    [
        ((0,), "the initial batch size must be a number from 1 up, not 0"),
        ((float("nan"),), "the initial batch size must be a number from 1 up, not nan"),
        ((128, 64), "the maximum batch size 64 is below the initial 128"),
        ((128, 256, 64, 32), "the smallest local batch size 64 is above the largest, 32"),
        ((8, 16, 32, 64), "the smallest local batch size 32 is above the maximum batch size 16"),
    ],
)
def test_limits_that_no_batch_keeps_are_refused(
    given_limits: tuple[float, ...], words: str
) -> None:
    with pytest.raises(BadInput, match=f"^job x: {words}$"):
        BatchLimits.of(*given_limits, what="job x")


@given(
    st.floats(1e-3, 1.0),
    st.floats(1e-6, 1e-2),
    st.floats(1.0, 10.0),
    st.integers(1, 64),
    st.floats(1e-3, 1e6),
)
def test_more_samples_never_train_faster_than_their_number(
    constant: float, growth: float, gamma: float, replicas: int, noise: float
) -> None:
    perf = PerfParams(constant, growth, constant, growth, constant / 2, growth, gamma)
    best = best_batch(perf, GradParams(1.0, noise), LIMITS, min(replicas, 2), replicas)
    alone = best_batch(perf, GradParams(1.0, noise), LIMITS, 1, 1)
    assert best.goodput <= alone.goodput * replicas * (1 + constant / growth)
    if best.goodput > 0:
        batch = replicas * best.local * (best.accumulation + 1)
        assert 128 <= batch <= 4096 + replicas * (best.accumulation + 1)
        assert 32 <= best.local <= 256
