"""Pools: the nodes that jobs may use, found for any number of pools and nodes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dlsched.core.cluster.description import VirtualCluster
from dlsched.core.cluster.features import alternatives_of, features_of, holds
from dlsched.core.cluster.gpus_by_type import by_type_of
from dlsched.daemon.live.nodes import ClusterRules, LiveNode, LiveNodes
from dlsched.daemon.live.placement_constraints import PlacementConstraints, wishes_of
from dlsched.daemon.live.pool_nodes import GB, SPARES, PoolNodes
from dlsched.db.records import JobBody
from dlsched.protocol.messages import GpuId, NodeName
from tests.counting import python_calls


def cluster(count: int, seed: int = 0) -> tuple[LiveNodes, ClusterRules]:
    """Nodes that differ in all that a pool may ask for."""
    draw, nodes = random.Random(seed), LiveNodes()
    names = [f"n{k}" for k in range(count)]
    for name in names:
        node = nodes.register(NodeName(name), [GpuId(f"{name}-{k}") for k in range(2)])
        nodes.describe(name, {"gpu_type": draw.choice(["a100", "v100", "ANY"])})
        if draw.random() < 0.8:
            nodes.describe(name, {"tmp_gb": draw.choice([1.0, 2.0])})
        if draw.random() < 0.3:
            nodes.describe(name, {"gpu_types": {node.gpus[0]: "a100", node.gpus[1]: "v100"}})

    def some(share: float) -> frozenset[str]:
        return frozenset(name for name in names if draw.random() < share)

    rules = ClusterRules(
        partitions={"short": some(0.7), "all": None},
        vcs=(
            VirtualCluster(name="lab", nodes=tuple(sorted(some(0.4)))),
            VirtualCluster(name="quota"),
        ),
        features={name: tuple(f for f in ("ib", "Big") if draw.random() < 0.5) for name in names},
        spares=some(0.2),
    )
    return nodes, rules


def may_use(key: tuple[Any, ...], node: LiveNode, rules: ClusterRules) -> bool:
    """What a pool means, node by node."""
    vc, partition, types, only, without, constraint, tmp_bytes, *more = key
    owner = {name: tenant.name for tenant in rules.vcs for name in tenant.nodes}
    members = rules.partitions.get(partition) if partition else None
    by_type = by_type_of("".join(said for said in more if said != SPARES))
    features = features_of(rules.features.get(node.name, ()), node.gpu_type)
    return (
        owner.get(node.name) == (vc if vc in owner.values() else None)
        and (SPARES in more or node.name not in rules.spares)
        and (members is None or node.name in members)
        and (not types or node.gpu_type in types)
        and (not by_type or node.may_give(by_type))
        and (not only or node.name in only)
        and node.name not in without
        and not node.facts.tmp_gb * GB < tmp_bytes
        and holds(alternatives_of(constraint), features)
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_pool_has_the_nodes_that_meet_every_wish(seed: int) -> None:
    nodes, rules = cluster(17, seed)
    found, draw = PoolNodes(nodes, rules), random.Random(seed)
    for _ in range(100):
        key = (
            draw.choice(["", "lab", "quota", "unknown"]),
            draw.choice(["", "short", "all", "unknown"]),
            draw.choice([(), ("a100",), ("a100", "v100"), ("h100",)]),
            draw.choice([(), ("n1", "n2", "n16", "elsewhere")]),
            draw.choice([(), ("n1",), ("n3", "elsewhere")]),
            draw.choice(["", "ib", "big&ib|a100", "none|big", "a100&v100"]),
            draw.choice([0, 1, int(GB), int(1.5 * GB), 1 << 70]),
            *draw.choice([(), ("a100:1,v100:1",), (SPARES,), ("a100:1,v100:1", SPARES)]),
        )
        wanted = sum(1 << k for k, node in enumerate(nodes.all()) if may_use(key, node, rules))
        assert found.of(key) == wanted, key


def test_a_pool_costs_no_more_on_more_nodes() -> None:
    costs = []
    for count in (10, 200):
        nodes, rules = cluster(count)
        constraints = PlacementConstraints(rules)
        constraints.enter([1], wishes_of(JobBody(name="a")))
        constraints.pools(nodes)
        for job in range(2, 102):
            body = JobBody(name="a", tmp_bytes=job, not_nodes=("n1",), constraint="ib|big")
            constraints.enter([job], wishes_of(body))
        costs.append(python_calls(lambda c=constraints, n=nodes: c.pools(n)))  # type: ignore[misc]
        assert len(constraints.pools(nodes)) == 101
    assert costs[1] < 1.1 * costs[0]


def test_the_number_of_a_pool_without_jobs_is_used_again() -> None:
    nodes, rules = cluster(8)
    constraints = PlacementConstraints(rules)
    every = constraints.enter([1], wishes_of(JobBody(name="a")))
    for job in range(2, 1_000):
        wanted = wishes_of(JobBody(name="a", tmp_bytes=job))
        number = constraints.enter([job, job + 1_000], wanted)
        assert constraints.enter([job + 2_000], wanted) == number
        assert constraints.pools(nodes)[number][0].endswith(f", {job}]")
        for each in (job, job + 1_000, job + 2_000):
            assert constraints.pool_mask(number, nodes)
            constraints.end(each)
        assert not constraints.pool_mask(number, nodes)
    assert (every, len(constraints.pools(nodes))) == (0, 2)
    assert constraints.pools(nodes)[1] == ("", b"\0")
