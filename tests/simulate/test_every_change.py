"""A clock of a published simulator: at every change all running units lose their overhead again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

MURI = ("semantics=muri",)


def test_every_change_costs_every_running_unit_its_overhead(lab: Any) -> None:
    # A has done 90 at 100, no more at 110, and 180 at 210; then it is foreseen at 1030, and ends
    jobs = [(0, 1, 1000), (100, 1, 100), (110, 1, 100)]
    result = lab.run(jobs, "fifo", cluster="1x4", options=MURI, overhead=10.0)
    # B: foreseen at 200; at 110 it has done nothing, and is foreseen at 210, as C is
    assert lab.spans(result) == {"A": (0, 1030), "B": (100, 210), "C": (110, 210)}


def test_an_end_is_foreseen_without_the_overhead(lab: Any) -> None:
    result = lab.run([(0, 1, 50)], "fifo", cluster="1x1", options=MURI, overhead=10.0)
    assert lab.spans(result) == {"A": (0, 50)}


def test_units_on_the_same_gpus_lose_the_overheads_of_all(lab: Any) -> None:
    # they take 95 ms together, × 1.33 / 1.015 for sharing, and half of that alone
    alone_ms = 0.5 * 95 * 1.33 / 1.015**2
    columns = {
        "data_ms": [90.0, 5.0, 5.0],
        "gpu_ms": [5.0, 90.0, 5.0],
        "network_ms": [0.0, 0.0, 0.0],
        "iteration_ms": [alone_ms, alone_ms, 10.0],
        "restart_overhead": [10.0, 20.0, 5.0],
    }
    trace = lab.trace([(0, 2, 1000), (0, 2, 1000), (500, 1, 100)], **columns)
    options = (*MURI, "factors=1,1")
    engine = lab.engine(trace, "muri", cluster="1x1+1x2", options=options, overhead=None)
    engine.run()
    assert engine.world.table.finish[2] == 600
    # at 500 both have done (500 - 30) / 2, at 600 (100 - 30) / 2 more
    ends = engine.world.table.finish[:2].tolist()
    assert ends == pytest.approx([600 + 2 * (1000 - 235 - 35)] * 2)


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 4), st.integers(1, 400)),
        min_size=1,
        max_size=12,
    ),
    policy=st.sampled_from(["fifo", "srtf", "srsf", "las", "muri"]),
)
def test_every_unit_ends_and_all_time_is_accounted_for(
    lab: Any, jobs: list[Any], policy: str
) -> None:
    result = lab.run(jobs, policy, cluster="2x2", options=MURI, overhead=7.0)
    assert (result.jobs.status == "completed").all()
    took = result.jobs.finish_time - result.jobs.first_start_time
    assert (took >= result.jobs.duration - 1e-6).all()


def test_without_overhead_it_is_the_plain_clock(lab: Any) -> None:
    jobs = [(k * 7.0, 1 + k % 3, 50.0 + 13 * k) for k in range(20)]
    plain = lab.run(jobs, "srtf", cluster="2x2", placement="min-nodes")
    every = lab.run(jobs, "srtf", cluster="2x2", options=MURI, placement="min-nodes", overhead=0.0)
    assert every.jobs.finish_time == pytest.approx(plain.jobs.finish_time)
