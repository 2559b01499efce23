"""One iteration of a graph: the sheet's cases by hand, and what holds for any graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from simulate.worlds.plans.iteration import ALL_REDUCE, Edge, Graph, Network, Operation, iterate
from simulate.worlds.plans.order import ranked, source_ranks, upward_ranks

TWO = Network({(0, 1): (0,), (1, 0): (1,)}, [100.0, 100.0])


def test_a_transfer_begins_when_the_operation_ends() -> None:
    graph = Graph([Operation("A", 0, 100), Operation("B", 1, 50)], [Edge(0, 1, 10_000)])
    assert iterate(graph, TWO).finish_us == [100, 262]


def test_two_transfers_on_one_link_follow_each_other() -> None:
    operations = [Operation("A", 0, 100), Operation("B", 1, 50), Operation("C", 1, 50)]
    graph = Graph(operations, [Edge(0, 1, 10_000), Edge(0, 2, 10_000)])
    assert iterate(graph, TWO).finish_us == [100, 262, 374]


def test_collectives_follow_each_other_and_hold_no_gpu() -> None:
    operations = [
        *(Operation("a", 0, 10), Operation("b", 1, 20), Operation("c", 0, 500)),
        *(Operation("ar0", 0, 0, 0), Operation("ar1", 1, 0, 0)),
        *(Operation("br0", 0, 0, 1), Operation("br1", 1, 0, 1)),
    ]
    edges = [Edge(0, 3, 0), Edge(1, 4, 0), Edge(0, 5, 0), Edge(1, 6, 0), Edge(0, 2)]
    found = iterate(Graph(operations, edges, {0: 0, 1: 0}), TWO)
    once = int(ALL_REDUCE[1])
    assert found.finish_us[3:5] == [20 + once] * 2
    assert found.finish_us[5:] == [20 + 2 * once] * 2
    assert found.finish_us[2] == 510


def test_outputs_take_memory_until_their_last_consumer_is_done() -> None:
    operations = [Operation("A", 0, 100), Operation("B", 1, 50), Operation("C", 0, 30)]
    graph = Graph(operations, [Edge(0, 1, 7_000), Edge(0, 2, 7_000), Edge(1, 2, 400)])
    graph = replace(graph, operations=[replace(operations[0], output_bytes=7_000), *operations[1:]])
    found = iterate(graph, TWO)
    assert found.peak_bytes == {0: 7_400, 1: 7_400}


def test_a_circle_is_refused() -> None:
    graph = Graph([Operation("A", 0, 1), Operation("B", 0, 1)], [Edge(0, 1, 1), Edge(1, 0, 1)])
    with pytest.raises(BadInput, match="operation A depends on itself, through others"):
        iterate(graph, TWO)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph on two GPUs, its operations in any creation order."""
    count = draw(st.integers(1, 8))
    order = draw(st.permutations(range(count)))
    operations = [
        Operation(f"o{n}", draw(st.integers(0, 1)), draw(st.integers(0, 50))) for n in range(count)
    ]
    edges = [
        Edge(order[a], order[b], draw(st.one_of(st.none(), st.integers(0, 9_000))))
        for a in range(count)
        for b in range(a + 1, count)
        if draw(st.booleans())
    ]
    return Graph(operations, edges)


@given(graphs())
def test_every_operation_comes_after_its_inputs_whatever_the_order(graph: Graph) -> None:
    for order in ("fifo", "source", "upward"):
        ordered = ranked(graph, TWO, order)  # type: ignore[arg-type]
        finish = iterate(ordered, TWO).finish_us  # the added edges make no circle
        for edge in ordered.edges:
            begin = finish[edge.target] - graph.operations[edge.target].compute_us
            assert begin >= finish[edge.source]


@given(graphs())
def test_ranks_grow_along_every_path(graph: Graph) -> None:
    source, upward = source_ranks(graph), upward_ranks(graph, TWO)
    for edge in graph.edges:
        assert source[edge.source] < source[edge.target]
        assert upward[edge.source] > upward[edge.target]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 90), st.integers(0, 9_000)), min_size=1),
    st.integers(1, 500),
    st.integers(0, 500),
)
def test_more_bandwidth_never_slows_a_chain(
    links: list[tuple[int, int, int]], slow: int, more: int
) -> None:
    chain = Graph(
        [Operation(f"o{n}", device, us) for n, (device, us, _) in enumerate(links)],
        [Edge(n, n + 1, size) for n, (_, _, size) in enumerate(links[:-1])],
    )
    times = [
        iterate(chain, replace(TWO, bandwidth=[width] * 2)).makespan_us
        for width in (slow, slow + more)
    ]
    assert times[1] <= times[0]
