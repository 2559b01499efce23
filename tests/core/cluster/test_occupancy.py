"""The bits that say which GPU is free: every change keeps them in step with the holders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node, parse_cluster_spec
from dlsched.core.cluster.occupancy import Occupancy, Placement, lowest_bits, lowest_node
from dlsched.core.errors import InvariantBroken
from dlsched.core.invariants import check_occupancy


def occupancy(spec: str = "2x4") -> Occupancy:
    return Occupancy(parse_cluster_spec(spec))


def on(**nodes: int) -> Placement:
    """`on(n0=0b11, n1=0b1)`."""
    return Placement(tuple(int(name[1:]) for name in nodes), tuple(nodes.values()))


@pytest.mark.parametrize(
    ("mask", "count", "expected"),
    [(0b1111, 2, 0b11), (0b1010, 1, 0b10), (0b1010, 2, 0b1010), (0b1, 0, 0)],
)
def test_the_lowest_free_gpus_are_the_lowest_bits(mask: int, count: int, expected: int) -> None:
    assert lowest_bits(mask, count) == expected


@pytest.mark.parametrize(("nodes", "expected"), [(0b1, 0), (0b1000, 3), (0b1010, 1)])
def test_the_lowest_node_is_the_lowest_bit(nodes: int, expected: int) -> None:
    assert lowest_node(nodes) == expected


def test_gpu_ids_count_over_nodes_of_unequal_size() -> None:
    cluster = Cluster([Node(name="a", gpus=2), Node(name="b", gpus=4)])
    assert on(n0=0b10, n1=0b101).gpu_ids(cluster) == [1, 2, 4]


def test_taking_and_releasing_restores_everything() -> None:
    o = occupancy()
    o.take(7, on(n0=0b11, n1=0b1))
    assert (o.free, o.free_total) == ([0b1100, 0b1110], 5)
    o.release(7)
    assert (o.free, o.free_total) == ([0b1111, 0b1111], 8)
    check_occupancy(o)


@pytest.mark.parametrize(
    ("placement", "why"),
    [
        (on(n0=0b1), "not free"),
        (Placement((1, 1), (0b1, 0b1)), "not free"),
        (on(n1=0), "not free"),
        (on(n1=0b10000), "not free"),
    ],
    ids=["held by another", "one node twice", "no GPU at all", "a GPU the node lacks"],
)
def test_gpus_that_are_not_free_cannot_be_taken(placement: Placement, why: str) -> None:
    o = occupancy()
    o.take(0, on(n0=0b1))
    with pytest.raises(InvariantBroken, match=why):
        o.take(1, placement)
    check_occupancy(o)
    assert list(o.held) == [0]


def test_a_row_cannot_be_given_more_while_it_holds_some() -> None:
    o = occupancy()
    o.take(0, on(n0=0b1))
    with pytest.raises(InvariantBroken, match="holds GPUs already"):
        o.take(0, on(n1=0b1))


def test_reserved_gpus_are_free_to_no_job_even_when_their_holder_leaves() -> None:
    o = occupancy("1x4")
    o.take(0, on(n0=0b11))
    o.reserve(9, on(n0=0b111))
    assert o.free == [0b1000]
    o.release(0)
    assert o.free == [0b1000]
    check_occupancy(o)


def test_opening_a_reservation_frees_what_no_job_holds() -> None:
    o = occupancy("1x4")
    o.take(0, on(n0=0b1))
    o.reserve(9, on(n0=0b111))
    o.unreserve(9)
    assert o.free == [0b1110]
    check_occupancy(o)


def test_gpus_cannot_be_reserved_twice() -> None:
    o = occupancy("1x4")
    o.reserve(1, on(n0=0b11))
    with pytest.raises(InvariantBroken, match="reserved already"):
        o.reserve(2, on(n0=0b10))
    check_occupancy(o)


def test_a_row_cannot_hold_two_reservations() -> None:
    o = occupancy("1x4")
    o.reserve(1, on(n0=0b1))
    with pytest.raises(InvariantBroken, match="row 1"):
        o.reserve(1, on(n0=0b10))
    check_occupancy(o)


def test_a_node_with_jobs_cannot_leave() -> None:
    o = occupancy()
    o.take(0, on(n0=0b1))
    with pytest.raises(InvariantBroken, match="n1 leaves"):
        o.set_service(0, serving=False)


def test_a_node_that_leaves_takes_its_free_gpus_along_and_brings_them_back() -> None:
    o = occupancy()
    o.set_service(1, serving=False)
    assert (o.free_total, o.capacity_in(0b11)) == (4, 4)
    check_occupancy(o)
    o.set_service(1, serving=True)
    assert (o.free_total, o.capacity_in(0b11)) == (8, 8)
    check_occupancy(o)


def test_a_reservation_survives_its_node_going_and_coming() -> None:
    o = occupancy()
    o.reserve(3, on(n0=0b11))
    o.set_service(0, serving=False)
    check_occupancy(o)
    o.set_service(0, serving=True)
    assert o.free[0] == 0b1100
    check_occupancy(o)


def test_a_draining_node_keeps_its_jobs_and_offers_nothing() -> None:
    o = occupancy()
    o.take(0, on(n0=0b1))
    o.set_draining(0, draining=True)
    assert o.free_in(0b11) == 4
    assert o.rows_on(0) == [0]
    check_occupancy(o)


def test_a_twin_does_not_feel_what_is_done_to_the_original() -> None:
    o = occupancy()
    o.reserve(5, on(n1=0b1))
    twin = o.copy()
    o.take(0, on(n0=0b1111))
    o.unreserve(5)
    o.set_draining(1, draining=True)
    assert (twin.free, twin.held, list(twin.reserved), twin.draining) == ([15, 14], {}, [5], 0)
    check_occupancy(twin)


def test_a_placement_names_its_gpus_by_their_place_in_the_cluster() -> None:
    o = occupancy()
    o.take(4, on(n0=0b10, n1=0b1))
    assert o.held[4].gpu_ids(o.cluster) == [1, 4]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 15)), max_size=40))
def test_any_sequence_of_changes_keeps_the_books(
    changes: list[tuple[int, int, int]],
) -> None:
    """Kinds: 0 take, 1 release, 2 reserve, 3 unreserve, 4 leave or join, 5 drain."""
    o = occupancy("3x4")
    for row, (kind, node, mask) in enumerate(changes):
        before = (o.free[:], o.level[:], o.free_total)
        try:
            if kind == 0:
                o.take(row, Placement((node,), (mask,)))
            elif kind == 1 and o.held:
                o.release(sorted(o.held)[mask % len(o.held)])
            elif kind == 2:
                o.reserve(row, Placement((node,), (mask,)))
            elif kind == 3 and o.reserved:
                o.unreserve(sorted(o.reserved)[mask % len(o.reserved)])
            elif kind == 4:
                o.set_service(node, serving=bool(mask & 1))
            elif kind == 5:
                o.set_draining(node, draining=bool(mask & 1))
        except InvariantBroken:
            assert (o.free, o.level, o.free_total) == before
        check_occupancy(o)


def test_what_holders_leave_opportunistic_rows_use_and_it_counts_for_nothing() -> None:
    o = occupancy("1x4")
    o.take(0, on(n0=0b11))
    o.add_opportunistic(1, on(n0=0b110))
    o.add_opportunistic(2, on(n0=0b001))
    assert (o.free_total, o.partners(0), o.partners(1)) == (2, (1, 2), (0,))
    assert o.all_partners() == {0: (1, 2), 1: (0,), 2: (0,)}
    assert (o.used_unheld, o.used_again) == (1, 2)
    check_occupancy(o)
    with pytest.raises(InvariantBroken, match="not free"):
        o.promote(1)
    assert o.opportunistic[1] == on(n0=0b110)
    o.release(0)
    o.promote(1)
    check_occupancy(o)
    assert (o.free_total, o.partners(1), o.partners(2)) == (2, (), ())
    o.demote(1)
    twin = o.copy()
    for row in (1, 2):
        o.release(row)
    check_occupancy(o)
    assert (o.free_total, o.opportunistic, sorted(twin.opportunistic)) == (4, {}, [1, 2])


@pytest.mark.parametrize("placement", [on(n0=0b10000), on(n0=0), on(n1=0b1)])
def test_opportunistic_rows_use_no_gpus_out_of_service(placement: Placement) -> None:
    o = occupancy()
    o.set_service(1, serving=False)
    with pytest.raises(InvariantBroken, match="not in service"):
        o.add_opportunistic(5, placement)
