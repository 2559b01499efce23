"""What a trace says of layouts, whole nodes, begin times and array limits, and what follows."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.errors import BadInput
from simulate.population import populate

ONE = parse_cluster_spec("1x8:x")


def test_a_gang_lies_as_its_trace_says(lab: Any) -> None:
    trace = lab.trace([(0, 4, 10), (0, 4, 10)], gang=["2+2", ""])
    engine = lab.engine(trace, cluster="2x4", clock="events")
    held: dict[int, list[int]] = {}

    def look(engine: Any, _: Any) -> None:
        for row, placement in engine.cycle.ctx.occupancy.held.items():
            held.setdefault(row, sorted(mask.bit_count() for mask in placement.masks))

    engine.observers.append(look)
    engine.run()
    assert held == {0: [2, 2], 1: [2, 2]}


def test_a_layout_that_no_nodes_have_is_refused_before_the_start(lab: Any) -> None:
    result = lab.run(lab.trace([(0, 6, 10), (0, 6, 10)], gang=["6", "3+3"]), cluster="2x4")
    assert result.jobs.status.tolist() == ["refused", "completed"]
    assert "needs 6 GPUs on 1 node" in result.jobs.reason[0]


def test_an_exclusive_job_has_its_nodes_to_itself(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10), (0, 1, 10)], exclusive=["yes", "no"])
    result = lab.run(trace, cluster="1x4", clock="events")
    assert lab.spans(result) == {"A": (0, 10), "B": (10, 20)}


def test_a_job_is_not_seen_before_it_may_begin(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10), (5, 1, 10), (5, 1, 10)], begin=[30.0, float("nan"), -2.0])
    result = lab.run(trace, cluster="1x4", clock="events")
    assert lab.spans(result) == {"A": (30, 40), "B": (5, 15), "C": (5, 15)}


def test_of_a_limited_array_the_next_comes_when_one_has_ended(lab: Any) -> None:
    jobs = [(0, 1, 10), (0, 1, 30), (0, 1, 5), (0, 1, 5), (1, 1, 1)]
    trace = lab.trace(jobs, array=["7"] * 4 + [""], array_limit=[2.0] * 4 + [float("nan")])
    result = lab.run(trace, cluster="1x8", clock="events")
    assert lab.spans(result) == {
        "A": (0, 10), "B": (0, 30), "C": (10, 15), "D": (15, 20), "E": (1, 2),
    }  # fmt: skip


def test_an_element_that_is_refused_takes_no_place_of_its_array(lab: Any) -> None:
    jobs = [(0, 1, 10), (0, 99, 10), (0, 1, 5)]
    trace = lab.trace(jobs, array=["7"] * 3, array_limit=[1.0] * 3)
    result = lab.run(trace, cluster="1x8", clock="events")
    assert result.jobs.status.tolist() == ["completed", "refused", "completed"]
    assert lab.spans(result)["C"] == (10, 15)


def test_elements_whose_parents_were_refused_hold_up_no_others(lab: Any) -> None:
    jobs = [(0, 99, 10), (0, 1, 10), (0, 1, 5)]
    trace = lab.trace(
        jobs, parents=["", "A", ""], array=["", "7", "7"], array_limit=[float("nan"), 1.0, 1.0]
    )
    result = lab.run(trace, cluster="1x8", clock="events")
    assert result.jobs.status.tolist() == ["refused", "refused", "completed"]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from(["rounds", "events"]),
)
def test_never_more_of_an_array_run_than_its_limit_and_all_end(
    lab: Any, drawn: list[tuple[int, int]], limit: int, clock: str
) -> None:
    jobs = sorted((submit, 1, work) for submit, work in drawn)
    names = [str(k) for k in range(len(jobs))]
    trace = lab.trace(
        jobs, names=names, array=["a"] * len(jobs), array_limit=[float(limit)] * len(jobs)
    )
    spans = lab.spans(lab.run(trace, cluster="2x8", clock=clock))
    assert len(spans) == len(jobs)
    for start, _ in spans.values():
        assert sum(begin <= start < end for begin, end in spans.values()) <= limit


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"gang": ["3+x"]}, "job A has gang 3+x; a gang reads GPUs+GPUs, for example 4+4"),
        ({"gang": ["0+4"]}, "job A has gang 0+4; a gang reads"),
        ({"gang": ["4+4"]}, "job A has gang 4+4 and asks for 4 GPUs"),
        ({"exclusive": ["maybe"]}, "job A has exclusive maybe; it must be yes or no"),
        ({"array": ["7"], "array_limit": ["2.5"]}, "job A has array_limit 2.5, not a whole number"),
        ({"array_limit": [2.0]}, "job A has an array_limit and no array"),
        ({"begin": ["soon"]}, "the column begin has texts; it counts seconds"),
    ],
)
def test_restrictions_that_make_no_sense_are_refused(
    lab: Any, columns: dict[str, list[Any]], why: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(why)):
        populate(lab.trace([(0, 4, 1)], **columns), ONE)


def test_an_array_has_one_limit(lab: Any) -> None:
    trace = lab.trace([(0, 1, 1)] * 2, array=["7", "7"], array_limit=[1.0, 2.0])
    with pytest.raises(BadInput, match="job B has array_limit 2, its array had 1"):
        populate(trace, ONE)
