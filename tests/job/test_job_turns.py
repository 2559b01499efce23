"""A rank waits for its turn on shared GPUs, and tells what memory its step has used."""

from __future__ import annotations

import mmap
import os
from typing import Any

import pytest

from dlsched.job import JobError, attach
from dlsched.job import messages as words

MIB = 1024**2


def sharing(keeper: Any) -> dict[str, str]:
    return {
        "DLSCHED_CTL_SOCK": keeper.path,
        "DLSCHED_JOB_ID": "7",
        "DLSCHED_RUN": "1",
        "DLSCHED_GPU_SHARE": "0.5",
    }


def grant(message: words.FromJob) -> words.FromKeeper | None:
    return words.Turn(shared=True) if isinstance(message, words.StepBegin) else None


def test_without_a_scheduler_and_with_a_whole_gpu_steps_begin_at_once(keeper: Any) -> None:
    for environment in ({}, sharing(keeper) | {"DLSCHED_GPU_SHARE": ""}):
        with attach(environment=environment) as job:
            for _ in range(3):
                job.step_begin()
                job.step_end()
                assert job.step()
    assert not keeper.all(words.StepBegin)


def test_the_memory_of_a_step_is_measured(keeper: Any) -> None:
    keeper.answer = grant
    with attach(environment=sharing(keeper)) as job:
        job.step_begin()
        job.step_end()  # what this process had freed before is given back
        job.step_begin()
        kept = mmap.mmap(-1, 32 * MIB)
        kept.write(b"x" * (32 * MIB))
        with mmap.mmap(-1, 96 * MIB) as freed:
            freed.write(b"x" * (96 * MIB))
        job.step_end()
        job.step_begin()
        job.step_end()
        kept.close()
    _, second, third = keeper.all(words.StepEnd)
    before = keeper.all(words.StepBegin)[1].held_bytes
    assert second.held_bytes - before >= 25 * MIB
    assert second.most_bytes - second.held_bytes >= 90 * MIB
    assert third.most_bytes - third.held_bytes < 90 * MIB, "the most of an earlier step"


def test_a_rank_waits_until_its_turn_comes_and_says_how_much_it_has_left(keeper: Any) -> None:
    keeper.answer = grant
    with attach(environment=sharing(keeper)) as job:
        job.step_begin(steps_left=3)
        job.step_end()
        job.step_begin(steps_left=2)
        job.step_end()
    first, second = keeper.all(words.StepBegin)
    assert first.left_s is None  # nothing was measured yet
    assert 0 <= second.left_s < 60


def test_a_rank_goes_on_when_its_keeper_is_gone(keeper: Any) -> None:
    def hang_up(message: words.FromJob) -> words.FromKeeper | None:
        if isinstance(message, words.StepBegin):
            os.close(keeper.connections[-1].detach())
        return None

    with attach(environment=sharing(keeper)) as job:
        keeper.answer = hang_up
        job.step_begin()
        job.step_end()
        assert job.step()


def test_steps_that_do_not_alternate_with_their_ends_are_refused() -> None:
    with attach(environment={}) as job:
        with pytest.raises(JobError, match="step_end: no step has begun"):
            job.step_end()
        job.step_begin()
        with pytest.raises(JobError, match="step_begin: the step before has not ended"):
            job.step_begin()
