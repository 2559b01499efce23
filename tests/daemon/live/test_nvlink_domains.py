"""NVLink domains on their way from an agent's report to the cells of a round."""

from __future__ import annotations

import json

from dlsched.daemon.live.nodes import LiveNodes
from dlsched.daemon.live.placement_constraints import PlacementConstraints
from dlsched.protocol.messages import GpuId, NodeName


def test_linked_gpus_of_a_report_are_domains_in_the_order_of_the_nodes_gpus() -> None:
    report = {
        "gpus": [
            {"uuid": "c", "type": "a100", "linked": ["a"]},
            {"uuid": "a", "type": "a100", "linked": ["c"]},
            {"uuid": "b", "type": "a100"},
        ]
    }
    nodes = LiveNodes()
    nodes.register(NodeName("n1"), [GpuId(uuid) for uuid in "abc"])
    before = nodes.version
    facts = PlacementConstraints.facts(json.dumps(report))
    nodes.describe("n1", facts)
    assert nodes[0].nvlink == (0, 1, 0)
    assert nodes.version > before
    after = nodes.version
    nodes.describe("n1", facts)
    assert nodes.version == after, "nothing is new"
