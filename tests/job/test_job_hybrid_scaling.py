"""Hybrid scaling: the sheet's worked example, and what holds for any resizes."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.job.errors import JobError
from dlsched.job.hybrid_scaling import HybridScaling, best_workers, parts_of
from dlsched.job.sampler import ElasticSampler

BEST = {256: 8, 512: 16, 1024: 32, 2048: 64}  # workers with which a batch is fastest
RATE = 0.1


def example() -> HybridScaling:
    return HybridScaling(BEST.__getitem__, 256, largest=2048)


def test_the_worked_example() -> None:
    training = example()
    seen = []
    for workers in (8, 12, 40, 100, 10, 4):
        training.resize(workers)
        for _ in range(25):
            training.step()
        quarter = training.factor * RATE
        for _ in range(75):
            training.step()
        seen.append((training.batch, training.workers, quarter, training.factor * RATE))
    assert seen == [
        (256, 8, pytest.approx(0.1), pytest.approx(0.1)),
        (512, 12, pytest.approx(0.125), pytest.approx(0.2)),
        (2048, 40, pytest.approx(0.2 + 0.6 / 4), pytest.approx(0.8)),
        (2048, 64, pytest.approx(0.8), pytest.approx(0.8)),  # the rest is given back
        (512, 10, pytest.approx(0.2), pytest.approx(0.2)),  # at once
        (256, 4, pytest.approx(0.1), pytest.approx(0.1)),
    ]


def test_a_growth_within_a_ramp_climbs_from_where_it_is() -> None:
    training = example()
    training.resize(12)
    for _ in range(50):
        training.step()
    assert training.factor == pytest.approx(1.5)
    training.resize(40)
    assert training.factor == pytest.approx(1.5)
    for _ in range(100):
        training.step()
    assert training.factor == pytest.approx(8.0)


def test_the_fastest_number_of_workers_is_the_smallest_of_equal_ones() -> None:
    assert best_workers({1: 10.0, 2: 19.0, 4: 19.0, 8: 12.0}) == 2


@pytest.mark.parametrize(("batch", "largest", "steps"), [(0, None, 1), (8, 4, 1), (8, None, 0)])
def test_impossible_numbers_are_refused(batch: int, largest: int | None, steps: int) -> None:
    with pytest.raises(JobError, match=f"a batch of {batch}"):
        HybridScaling(BEST.__getitem__, batch, largest=largest, ramp_steps=steps)
    with pytest.raises(JobError, match="0 workers"):
        example().resize(0)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(0, 150))
def test_any_resizes(sizes: list[int], steps: int) -> None:
    training = example()
    for workers in sizes:
        before = training.factor
        grown = training.batch
        training.resize(workers)
        assert training.batch in BEST
        assert training.workers <= min(workers, BEST[training.batch])
        if training.batch >= grown:
            assert training.factor == before  # a ramp never jumps
        else:
            assert training.factor == training.batch / 256
        if training.batch > 256:  # the batch is never larger than the workers need
            assert workers > BEST[training.batch // 2] or training.batch == grown
        kept = io.BytesIO()
        training.save(kept)
        kept.seek(0)
        again = example()
        again.load(kept)
        for each in (training, again):
            for _ in range(steps):
                each.step()
        assert (again.batch, again.workers, again.factor) == (
            training.batch, training.workers, training.factor,
        )  # fmt: skip


@given(st.integers(1, 4096), st.integers(1, 64))
def test_the_parts_of_a_batch_are_whole(batch: int, workers: int) -> None:
    parts = parts_of(batch, workers)
    assert sum(parts) == batch
    assert sorted(parts, reverse=True) == parts
    assert parts[-1] == batch // workers


@pytest.mark.parametrize("sizes", [(4, 5), (3, 7, 2), (2, 4, 3)])
def test_each_sample_is_used_once_over_resizes(sizes: tuple[int, ...]) -> None:
    """A thousand samples in batches of 100: three steps with each number of workers but the last.

    `batch` divides over workers as `parts_of` says; worker r takes positions r, r + N, ...
    """
    used: list[int] = []
    for place, workers in enumerate(sizes):
        last = place == len(sizes) - 1
        end = 1000 if last else 300 * (place + 1)
        for consumed in range(len(used), end, 100):
            for rank, size in enumerate(parts_of(100, workers)):
                sampler = ElasticSampler(
                    1000, rank=rank, world_size=workers, shuffle=False, pad=False
                )
                sampler.consumed = consumed
                used += list(sampler)[:size]
        assert sorted(used) == list(range(end))
