"""Sentences of the documents that can be checked by running something."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

JOBS = st.lists(
    st.tuples(st.integers(0, 2000), st.integers(1, 8), st.integers(1, 5000)),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("policy", ["fifo", "first-fit", "sjf", "easy", "conservative"])
@given(jobs=JOBS)
def test_a_policy_that_never_preempts_is_the_same_in_rounds_and_at_every_change(
    lab: Any, policy: str, jobs: list[tuple[int, int, int]]
) -> None:
    one, other = (
        lab.run(jobs, policy, cluster="2x4", clock=clock) for clock in ("rounds", "events")
    )
    assert lab.spans(one) == lab.spans(other)


@pytest.mark.parametrize("clock", ["rounds", "events"])
@given(jobs=JOBS)
def test_multi_queue_is_tiresias_with_its_defaults(
    lab: Any, clock: str, jobs: list[tuple[int, int, int]]
) -> None:
    options = ("limits=300,900",)
    one, other = (
        lab.run(jobs, policy, cluster="2x4", clock=clock, options=options)
        for policy in ("multi-queue", "tiresias")
    )
    assert lab.spans(one) == lab.spans(other)


def test_min_nodes_is_not_greedy(lab: Any) -> None:
    # free GPUs: 4, 3 and 3; a gang of 6 goes to the two nodes with 3
    jobs = [(0, 1, 100), (0, 1, 100), (1, 6, 10)]
    engine = lab.engine(jobs, cluster="3x4", placement="worst-fit", clock="events")
    min_nodes = lab.engine(jobs, cluster="3x4", clock="events").parts.placement
    seen: list[tuple[int, ...]] = []

    def swap(now: Any, allocation: Any) -> None:
        now.parts.placement = min_nodes
        seen.extend(placement.nodes for placement in allocation.launched.values())

    engine.observers.append(swap)
    engine.run()
    assert seen == [(0,), (1,), (0, 1)]


def test_a_gang_that_only_the_placement_rules_out_is_refused_and_the_others_run(lab: Any) -> None:
    run = lab.run([(0, 6, 10), (0, 4, 10)], cluster="2x4", placement="consolidated")
    assert run.jobs.status.tolist() == ["refused", "completed"]
    assert "even on the empty cluster" in run.jobs.reason[0]
