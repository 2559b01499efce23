"""Clusters from a spec, from host lists and from tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import (
    Cluster,
    Node,
    VirtualCluster,
    cluster_from_tables,
    parse_cluster_spec,
)
from dlsched.core.errors import BadInput


@pytest.mark.parametrize(
    ("spec", "gpus", "types"),
    [
        ("1x4", [4], ("gpu",)),
        ("2x8:v100", [8, 8], ("v100",)),
        ("1x4:v100+2x2:k80", [4, 2, 2], ("v100", "k80")),
        (" 1x4 + 1x2 ", [4, 2], ("gpu",)),
        ("1x1:a+1x1:b+1x1:a", [1, 1, 1], ("a", "b")),
    ],
)
def test_a_spec_lists_nodes_in_order(spec: str, gpus: list[int], types: tuple[str, ...]) -> None:
    cluster = parse_cluster_spec(spec)
    assert cluster.gpus.tolist() == gpus
    assert cluster.gpu_types == types
    assert cluster.names == tuple(f"n{k + 1}" for k in range(len(gpus)))
    assert cluster.first_gpu.tolist() == [sum(gpus[:k]) for k in range(len(gpus))]


@pytest.mark.parametrize(
    "spec",
    ["", "x", "4", "4x", "x8", "0x8", "4x0", "-1x8", "4x8:", "4x8+", "+", "4*8", "1.5x8",
     "4x8:v 100", "99999999999x8", "4x99999999999", "9" * 5000 + "x8"],
)  # fmt: skip
def test_a_spec_that_makes_no_sense_is_refused_in_one_line(spec: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_cluster_spec(spec)
    assert "\n" not in str(error.value)


@given(st.text(alphabet="0123456789x:+va[]-, ", max_size=14))
def test_any_text_is_a_cluster_or_bad_input(spec: str) -> None:
    try:
        cluster = parse_cluster_spec(spec)
    except BadInput:
        return
    assert cluster.total_gpus >= 1


def tables(**more: Any) -> dict[str, Any]:
    return {"nodes": [{"gpus": 4, "count": 2}], **more}


def test_tables_make_a_cluster() -> None:
    cluster = cluster_from_tables(
        {
            "nodes": [
                {"gpus": 8, "name": "a[1-2]", "gpu_type": "v100", "cpus": 64, "switch": "s1"},
                {"gpus": 4, "count": 2, "gpu_type": "k80", "rack": "r2"},
            ],
            "vcs": [
                {"name": "red", "nodes": ["a[1-2]"]},
                {"name": "blue", "gpus": 4, "borrow": True},
            ],
        },
        where="c.toml",
    )
    assert cluster.names == ("a1", "a2", "n3", "n4")
    assert cluster.switch_of.tolist() == [0, 0, 1, 1]
    assert cluster.vcs["red"].nodes == ("a1", "a2")
    assert (cluster.vcs["blue"].gpus, cluster.vcs["blue"].borrow) == (4, True)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "no \\[\\[nodes\\]\\]"),
        ({"nodes": {"gpus": 4}}, "\\[\\[nodes\\]\\]"),
        ({"nodes": [4]}, "\\[\\[nodes\\]\\]"),
        (tables(vcs={"name": "a", "gpus": 1}), "\\[\\[vcs\\]\\]"),
        (tables(node=[]), "table 'node' is not known"),
        ({"nodes": [{"gpu": 4}]}, "key 'gpu' is not known"),
        ({"nodes": [{"count": 4}]}, "gpus must be a whole number"),
        ({"nodes": [{"gpus": 0}]}, "gpus must be a whole number"),
        ({"nodes": [{"gpus": 4.0}]}, "gpus must be a whole number"),
        ({"nodes": [{"gpus": True}]}, "gpus must be a whole number"),
        ({"nodes": [{"gpus": 4, "count": 0}]}, "count must be a whole number"),
        ({"nodes": [{"gpus": 4, "count": 3, "name": "a[1-2]"}]}, "count is 3"),
        ({"nodes": [{"gpus": 4, "cpus": -1}]}, "cpus must be a number"),
        ({"nodes": [{"gpus": 4, "cpus": "many"}]}, "cpus must be a number"),
        ({"nodes": [{"gpus": 4, "name": "a"}, {"gpus": 4, "name": "a"}]}, "two nodes are named a"),
        (tables(vcs=[{"gpus": 4}]), "name is missing"),
        (tables(vcs=[{"name": "a"}]), "either gpus"),
        (tables(vcs=[{"name": "a", "gpus": 1, "nodes": ["n1"]}]), "either gpus"),
        (tables(vcs=[{"name": "a", "gpus": -1}]), "gpus must be a whole number"),
        (tables(vcs=[{"name": "a", "nodes": ["n9"]}]), "n9 does not exist"),
        (tables(vcs=[{"name": "a", "gpus": 1, "borrow": "no"}]), "borrow must be true or false"),
        (tables(vcs=[{"name": "a", "gpus": 1}, {"name": "a", "gpus": 1}]), "two \\[\\[vcs\\]\\]"),
        (
            tables(vcs=[{"name": "a", "nodes": ["n1"]}, {"name": "b", "nodes": ["n1"]}]),
            "belongs to vc a and b",
        ),
    ],
)
def test_tables_that_make_no_sense_are_refused_in_one_line(document: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why) as error:
        cluster_from_tables(document, where="c.toml")
    assert "\n" not in str(error.value)


def test_a_cluster_needs_nodes_and_distinct_names() -> None:
    with pytest.raises(BadInput, match="no nodes"):
        Cluster([])
    with pytest.raises(BadInput, match="names must differ"):
        Cluster([Node(name="a", gpus=1), Node(name="a", gpus=1)])


def test_a_partition_names_nodes_that_exist() -> None:
    with pytest.raises(BadInput, match="does not exist"):
        Cluster([Node(name="a", gpus=1)], [VirtualCluster(name="v", nodes=("b",))])
