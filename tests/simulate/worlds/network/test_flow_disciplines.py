"""Flows over links: rates of the sheet's examples, and what holds for all flows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from simulate.worlds.network.disciplines import DISCIPLINES, Queues, karuna
from simulate.worlds.network.flows import Flow, Kind, Number
from simulate.worlds.network.fluid import follow

LINK = {"nic": 10.0}


def flow(name: str, kind: Kind, size: Number, *links: str, deadline: Number | None = None) -> Flow:
    return Flow(id=name, kind=kind, path=links or ("nic",), size=size, deadline=deadline)


def test_a_deadline_gets_just_enough_and_is_kept_exactly() -> None:
    flows = [flow("f1", "deadline", 20.0, deadline=10.0), flow("f2", "known", 400.0)]
    discipline = karuna(Queues())
    assert discipline.share(flows, LINK, 0.0).rate == {"f1": 2.0, "f2": 8.0}
    assert follow(flows, LINK, discipline) == {"f1": 10.0, "f2": 42.0}


def test_a_deadline_that_the_link_cannot_keep_is_given_up() -> None:
    flows = [
        flow("f1", "deadline", 20.0, deadline=10.0),
        flow("f2", "known", 400.0),
        flow("f3", "deadline", 90.0, deadline=10.0),
    ]
    found = karuna(Queues(beta=(100.0,))).share(flows, LINK, 0.0)
    assert found.demoted == ["f3"]
    assert found.rate == {"f1": 2.0, "f3": 8.0, "f2": 0.0}  # the shorter is in the first queue
    assert found.queue == {"f2": 2, "f3": 1}


def test_a_queue_is_shared_fairly_over_several_links() -> None:
    links = {"l1": 10.0, "l2": 10.0}
    a, b = flow("a", "known", 9.0, "l1"), flow("b", "known", 9.0, "l2")
    c = flow("c", "known", 9.0, "l1", "l2")
    discipline = karuna(Queues())
    assert discipline.share([a, b, c], links, 0.0).rate == {"a": 5.0, "b": 5.0, "c": 5.0}
    found = discipline.share([b, c], links, 0.0)
    assert (found.rate, found.residual) == ({"b": 5.0, "c": 5.0}, {"l1": 5.0, "l2": 0.0})


def test_a_flow_of_unknown_size_sinks_as_it_sends() -> None:
    flows = [flow("old", "unknown", 30.0), flow("new", "unknown", 5.0)]
    flows[1].arrival = 2.0
    ends = follow(flows, LINK, karuna(Queues(alpha=(10.0,))))
    assert ends == {"new": 2.5, "old": 3.5}


def test_the_last_queue_keeps_its_floor() -> None:
    flows = [flow("small", "known", 1e6), flow("large", "known", 2e6)]
    strict = karuna(Queues(beta=(1.5e6,))).share(flows, LINK, 0.0)
    assert strict.rate == {"small": 10.0, "large": 0.0}
    kind = karuna(Queues(beta=(1.5e6,), floor=0.05)).share(flows, LINK, 0.0)
    assert kind.rate == {"small": 9.5, "large": 0.5}


def test_a_link_that_carries_nothing_is_said() -> None:
    with pytest.raises(BadInput, match="flows f never end: a link of their path carries nothing"):
        follow([flow("f", "known", 1.0)], {"nic": 0.0}, karuna(Queues()))


described = st.lists(
    st.tuples(
        st.sampled_from(["deadline", "known", "unknown"]),
        st.sampled_from([("l0",), ("l1",), ("l0", "l1"), ("l1", "l2"), ("l0", "l1", "l2")]),
        st.integers(1, 90),
        st.integers(0, 20),
        st.integers(1, 30),
    ),
    min_size=1,
    max_size=9,
)


@given(of=described, name=st.sampled_from(sorted(DISCIPLINES)), floor=st.sampled_from([0.0, 0.05]))
def test_no_link_carries_more_than_it_can_and_none_is_idle_for_no_reason(
    of: Any, name: str, floor: float
) -> None:
    links = {"l0": Fraction(10), "l1": Fraction(7), "l2": Fraction(20)}
    flows = [
        Flow(
            id=k,
            kind=kind,
            path=path,
            size=Fraction(size),
            arrival=Fraction(at),
            deadline=Fraction(at + slack) if kind == "deadline" else None,
        )
        for k, (kind, path, size, at, slack) in enumerate(of)
    ]
    queues = Queues(alpha=(Fraction(15),), beta=(Fraction(40),), floor=floor)
    discipline = DISCIPLINES[name](queues)
    found = discipline.share(flows, links, Fraction(0))
    for link, capacity in links.items():
        carried = sum(found.rate[f.id] for f in flows if link in f.path)
        assert carried + found.residual[link] == pytest.approx(capacity)
        assert found.residual[link] >= -1e-9
    kept = {f.id for f in flows if f.deadline is not None} - set(found.demoted)
    for each in flows:  # a flow that could go faster is one that has just enough
        if min(found.residual[link] for link in each.path) > 1e-9:
            assert name == "karuna"
            assert each.id in kept
            assert found.rate[each.id] == each.size / (each.deadline or 0)
    ends = follow(flows, links, discipline)
    assert set(ends) == {each.id for each in flows}
    alone = {f.id: f.arrival + f.size / min(links[link] for link in f.path) for f in flows}
    assert all(ends[name] >= alone[name] - Fraction(1, 10**6) for name in ends)


@given(of=described)
def test_without_deadlines_only_the_queues_count(of: Any) -> None:
    links = {"l0": 10.0, "l1": 7.0, "l2": 20.0}
    flows = [
        Flow(id=k, kind="unknown" if kind == "unknown" else "known", path=path, size=float(size))
        for k, (kind, path, size, _, _) in enumerate(of)
    ]
    queues = Queues(alpha=(15.0,), beta=(40.0,))
    discipline, first = DISCIPLINES["karuna"](queues), DISCIPLINES["edf-first-queues"](queues)
    assert discipline.share(flows, links, 0.0) == first.share(flows, links, 0.0)
