"""Cells of the topology: racks, switches, machines and NVLink domains, where they are regular."""

from __future__ import annotations

from dlsched.core.cluster.cell_shapes import cells_by_topology
from dlsched.core.cluster.cells import PhysicalCell
from dlsched.core.cluster.description import Node, parse_cluster_spec


def types(nodes: list[Node]) -> dict[str, tuple[str, ...]]:
    """The types of each chain, from the top."""
    plan = cells_by_topology(nodes)
    return {name: chain.types[::-1] for name, chain in plan.chains.items()}


def indices(cell: PhysicalCell) -> list[str]:
    if not cell.children:
        return [cell.address]
    return [index for child in cell.children for index in indices(child)]


def test_machines_of_which_nothing_is_known_are_cells_of_their_gpus() -> None:
    plan = parse_cluster_spec("2x8:v100+1x4:v100+1x4:k80").cells
    assert {name: chain.types[::-1] for name, chain in plan.chains.items()} == {
        "v100-node": ("v100-node", "v100"),
        "v100-4-node": ("v100-4-node", "v100"),
        "k80-node": ("k80-node", "k80"),
    }
    assert [top.address for _, top in plan.tops] == ["n1", "n2", "n3", "n4"]


def test_equal_racks_of_equal_switches_are_cells() -> None:
    nodes = [
        Node(name=f"n{k}", gpus=4, gpu_type="a", switch=f"s{k // 2}", rack=f"r{k // 4}")
        for k in range(8)
    ]
    assert types(nodes) == {"a-rack": ("a-rack", "a-switch", "a-node", "a")}
    plan = cells_by_topology(nodes)
    assert [top.address for _, top in plan.tops] == ["r0", "r1"]
    assert [switch.address for switch in plan.tops[1][1].children] == ["s2", "s3"]


def test_racks_of_different_sizes_are_no_cells() -> None:
    nodes = [Node(name=f"n{k}", gpus=4, gpu_type="a", rack=f"r{k // 2}") for k in range(5)]
    assert types(nodes) == {"a-node": ("a-node", "a")}


def test_equal_nvlink_domains_are_cells_whatever_the_order_of_their_gpus() -> None:
    nodes = [Node(name="n", gpus=4, gpu_type="a", nvlink=(0, 1, 0, 1))]
    assert types(nodes) == {"a-node": ("a-node", "a-nvlink", "a")}
    [(_, top)] = cells_by_topology(nodes).tops
    assert [indices(domain) for domain in top.children] == [["0", "2"], ["1", "3"]]


def test_nvlink_domains_that_differ_or_are_single_gpus_are_no_cells() -> None:
    for links in ((0, 0, 0, 1), (0, 1, 2, 3), (0, 0, 0, 0), ()):
        assert types([Node(name="n", gpus=4, gpu_type="a", nvlink=links)]) == {
            "a-node": ("a-node", "a")
        }
    mixed = [
        Node(name="n", gpus=4, gpu_type="a", nvlink=(0, 0, 1, 1)),
        Node(name="m", gpus=4, gpu_type="a"),
    ]
    assert types(mixed) == {"a-node": ("a-node", "a")}
