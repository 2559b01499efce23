"""Placements: cases worked by hand, brute force, and what no placement may do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.allocation import Refused
from dlsched.core.cluster.description import Cluster, Node, parse_cluster_spec
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.units import UnitTable
from dlsched.policies.placement.spanning import fewest_nodes
from dlsched.policies.registry import make, names

SPANNING = (
    *("first-free", "min-nodes", "best-fit", "worst-fit", "roomiest", "random", "count"),
    *("buddy", "fullest"),
)


def cluster_with(free: list[int], sizes: list[int], switches: list[str] | None = None) -> Occupancy:
    """Nodes of these sizes with these bits free; the rest is held by row 99."""
    switches = switches or [""] * len(sizes)
    nodes = [
        Node(name=f"n{k}", gpus=size, switch=switch)
        for k, (size, switch) in enumerate(zip(sizes, switches, strict=True))
    ]
    occupancy = Occupancy(Cluster(nodes))
    taken = {k: (1 << size) - 1 & ~free[k] for k, size in enumerate(sizes)}
    taken = {node: mask for node, mask in taken.items() if mask}
    if taken:
        occupancy.take(99, Placement(tuple(taken), tuple(taken.values())))
    return occupancy


def place(
    name: str, occupancy: Occupancy, gang: int, model: str = "", **options: object
) -> list[int] | str:
    """GPU ids, or the reason for the refusal."""
    table = UnitTable(1)
    table.gang[0] = gang
    table.extra = {"model": np.array([model], np.object_)}
    everywhere = (1 << len(occupancy.cluster)) - 1
    placed = make("placement", name, options).place(
        GpuRequest(0, gang, table), FreeGpus(occupancy, everywhere)
    )
    return placed.reason if isinstance(placed, Refused) else placed.gpu_ids(occupancy.cluster)


# node 0 has 0, 1, 2 free; node 1 has 4, 5 free
def e5() -> Occupancy:
    return cluster_with([0b0111, 0b0011], [4, 4])


@pytest.mark.parametrize(
    ("name", "gang", "expected"),
    [
        ("first-free", 2, [0, 1]),
        ("count", 2, [0, 1]),
        ("consolidated", 2, [4, 5]),
        ("best-fit", 2, [4, 5]),
        ("min-nodes", 2, [4, 5]),
        ("worst-fit", 2, [0, 1]),
        ("yarn", 2, [0, 1]),
        ("first-free", 4, [0, 1, 2, 4]),
        ("count", 4, [0, 1, 2, 4]),
        ("consolidated", 4, "Fragmented"),
        ("yarn", 4, "Fragmented"),
        ("min-nodes", 4, [0, 1, 2, 4]),
        ("best-fit", 4, [0, 1, 2, 4]),
        ("first-free", 3, [0, 1, 2]),
        ("consolidated", 3, [0, 1, 2]),
        ("yarn", 3, [0, 1, 2]),
        ("min-nodes", 3, [0, 1, 2]),
        ("best-fit", 3, [0, 1, 2]),
        ("worst-fit", 3, [0, 1, 2]),
    ],
)
def test_an_example_worked_by_hand(name: str, gang: int, expected: list[int] | str) -> None:
    assert place(name, e5(), gang) == expected


@pytest.mark.parametrize("name", names("placement"))
def test_a_placement_that_is_refused_leaves_nothing_behind(name: str) -> None:
    occupancy = e5()
    before = (occupancy.free[:], dict(occupancy.held), occupancy.version)
    assert place(name, occupancy, 6) in ("Resources", "Fragmented")
    assert (occupancy.free, occupancy.held, occupancy.version) == before


@pytest.mark.parametrize("name", names("placement"))
def test_placing_itself_changes_nothing(name: str) -> None:
    occupancy = e5()
    before = (occupancy.free[:], dict(occupancy.held), occupancy.version)
    place(name, occupancy, 2)
    assert (occupancy.free, occupancy.held, occupancy.version) == before


free_gpus = st.lists(st.integers(0, 15), min_size=1, max_size=5)


@given(st.sampled_from(names("placement")), free_gpus, st.integers(1, 12))
def test_a_placement_is_the_whole_gang_on_free_gpus_or_nothing(
    name: str, free: list[int], gang: int
) -> None:
    occupancy = cluster_with(free, [4] * len(free))
    placed = place(name, occupancy, gang)
    if isinstance(placed, list):
        taken = {gpu for held in occupancy.held.values() for gpu in held.gpu_ids(occupancy.cluster)}
        assert len(placed) == len(set(placed)) == gang
        assert taken.isdisjoint(placed)


@given(st.sampled_from(SPANNING), free_gpus, st.integers(1, 12))
def test_a_spanning_placement_succeeds_exactly_when_enough_gpus_are_free(
    name: str, free: list[int], gang: int
) -> None:
    occupancy = cluster_with(free, [4] * len(free))
    assert isinstance(place(name, occupancy, gang), list) == (occupancy.free_total >= gang)


@pytest.mark.parametrize("name", names("placement"))
def test_a_placement_says_truly_whether_it_spans(name: str) -> None:
    assert make("placement", name).spans == (name in SPANNING)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 16))
def test_min_nodes_is_the_brute_force_optimum(counts: list[int], gang: int) -> None:
    free = [(1 << count) - 1 for count in counts]
    placed = place("min-nodes", cluster_with(free, [4] * len(counts)), gang)
    best: tuple[int, int] | None = None
    for size in range(1, len(counts) + 1):
        sums = [
            sum(chosen)
            for chosen in itertools.combinations([c for c in counts if c], size)
            if sum(chosen) >= gang
        ]
        if sums:
            best = (size, min(sums))
            break
    if best is None:
        assert placed == "Resources"
        return
    assert isinstance(placed, list)
    nodes = {gpu // 4 for gpu in placed}
    assert (len(nodes), sum(counts[node] for node in nodes)) == best


@given(st.lists(st.integers(0, 6), min_size=2, max_size=9), st.integers(1, 40))
def test_the_fewest_nodes_are_counted_right(available: list[int], gang: int) -> None:
    chosen = fewest_nodes([0, *available], gang)
    reach = sum(size * count for size, count in enumerate(available, 1))
    if reach < gang:
        assert chosen is None
        return
    assert chosen is not None
    assert sum(size * count for size, count in enumerate(chosen)) >= gang
    assert all(used <= there for used, there in zip(chosen, [0, *available], strict=False))


@pytest.mark.parametrize(
    ("free", "gang", "expected"),
    [
        ([0b1111, 0b0011, 0b0111], 2, [4, 5]),
        ([0b1111, 0b0111, 0b0111], 2, [4, 5]),
        ([0b1111, 0b0000, 0b1110], 3, [9, 10, 11]),
        ([0b0001, 0b0010, 0b0100], 1, [0]),
    ],
    ids=["exact fit", "tightest, lowest of equals", "high bits", "one GPU"],
)
def test_consolidated_takes_the_tightest_node(
    free: list[int], gang: int, expected: list[int]
) -> None:
    assert place("consolidated", cluster_with(free, [4] * len(free)), gang) == expected


@pytest.mark.parametrize(
    ("free", "switches", "gang", "expected"),
    [
        ([0b0001, 0b0111, 0b1111], "aaa", 3, [4, 5, 6]),
        ([0b0111, 0b1111, 0b1111], "aaa", 8, [4, 5, 6, 7, 8, 9, 10, 11]),
        ([0b0111, 0b1111, 0b1111], "aaa", 6, [0, 1, 4, 5, 6, 7]),
        ([0b1111, 0b1111, 0b1111, 0b1111], "abab", 8, [0, 1, 2, 3, 8, 9, 10, 11]),
        ([0b1111, 0b1111], "ab", 8, "Fragmented"),
        ([0b0111, 0b0111], "aa", 5, "Fragmented"),
        ([0b1111, 0b0001], "aa", 5, [0, 1, 2, 3, 4]),
    ],
    ids=[
        "first fit on one node",
        "whole idle nodes only",
        "the rest on the first node with room",
        "one switch",
        "never over switches",
        "no idle node for the whole part",
        "a node of one GPU for the rest",
    ],
)
def test_yarn_wants_idle_nodes_under_one_switch(
    free: list[int], switches: str, gang: int, expected: Any
) -> None:
    occupancy = cluster_with(free, [4] * len(free), list(switches))
    placed = place("yarn", occupancy, gang)
    assert (sorted(placed) if isinstance(placed, list) else placed) == expected


@pytest.mark.parametrize(
    ("model", "together"),
    [
        ("vgg19", True),
        ("vgg16", True),
        ("vgg11", True),
        ("alexnet", True),
        ("AlexNet", True),
        ("resnet152", False),
        ("resnet50", False),
        ("inception3", False),
        ("inception4", False),
        ("", False),
        ("foreign", False),
    ],
)
def test_the_skew_rule_selects_exactly_the_vggs_and_alexnet(model: str, together: bool) -> None:
    # 4 GPUs are free, 2 + 2: a consolidated job must wait, another takes them
    placed = place("skew", cluster_with([0b0011, 0b0011], [4, 4]), 4, model=model)
    assert (placed == "Fragmented") == together


def test_the_skew_limit_is_an_option() -> None:
    occupancy = cluster_with([0b0011, 0b0011], [4, 4])
    assert place("skew", occupancy, 4, model="alexnet", pack_limit=0.7) == [0, 1, 4, 5]


def test_random_draws_depend_on_the_placements_own_seed() -> None:
    occupancy = cluster_with([15] * 8, [4] * 8)
    draws = [place("random", occupancy, 8, seed=seed) for seed in (0, 0, 1)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_random_goes_on_drawing_after_a_restart() -> None:
    occupancy = Occupancy(parse_cluster_spec("8x4"))
    table = UnitTable(1)
    request, free = GpuRequest(0, 3, table), FreeGpus(occupancy, 255)
    one = make("placement", "random")
    one.place(request, free)
    other = make("placement", "random")
    other.load_state_dict(one.state_dict())
    assert [one.place(request, free) for _ in range(5)] == [
        other.place(request, free) for _ in range(5)
    ]


@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        (2, [2, 3]),  # the tightest node
        (3, [4, 5, 6]),
        (4, [8, 9, 10, 11]),
        (5, [8, 9, 10, 11, 12]),  # an idle node, and the rest on the emptiest other
        (8, [8, 9, 10, 11, 12, 13, 14, 15]),
        (11, [8, 9, 10, 11, 12, 13, 14, 15, 4, 5, 6]),
        (12, "Fragmented"),  # 13 are free
    ],
)
def test_whole_nodes_takes_idle_nodes_and_one_more(gang: int, expected: list[int] | str) -> None:
    occupancy = cluster_with([0b1100, 0b0111, 0b1111, 0b1111], [4, 4, 4, 4])
    assert place("whole-nodes", occupancy, gang) == expected
