"""Relative speeds of units on the same GPUs: throttled, measured in pairs, staged, by their use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import PolicyFailed
from dlsched.core.options import NoOptions
from dlsched.core.speed.belief import Belief
from dlsched.core.speed.colocation import ColocationTable, MeasuredPairs
from dlsched.core.speed.interference import NoInterference, limited
from dlsched.core.speed.stages import MEASURED_FACTORS, StagedJobs, Stages, interleaved_times
from dlsched.core.speed.utilisation import LoadedGpus
from dlsched.core.walk.walk import Walk
from dlsched.policies.placement.spanning import FirstFree

GPT2, A2C = Stages(0.0006, 0.419, 0.049), Stages(0.502, 0.014, 0.0004)


def test_a_throttled_job_takes_a_part_of_the_time_and_slows_others_less() -> None:
    """AntMan: dur(R) = 1 + k·s, dur(o) = (1 + k) / s; here k is 1 for R and 0.25 for o."""
    full = np.array([0.5, 0.8])
    assert limited(full, np.array([1.0, 0.4])).tolist() == pytest.approx([1 / 1.4, 0.4 / 1.25])
    assert limited(full, np.ones(2)) is full


def test_what_is_asked_for_beyond_a_whole_gpu_is_lost() -> None:
    """R uses 0.7 of the time and o 0.8: k = 0.7 + 0.8·0.5 − 1 = 0.1, of which R feels a half."""
    loaded = LoadedGpus(np.array([0.7, 0.8, 0.1, np.nan]))
    speeds = loaded.relative((0, 1), np.array([1.0, 0.5]), "gpu", 1)
    assert speeds.tolist() == pytest.approx([1 / 1.05, 0.5 / 1.1])
    assert loaded.relative((0, 2), np.ones(2), "gpu", 1).tolist() == [1, 1], "both fit"
    assert loaded.relative((0, 1, 2), np.ones(3), "gpu", 1).tolist() == pytest.approx([1 / 1.6] * 3)
    assert np.isnan(loaded.relative((0, 3), np.ones(2), "gpu", 1)).all()
    assert loaded.relative((3,), np.array([0.5]), "gpu", 1).tolist() == [0.5]


def test_a_pair_is_found_in_either_order_and_no_other() -> None:
    table = ColocationTable(("model",), {(("A",), ("B",), 1): (0.9, 0.6)}, frozenset({1}))
    pairs = MeasuredPairs(table, [("A",), ("B",), ("C",)])
    ones = np.ones(2)
    assert pairs.relative((0, 1), ones, "gpu", 1).tolist() == [0.9, 0.6]
    assert pairs.relative((1, 0), ones, "gpu", 8).tolist() == [0.6, 0.9]
    assert np.isnan(pairs.relative((0, 2), ones, "gpu", 1)).all()
    assert np.isnan(pairs.relative((0, 1, 2), np.ones(3), "gpu", 1)).all()


def time_of(group: list[Stages]) -> float:
    return float(interleaved_times(np.array([group]))[0])


def test_stages_of_a_group_are_interleaved() -> None:
    """Muri's artifact: gpt2 and a2c on 8 GPUs take 0.676662 s together, 0.443555 and 0.563325."""
    assert time_of([GPT2, A2C]) * 1.33 / 1.015 == pytest.approx(0.676662, abs=5e-7)
    assert time_of([A2C, GPT2]) == time_of([GPT2, A2C])
    stages = np.array([GPT2, A2C, A2C, [np.nan] * 3, A2C, A2C])
    jobs = StagedJobs(stages, np.array([0.437, 0.555, 0.555, np.nan, 0.555, 0.555]))
    speeds = jobs.relative((0, 1), np.ones(2), "gpu", 8)
    assert speeds.tolist() == pytest.approx([0.443555 / 0.676662, 0.563325 / 0.676662], rel=1e-5)
    assert np.isnan(jobs.relative((0, 3), np.ones(2), "gpu", 8)).all()
    assert np.isnan(jobs.relative((0, 1, 2, 4, 5), np.ones(5), "gpu", 8)).all(), "five jobs"
    four = time_of([GPT2, A2C, A2C, A2C]) * MEASURED_FACTORS[3] / MEASURED_FACTORS[0]
    both = jobs.relative((0, 1, 2, 4), np.ones(4), "gpu", 8)
    assert both[0] == pytest.approx(0.437 * 1.015 / four)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5),
    st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5),
)
def test_no_job_is_faster_beside_others_or_throttled(use: list[float], limits: list[float]) -> None:
    rows = tuple(range(len(use)))
    parts = np.array(limits[: len(use)])
    speeds = LoadedGpus(np.array(use)).relative(rows, parts, "gpu", 1)
    assert (speeds <= parts + 1e-12).all()
    assert (speeds > 0).all()
    assert ((use * speeds).sum() <= 1 + 1e-9) or (parts < 1).any(), "no more than a GPU gives"


def test_what_is_believed_of_groups_says_when_it_knows_nothing() -> None:
    nothing = Belief()
    assert nothing.together((0,), "gpu", 1).tolist() == [1.0]
    assert np.isnan(nothing.together((0, 1), "gpu", 1)).all()
    assert Belief(sharing=NoInterference()).together((0, 1, 2), "gpu", 1).tolist() == [1, 1, 1]


# -- the walk -------------------------------------------------------------------------------------


def shared_room(lab: Any, cluster: str, memory: list[float]) -> Walk:
    ctx = lab.context(cluster, [1] * len(memory), holding={0: {0: 1}})
    ctx.may_share = True
    ctx.table.gpu_memory[:] = memory
    return Walk(ctx, FirstFree(NoOptions()), preemptive=True)


def test_jobs_whose_memory_does_not_fit_share_no_gpus(lab: Any) -> None:
    walk = shared_room(lab, "1x1:v100@16", [10.0, 5.0, 2.0, np.nan])
    walk.share(1, 0)
    with pytest.raises(PolicyFailed, match=r"have 16 GiB of memory; 17 GiB are needed"):
        walk.share(2, 0)
    walk.share(3, 1)
    assert walk.occupancy.beside[0] == (1, 3)


def test_jobs_of_which_nothing_is_known_together_share_no_gpus(lab: Any) -> None:
    walk = shared_room(lab, "1x1", [1.0] * 3)
    table = ColocationTable(("model",), {(("A",), ("B",), 1): (0.9, 0.6)}, frozenset({1}))
    walk.ctx.perf = Belief(sharing=MeasuredPairs(table, [("A",), ("B",), ("C",)]))
    assert not walk.has_room(2, 0)
    with pytest.raises(PolicyFailed, match=r"unit 2 .* unit 0 has, and how fast .* not known"):
        walk.share(2, 0)
    walk.share(1, 0)
