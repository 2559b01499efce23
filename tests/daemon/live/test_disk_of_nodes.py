"""A job that needs temporary disk may use the nodes that have it, or do not say."""

from __future__ import annotations

from dlsched.daemon.live.nodes import ClusterRules, LiveNodes
from dlsched.daemon.live.placement_constraints import PlacementConstraints, wishes_of
from dlsched.db.records import JobBody
from dlsched.protocol.messages import GpuId, NodeName


def test_nodes_with_too_small_a_disk_are_left_out() -> None:
    nodes = LiveNodes()
    for name, report in (
        ("n1", '{"tmp_bytes": "100000000000"}'),
        ("n2", '{"tmp_bytes": "900000000000"}'),
        ("n3", "{}"),
    ):
        nodes.register(NodeName(name), [GpuId(name)])
        nodes.describe(name, PlacementConstraints.facts(report))
    constraints = PlacementConstraints(ClusterRules())
    masks = [
        constraints.pool_mask(constraints.enter((job,), wishes_of(body)), nodes)
        for job, body in enumerate(
            (
                JobBody(name="a"),
                JobBody(name="b", tmp_bytes=1 << 30),
                JobBody(name="c", tmp_bytes=1 << 39),
            )
        )
    ]
    assert masks == [0b111, 0b111, 0b110]
