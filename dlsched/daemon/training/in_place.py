"""Runs whose ranks are ready to take over from those of the run before."""

from __future__ import annotations

import json

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.launching import ranks_of
from dlsched.policies.launch.elan.replication import copies
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job, Run
from dlsched.protocol.messages import NodeName
from dlsched.rpc.v1.control_pb2 import RunReport
from dlsched.system.clock import boottime

SAME_NODE, OTHER_NODE = 0, 1  # levels of links between ranks


def note_ready(cluster: Cluster, job: Job, run: Run, report: RunReport) -> None:
    """Have the run before hand over to a run of which all ranks are ready."""
    ledger = cluster.driver.committed
    before = None if run.follows is None else ledger.runs.get(run.follows)
    if before is None or run.stop is not None or before.stop is not None:
        return
    node_of = [node for node, ranks in ranks_of(job, run).items() for _ in ranks]
    ports = list(report.ready_ports)
    if len(ports) != len(node_of):
        return
    alone = {*run.members} | {*before.members} == {node_of[0]}
    hosts = ["127.0.0.1" if alone else host_of(cluster.address(node)) for node in node_of]
    plan = plan_of(next(iter(before.members)), node_of, hosts, ports, report.ready_word)
    cluster.driver.step(leader.ReadyToFollow(boottime(), run.key.run_id, plan))


def plan_of(
    before: NodeName, node_of: list[NodeName], hosts: list[str], ports: list[int], word: str
) -> str:
    """Which rank brings the states that all ranks have in common to which new one.

    Rank 0 of the run before has them; its values are those of a checkpoint. A new rank on another
    node gets them over the network, the next ones there from it.

    Args:
        before: the node of that rank.
        node_of: the node of each new rank.
        hosts: where they listen.
        ports: likewise.
        word: that they expect.

    Returns:
        the plan as `dlsched.job.gang.hand_over` reads it: JSON of the word and, for each new rank,
        its host, its port and which rank brings it the states: a new one, or -1 for the run before.
    """
    places = [before, *node_of]  # 0: rank 0 of the run before

    def level(one: int, other: int) -> int:
        return SAME_NODE if places[one] == places[other] else OTHER_NODE

    planned = copies([0], range(1, len(places)), level)
    source = {copy.target - 1: copy.source - 1 for copy in planned}
    found = enumerate(zip(hosts, ports, strict=True))
    return json.dumps([word, [[host, port, source[rank]] for rank, (host, port) in found]])


def host_of(address: str) -> str:
    """The host in an agent's address, without its port."""
    host = address.rsplit(":", 1)[0] if ":" in address else address
    return host.strip("[]") or "127.0.0.1"
