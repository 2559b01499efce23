"""Gradient noise, learning rates and batch sizes, as numbers."""

from __future__ import annotations

import io
import math
import random

import pytest

from dlsched.job.errors import JobError
from dlsched.job.scaling.gradient_noise import GradientNoise, rate_factor
from dlsched.job.scaling.step_times import BatchLimits, StepTimes, split


def measured(count: int, part: float, *, steps: int = 4000, seed: int = 1) -> GradientNoise:
    """Gradients of 2 and 1 with a variance of 3 a sample, `part` initial batches of 1 in each."""
    noise, draw = GradientNoise(), random.Random(seed)
    for _ in range(steps):
        each = [[draw.gauss(mu, math.sqrt(3 / part)) for mu in (2, 1)] for _ in range(count)]
        mean = [sum(g[k] for g in each) / count for k in (0, 1)]
        local = sum(g[0] ** 2 + g[1] ** 2 for g in each) / count
        noise.add(local, mean[0] ** 2 + mean[1] ** 2, count=count, scale=count * part)
    return noise


@pytest.mark.parametrize(("count", "part"), [(2, 0.5), (4, 0.25), (3, 1.0), (8, 2.0)])
def test_the_noise_does_not_depend_on_how_the_batch_was_split(count: int, part: float) -> None:
    noise = measured(count, part)
    assert noise.sqr == pytest.approx(5, rel=0.15)
    assert noise.var == pytest.approx(6, rel=0.15)


def test_one_measurement_counts_fully_and_the_mean_forgets_slowly() -> None:
    noise = GradientNoise()
    assert (noise.is_known, noise.sqr, noise.var, noise.gain(8)) == (False, 0.0, 1.0, 1.0)
    noise.add(3.0, 2.0, count=2, scale=1.0)  # sqr 2·2-3, var 3-2
    assert [noise.sqr, noise.var] == pytest.approx([1.0, 1.0])
    noise.add(8.0, 5.0, count=2, scale=2.0)  # sqr 2, var 6; kept: 0.999 ** 2
    kept, fresh = 0.999**2 * 0.001, 1 - 0.999**2
    assert noise.sqr == pytest.approx((kept * 1 + fresh * 2) / (kept + fresh))
    assert noise.var == pytest.approx((kept * 1 + fresh * 6) / (kept + fresh))


def test_a_measurement_stands_for_the_steps_that_were_not_measured() -> None:
    noise = GradientNoise()
    noise.add(3.0, 2.0, count=2, scale=1.0)
    noise.add(8.0, 5.0, count=2, scale=2.0, steps=10)
    kept = 0.999**20
    known, fresh = kept * 0.001, 1 - kept
    assert noise.sqr == pytest.approx((known * 1 + fresh * 2) / (known + fresh))


def test_an_unbiased_measurement_replaces_that_of_two_steps_in_a_row() -> None:
    noise = GradientNoise()
    noise.add_in_a_row(3.0, 2.0, scale=0.5)
    assert [noise.sqr, noise.var] == pytest.approx([1.0, 1.0])
    noise.add(8.0, 5.0, count=2, scale=2.0)
    assert [noise.sqr, noise.var] == pytest.approx([2.0, 6.0])
    noise.add_in_a_row(3.0, 2.0, scale=0.5)
    assert noise.sqr == pytest.approx(2.0)


