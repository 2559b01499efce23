"""The policy gandiva in replays: turns, packs, moves, growing, and the reduced model's refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.speed.colocation import ColocationTable
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable

SCALING = ThroughputTable(
    [
        Measurement(gpu_type="gpu", scale=scale, kind=JobKind("a"), rate=rate)
        for scale, rate in {1: 1.0, 2: 1.9, 4: 3.6}.items()
    ]
)


def held_by(engine: Any, log: list[tuple[float, frozenset[int]]]) -> None:
    """Note at each decision which rows hold GPUs."""
    engine.observers.append(
        lambda engine, _: log.append((engine.now, frozenset(engine.world.occupancy.held)))
    )


# -- turns ----------------------------------------------------------------------------------------


def test_two_jobs_of_one_server_alternate_every_minute(lab: Any) -> None:
    jobs = [(0, 4, 300), (0, 1, 1000), (10, 4, 300), (10, 2, 300)]
    engine = lab.engine(jobs, "gandiva", cluster="2x4", clock="events")
    log: list[tuple[float, frozenset[int]]] = []
    held_by(engine, log)
    engine.run()
    turns = dict(log)
    assert turns[10.0] >= {0, 1, 3}, "the fourth has two of the second server's free GPUs"
    assert 2 in turns[60.0]
    assert 0 not in turns[60.0]
    assert 0 in turns[120.0]
    assert 2 not in turns[120.0]
    assert 2 in turns[180.0]
    assert 0 not in turns[180.0]
    assert engine.world.table.finish[3] == 310
    # both have 300 s of work; A's last turn is 480 - 540, then C goes on alone
    assert engine.world.table.finish[[0, 2]].tolist() == [540, 600]


@given(
    jobs=st.integers(2, 5), gang=st.sampled_from([1, 2, 4]), seconds=st.sampled_from([30, 60, 90])
)
def test_turns_of_equal_jobs_differ_by_a_slice_at_most(
    lab: Any, jobs: int, gang: int, seconds: int
) -> None:
    engine = lab.engine(
        [(0, gang, 1e6)] * jobs,
        "gandiva",
        cluster=f"1x{gang}",
        clock="events",
        options=(f"slice_s={seconds}",),
        horizon=20.0 * seconds * jobs,
    )
    engine.run()
    table, now = engine.world.table, engine.now
    held = table.held_s + np.where(table.gpus_now > 0, now - table.since, 0.0)
    assert held.max() - held.min() <= seconds + 1e-6
    assert held.sum() == pytest.approx(now)


def test_a_job_starts_at_once_and_not_after_those_before_it(lab: Any) -> None:
    done = lab.run([(0, 1, 100_000), (5, 1, 30)], "gandiva", cluster="1x1", clock="events")
    assert lab.spans(done)["B"] == (60, 90)


# -- packs ----------------------------------------------------------------------------------------


def pairs(speeds: dict[tuple[str, str], tuple[float, float]]) -> ColocationTable:
    found = {((a,), (b,), 1): speed for (a, b), speed in speeds.items()}
    return ColocationTable(("model",), found, frozenset({1}))


def packed(lab: Any, speeds: dict[tuple[str, str], tuple[float, float]], *options: str) -> Any:
    """Two GPUs are used 20 and 35 %, and a job of 15 % has none of its own."""
    trace = lab.trace(
        [(0, 1, 10_000), (0, 1, 10_000), (0, 1, 10_000)],
        model=["twenty", "thirtyfive", "third"],
        gpu_util=[20.0, 35.0, 15.0],
    )
    return lab.engine(
        trace,
        "gandiva",
        cluster="2x1",
        clock="events",
        pairs=pairs(speeds),
        options=("slice_s=100000", *options),
        horizon=2000.0,
        check=False,
    )


def test_a_pack_that_does_not_pay_is_undone_and_the_next_is_tried(lab: Any) -> None:
    engine = packed(lab, {("third", "twenty"): (0.40, 0.55), ("third", "thirtyfive"): (0.45, 0.7)})
    partners: list[tuple[float, tuple[int, ...]]] = []
    engine.observers.append(
        lambda engine, _: partners.append((engine.now, engine.world.occupancy.beside.get(2, ())))
    )
    engine.run()
    tried = [others for _, others in partners if others]
    assert tried[0] == (0,), "the GPU that is used least is tried first"
    assert tried[-1] == (1,), "0.40 + 0.55 does not pay, 0.45 + 0.7 does"
    first_of_next = next(time for time, others in partners if others == (1,))
    assert 60 <= first_of_next <= 200, "a window later"
    assert engine.world.occupancy.beside[2] == (1,)


@given(st.tuples(*[st.floats(0.05, 1.0)] * 4))
def test_no_pack_is_kept_whose_rates_add_up_to_one_or_less(
    lab: Any, rates: tuple[float, float, float, float]
) -> None:
    engine = packed(lab, {("third", "twenty"): rates[:2], ("third", "thirtyfive"): rates[2:]})
    engine.run()
    packs = engine.parts.scheduling.rounds.packs
    for third, pack in packs.of.items():
        both = rates[:2] if pack.host == 0 else rates[2:]
        if pack.is_kept:
            assert third == 2
            assert sum(both) > 1 - 1e-9
    if sum(rates[:2]) > 1 + 1e-9:
        assert packs.of[2].host == 0


def test_without_their_use_of_the_gpu_jobs_take_turns(lab: Any) -> None:
    done = lab.run([(0, 1, 120), (0, 1, 120)], "gandiva", cluster="1x1", clock="events")
    assert done.summary["makespan"] == 240


# -- moves and sizes ------------------------------------------------------------------------------


def test_a_job_moves_to_a_server_that_was_left(lab: Any) -> None:
    jobs = [(0, 4, 1000), (0, 4, 100), (0, 4, 1000)]
    engine = lab.engine(jobs, "gandiva", cluster="2x4", clock="events")
    engine.run()
    # the first and the third take turns until the second's server is left at 100
    assert engine.world.table.finish.tolist() == [1040, 100, 1060]


def test_a_growable_job_gets_gpus_that_are_idle_and_gives_them_back(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 2000), (400, 2, 100)],
        model=["a", "a"],
        total_iterations=[2000.0, 100.0],
        min_gpus=[1.0, 2.0],
        max_gpus=[4.0, 2.0],
    )
    engine = lab.engine(trace, "gandiva", cluster="1x4:gpu", clock="events", throughputs=SCALING)
    sizes: list[tuple[float, int]] = []
    engine.observers.append(
        lambda engine, _: sizes.append((engine.now, int(engine.world.table.gpus_now[0])))
    )
    engine.run()
    assert dict(sizes)[60.0] == 4, "after a minute"
    assert dict(sizes)[400.0] == 1, "as soon as another comes"
    assert max(size for time, size in sizes if time > 400) == 4


# -- the reduced model ----------------------------------------------------------------------------


def test_the_reduced_model_ticks_every_ten_seconds(lab: Any) -> None:
    options = ("semantics=gandiva",)
    done = lab.run([(0, 1, 42), (3, 1, 10)], "gandiva", cluster="1x4", options=options)
    # ticks at 0, 3, 13, 23, …: the first has done 43 s at 43, the second 10 at 13
    assert lab.spans(done) == {"A": (0, 43), "B": (3, 13)}


def test_the_reduced_model_refuses_what_it_does_not_know(lab: Any) -> None:
    options = ("semantics=gandiva",)
    with pytest.raises((BadInput, PolicyFailed), match="knows gangs of 1, 2, 4"):
        lab.run([(0, 3, 100)], "gandiva", cluster="1x4", options=options)
    with pytest.raises((BadInput, PolicyFailed), match="nodes of one size"):
        lab.run([(0, 1, 100)], "gandiva", cluster="1x4+1x2", options=options)
