from __future__ import annotations

import io
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.job import ElasticSampler, JobError


def moved(sampler: ElasticSampler, rank: int, world_size: int, pad: bool) -> ElasticSampler:
    """The same epoch in a run of another size."""
    file = io.BytesIO()
    sampler.save(file)
    file.seek(0)
    found = ElasticSampler(sampler.length, rank=rank, world_size=world_size, pad=pad)
    found.load(file)
    return found


@given(
    length=st.integers(1, 200),
    batch=st.integers(1, 7),
    phases=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=5),
    seed=st.integers(0, 3),
    pad=st.booleans(),
)
def test_each_sample_is_seen_once_an_epoch_however_many_ranks_there_are(
    length: int, batch: int, phases: list[tuple[int, int]], seed: int, pad: bool
) -> None:
    position = ElasticSampler(length, seed=seed, pad=pad)
    seen: list[int] = []
    for number, (world, steps) in enumerate(phases):
        last = number == len(phases) - 1
        samplers = [moved(position, rank, world, pad) for rank in range(world)]
        order = samplers[0].order()
        assert all(each.order() == order for each in samplers)
        streams = [list(each) for each in samplers]
        assert [len(each) for each in samplers] == [len(stream) for stream in streams]
        if pad:
            assert len({len(stream) for stream in streams}) == 1
        for step in range(length if last else steps):
            if samplers[0].epoch > 0:
                break
            chunk = slice(step * batch, (step + 1) * batch)
            for stream in streams:
                seen += stream[chunk]
            for each in samplers:
                each.advance(batch)
        position = samplers[0]
        if position.epoch:
            break
    assert set(seen) == set(range(length))
    assert len(seen) - length <= (4 if pad else 0)


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("length", [1, 2, 6, 10])
def test_only_padding_makes_the_parts_of_ranks_alike(length: int, world: int, pad: bool) -> None:
    parts = [
        list(ElasticSampler(length, rank=rank, world_size=world, pad=pad)) for rank in range(world)
    ]
    most = -(-length // world)
    assert {len(part) for part in parts} <= ({most} if pad else {most, length // world})
    assert sum(map(len, parts)) == (most * world if pad else length)
    assert set(chain(*parts)) == set(range(length))


def test_a_step_of_all_ranks_takes_a_whole_block_of_the_order() -> None:
    samplers = [ElasticSampler(12, rank=rank, world_size=3) for rank in range(3)]
    block = sorted(index for each in samplers for index in list(each)[:2])
    assert block == sorted(samplers[0].order()[:6])


def test_batches_go_through_epochs_of_different_orders() -> None:
    sampler = ElasticSampler(10, seed=1)
    batches = list(sampler.batches(4, epochs=2))
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    first, second = [*chain(*batches[:3])], [*chain(*batches[3:])]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert (sampler.epoch, sampler.consumed) == (2, 0)


def test_the_position_is_behind_the_batch_that_is_being_used() -> None:
    sampler = ElasticSampler(10)
    used = next(sampler.batches(4))
    rest = next(moved(sampler, 0, 1, True).batches(10))
    assert sorted(used + rest) == list(range(10))


def test_without_shuffling_the_order_is_that_of_the_data() -> None:
    assert list(ElasticSampler(5, shuffle=False)) == [0, 1, 2, 3, 4]


def test_a_position_in_other_data_is_refused() -> None:
    file = io.BytesIO()
    ElasticSampler(5).save(file)
    file.seek(0)
    with pytest.raises(JobError, match="of 5 samples, the data has 6"):
        ElasticSampler(6).load(file)


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(JobError, match="rank 2 of 2"):
        ElasticSampler(5, rank=2, world_size=2)