def test_gradients_as_adam_divides_them_are_of_another_size_and_begin_anew() -> None:
    noise, file = GradientNoise(), io.BytesIO()
    noise.add(8.0, 5.0, count=2, scale=1.0)
    noise.add_in_a_row(3e4, 2e4, scale=0.5, divided=True)  # better than what was measured well
    assert [noise.sqr, noise.var] == pytest.approx([1e4, 1e4])
    noise.add(3e4, 2e4, count=2, scale=2.0, divided=True)
    assert [noise.sqr, noise.var] == pytest.approx([1e4, 2e4])
    noise.add_in_a_row(1.0, 1.0, scale=0.5, divided=True)
    noise.save(file)
    file.seek(0)
    other = GradientNoise()
    other.load(file)
    other.add_in_a_row(1.0, 1.0, scale=0.5, divided=True)  # it knows better, and that it does
    assert (other.sqr, other.var) == (noise.sqr, noise.var)
    other.load(io.BytesIO(b"[1.0, 2.0, 1.0, false]"))  # of an older library
    other.add_in_a_row(1.0, 1.0, scale=0.5)
    assert (other.sqr, other.var) == (1.0, 2.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gradients_that_are_not_finite_are_skipped(bad: float) -> None:
    noise = GradientNoise()
    noise.add(bad, 1.0, count=2, scale=1.0)
    assert (noise.is_known, noise.skipped) == (False, 1)


def test_estimates_below_zero_are_held_at_it() -> None:
    noise = GradientNoise()
    noise.add(5.0, 1.0, count=2, scale=1.0)  # sqr -3
    assert [noise.sqr, noise.var] == pytest.approx([0.0, 4.0])
    noise = GradientNoise()
    noise.add(1.0, 2.0, count=2, scale=1.0)
    assert noise.var == 1e-6


def test_it_goes_on_from_a_checkpoint() -> None:
    noise, file = measured(2, 1.0, steps=3), io.BytesIO()
    noise.save(file)
    file.seek(0)
    other = GradientNoise()
    other.load(file)
    assert (other.sqr, other.var, other.is_known) == (noise.sqr, noise.var, True)


def test_the_gain_of_a_step() -> None:
    noise = GradientNoise()
    noise.add(2.5, 1.5, count=2, scale=4.0)  # sqr 0.5, var 4
    assert noise.gain(1) == pytest.approx(1.0)
    assert noise.gain(2) == pytest.approx(2 * 0.9)
    assert noise.gain(4) == pytest.approx(4 * 0.75)
    assert noise.gain(16) == pytest.approx(16 * 0.375)


def test_the_learning_rate_follows_each_rule() -> None:
    rules = ("adascale", "adam", "linear", "sqrt", "none")
    found = [rate_factor(rule, 4.0, 2.25) for rule in rules]  # type: ignore[arg-type]
    assert found == [2.25, 1.5, 4.0, 2.0, 1.0]
    with pytest.raises(JobError, match="one of adascale, adam, linear, sqrt, none"):
        rate_factor("cubic", 1.0, 1.0)  # type: ignore[arg-type]


def test_a_batch_is_split_over_replicas_and_passes() -> None:
    assert split(128, 1, 256, may_accumulate=True) == (128, 0)
    assert split(128, 3, 256, may_accumulate=True) == (43, 0)
    assert split(512, 1, 256, may_accumulate=True) == (256, 1)
    assert split(640, 1, 256, may_accumulate=True) == (214, 2)
    assert split(640, 1, 256, may_accumulate=False) == (640, 0)
    assert split(4, 8, 256, may_accumulate=True) == (1, 0)


def test_a_preferred_batch_must_be_within_the_limits() -> None:
    limits = BatchLimits(
        initial=128, maximum=1024, local_min=32, local_max=256, may_accumulate=True, fixed=False
    )
    assert limits.allows(4, 256, 0)
    assert limits.allows(3, 171, 1)  # 1026 by rounding up
    assert not limits.allows(4, 257, 0)
    assert not limits.allows(4, 31, 0)
    assert not limits.allows(4, 256, 1)
    assert not limits.allows(1, 64, 0)
    assert not limits.allows(1, 128, -1)


def test_times_are_means_by_batch_size() -> None:
    times = StepTimes()
    times.stepped(8, 0.5, 0.25)
    times.stepped(8, 1.0, 0.25)
    times.passed(8, 0.5)
    times.passed(16, 1.0)  # its step has not come yet
    for seconds, sync_s in ((0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (1.0, 2.0), (1.0, -1.0)):
        times.stepped(8, seconds, sync_s)
    assert times.columns() == ((8,), (2,), (0.5,), (0.75,))


def test_the_last_pass_of_a_step_never_takes_less_time_than_another() -> None:
    times = StepTimes()
    times.stepped(8, 0.5, 0.0)
    times.passed(8, 0.75)  # something else was in its way
    assert times.columns() == ((8,), (1,), (0.625,), (0.625,))
