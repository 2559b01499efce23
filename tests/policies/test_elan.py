"""Elan: which rank copies the state to which, and what a resize costs in a replay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.core.units import UnitTable
from dlsched.policies.launch.elan.replication import copies, takes_s
from dlsched.policies.registry import make

NVLINK, PCIE, SOCKET, NETWORK = range(4)
SPEED = (40.0, 10.0, 5.0, 3.0)


def level(one: int, other: int) -> int:
    """GPUs 0 to 7 on one node, 8 on on the next; NVLink pairs, PCIe groups of a node's halves."""
    if (one < 8) != (other < 8):
        return NETWORK
    if {one, other} in ({0, 1}, {2, 3}):
        return NVLINK
    group = {2, 3, 4, 5}
    return PCIE if one >= 8 or (one in group) == (other in group) else SOCKET


def test_new_workers_have_the_state_from_the_nearest_that_is_least_busy() -> None:
    local = [(copy.target, copy.source) for copy in copies([0, 1, 2, 3], [4, 5], level)]
    assert local == [(4, 2), (5, 3)]
    apart = copies([0, 1, 2, 3], [8, 9], level)
    assert [(copy.target, copy.source) for copy in apart] == [(8, 0), (9, 8)]
    assert takes_s(apart, 1.2, SPEED) == pytest.approx(0.52)


def test_copies_from_different_sources_run_at_once() -> None:
    assert takes_s(copies([0, 1, 2, 3], [4, 5], level), 1.2, SPEED) == pytest.approx(0.12)
    assert takes_s([], 1.2, SPEED) == 0.0


@given(st.sets(st.integers(0, 15), min_size=1), st.sets(st.integers(0, 15)))
def test_every_worker_gets_the_state_once_from_a_worker_that_has_it(
    old: set[int], new: set[int]
) -> None:
    has = set(old)
    planned = copies(sorted(old), sorted(new - old), level)
    for copy in planned:
        assert copy.source in has
        assert copy.level == min(level(gpu, copy.target) for gpu in has)
        has.add(copy.target)
    assert has == old | new
    least = max((1.2 / SPEED[copy.level] for copy in planned), default=0.0)
    total = sum(1.2 / SPEED[copy.level] for copy in planned)
    assert least <= takes_s(planned, 1.2, SPEED) + 1e-12 <= total + 2e-12


@pytest.mark.parametrize(
    ("options", "after", "slowdown", "expected"),
    [
        ({}, (0b1, 0b0), 1.0, 1.0),
        ({}, (0b1111, 0b0), 0.5, 11.0),
        ({}, (0b1111, 0b0), 0.01, 20.8),
        ({"startup_s": "60"}, (0b1111, 0b0), 0.1, 30.0),
        ({"fixed_s": "none"}, (0b1, 0b0), 1.0, 0.5),
        ({"fixed_s": "none"}, (0b1111, 0b0), 1.0, 0.6),
        ({"fixed_s": "none", "state_gb": "3"}, (0b11, 0b11), 1.0, 0.5 + 1 + 0.3),
    ],
    ids=["shrink", "grow", "grow much", "a restart at most", "group", "local", "network"],
)
def test_a_resize_costs(
    options: dict[str, str], after: tuple[int, int], slowdown: float, expected: float
) -> None:
    launch = make("launch", "elan", options)
    before = Placement((0,), (0b11,))
    nodes = [node for node, mask in enumerate(after) if mask]
    placed = Placement(tuple(nodes), tuple(after[node] for node in nodes))
    cost = launch.adjustment(0, before, placed, UnitTable(1), 30.0, lambda: slowdown)
    assert cost == pytest.approx(expected)
    assert launch.overhead(0, placed, UnitTable(1), 30.0) == 30.0


def test_cheap_resizes_in_a_replay(lab: Any) -> None:
    table = ThroughputTable(
        [
            Measurement(gpu_type="v100", scale=k, kind=JobKind("m"), rate=rate)
            for k, rate in ((1, 1.0), (2, 1.8), (4, 3.0))
        ]
    )
    trace = lab.trace(
        [(0, 1, 1), (100, 1, 1)],
        model=["m", "m"],
        total_iterations=[2000, 200],
        min_gpus=[1, 1],
        max_gpus=[4, 4],
    )
    runs = {
        launch: lab.run(
            trace, "afs", cluster="1x4:v100", throughputs=table, overhead=30.0, launch=launch
        )
        for launch in ("constant", "elan")
    }
    dear, cheap = runs["constant"], runs["elan"]
    assert dear.jobs.resizes.tolist() == cheap.jobs.resizes.tolist() == [2, 0]
    assert dear.jobs.lost_seconds.tolist() == pytest.approx([90, 30])
    # from 4 GPUs to 2 a second, from 2 to 4 a second and 20 s at 1.8 instead of 3
    assert cheap.jobs.lost_seconds.tolist() == pytest.approx([30 + 1 + 1 + 20 * (1 - 1.8 / 3), 30])
