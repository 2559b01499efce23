"""The nodes of a run in rank order: by name, in whatever order they have joined."""

from __future__ import annotations

import pytest

from dlsched.core.cluster.occupancy import Placement
from dlsched.daemon.live.nodes import LiveNodes
from dlsched.protocol.messages import GpuId, NodeName


@pytest.fixture
def nodes() -> LiveNodes:
    """Nodes that joined as n10, n2, n1, each with two GPUs."""
    found = LiveNodes()
    for name in ("n10", "n2", "n1"):
        found.register(NodeName(name), [GpuId(f"{name}-{k}") for k in range(2)])
    return found


def test_ascending_nodes_are_ordered_by_name_and_found_again(nodes: LiveNodes) -> None:
    placement = Placement((0, 1, 2), (1, 2, 3))
    shares = nodes.shares(placement)
    assert [share.node for share in shares] == ["n1", "n2", "n10"]
    assert [share.gpus for share in shares] == [("n1-0", "n1-1"), ("n2-1",), ("n10-0",)]
    assert nodes.placement(shares) == placement


def test_another_order_is_a_choice_of_the_placement_and_stays(nodes: LiveNodes) -> None:
    placement = Placement((1, 0), (1, 1))
    shares = nodes.shares(placement)
    assert [share.node for share in shares] == ["n2", "n10"]
    chosen = Placement((0, 2, 1), (1, 1, 1))
    assert nodes.placement(nodes.shares(chosen)) == chosen
