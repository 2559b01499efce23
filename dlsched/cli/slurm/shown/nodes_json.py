"""Nodes and partitions as `sinfo --json` and `scontrol show node --json` print them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlsched.cli.slurm.cluster import cluster_name
from dlsched.cli.slurm.node_words import (
    OPEN,
    address_of,
    configured,
    cpus_held,
    gres,
    gres_used,
    long_state,
    plain_state,
    port_of,
    responds,
)
from dlsched.cli.slurm.shown.node_text import held_text
from dlsched.cli.slurm.shown.slurm_json import minutes, number, print_document
from dlsched.client.records import Node
from dlsched.host_lists import fold
from dlsched.rpc.v1.control_pb2 import TenantPartition

if TYPE_CHECKING:
    from dlsched.cli.slurm.sinfo import Group

# by which `sinfo --json` puts nodes together, as Slurm does
APART = ("Partition", "StateLong", "Gres", "CPUs", "Memory", "Features", "Reason", "GresUsed")


def states_of(node: Node) -> list[str]:
    """A node's state and its flags, as `["IDLE", "DRAIN"]`."""
    plain = plain_state(node)
    base = {"drained": "IDLE", "draining": "MIXED", "full": "ALLOCATED"}.get(plain)
    flags = {"drained": ["DRAIN"], "draining": ["DRAIN"]}.get(plain, [])
    if not responds(node) and plain not in ("down", "late"):
        flags = [*flags, "NOT_RESPONDING"]
    return [base or long_state(node).rstrip("*~#").upper(), *flags]


def _features(node: Node) -> list[str]:
    return [each for each in (node.gpu_type, *node.features) if each]


def _node(node: Node) -> dict[str, Any]:
    cpus, held = node.cpus or 0, cpus_held(node)
    return {
        "architecture": "",
        "boards": 1,
        "boot_time": number(0),
        "cluster_name": cluster_name(),
        "cores": 1,
        "cpu_load": 0,
        "free_mem": number(None),
        "cpus": cpus,
        "effective_cpus": cpus,
        "extra": "",
        "features": _features(node),
        "active_features": _features(node),
        "gres": gres(node),
        "gres_drained": "N/A",
        "gres_used": gres_used(node),
        "name": node.name,
        "address": address_of(node),
        "hostname": node.name,
        "state": states_of(node),
        "operating_system": "",
        "owner": "",
        "partitions": list(node.partitions),
        "port": int(port_of(node)),
        "real_memory": (node.memory_bytes or 0) >> 20,
        "comment": "",
        "reason": node.reason or "",
        "reason_changed_at": number(node.reason_at or 0),
        "reason_set_by_user": node.reason_by or "",
        "reservation": "",
        "alloc_memory": node.memory_held_bytes >> 20,
        "alloc_cpus": held,
        "alloc_idle_cpus": cpus - held,
        "tres": configured(node),
        "tres_used": held_text(node),
        "sockets": cpus,
        "threads": 1,
        "temporary_disk": 0,
        "weight": 1,
        "version": node.agent_version or "",
    }


def print_nodes(nodes: Iterable[Node]) -> None:
    """Print nodes."""
    found = [_node(node) for node in nodes]
    print_document(["show", "nodes"], nodes=found, last_update=number(time.time()))


def _partition(each: TenantPartition, nodes: Sequence[Node]) -> dict[str, Any]:
    mine = [node for node in nodes if each.name in node.partitions]
    limit = each.max_time_s if each.HasField("max_time_s") else None
    usual = each.default_time_s if each.HasField("default_time_s") else None
    cpus = sum(node.cpus or 0 for node in mine)
    return {
        "name": each.name,
        "cluster": cluster_name(),
        "nodes": {
            "allowed_allocation": "",
            "configured": each.nodes or fold([node.name for node in mine]),
            "total": len(mine),
        },
        "accounts": {"allowed": ",".join(each.accounts), "deny": ""},
        "groups": {"allowed": ",".join(each.groups)},
        "qos": {"allowed": "", "deny": "", "assigned": ""},
        "cpus": {"task_binding": 0, "total": cpus},
        "defaults": {
            "memory_per_cpu": 0,
            "time": number(None if usual is None else usual // 60),
            "job": "",
        },
        "grace_time": 0,
        "maximums": {
            "cpus_per_node": number(None, infinite=True),
            "nodes": number(None, infinite=True),
            "time": minutes(limit),
        },
        "minimums": {"nodes": 0},
        "priority": {"job_factor": 1, "tier": 1},
        "partition": {"state": ["UP"]},
        "tres": {"billing_weights": "", "configured": f"cpu={cpus},node={len(mine)}"},
    }


def print_partitions(found: Sequence[TenantPartition], nodes: Sequence[Node]) -> None:
    """Print partitions."""
    partitions = [_partition(each, nodes) for each in found]
    now = number(time.time())
    print_document(["show", "partitions"], partitions=partitions, last_update=now)


def _extremes(values: Iterable[int]) -> dict[str, int]:
    known = list(values)
    return {"minimum": min(known), "maximum": max(known)}


def _group(
    group: Group, known: Mapping[str, TenantPartition], nodes: Sequence[Node]
) -> dict[str, Any]:
    """One entry of `sinfo --json`: nodes of a partition that are alike."""
    mine, first = group.nodes, group.first
    cpus, held = [node.cpus or 0 for node in mine], [cpus_held(node) for node in mine]
    is_open = plain_state(first) in OPEN
    idle = sum(cpus) - sum(held) if is_open else 0
    free = {"minimum": number(None), "maximum": number(None)}
    name = group.partition.rstrip("*")
    count = len(mine)
    with_jobs = count if plain_state(first) in ("mixed", "full") else 0
    without = count if plain_state(first) == "idle" else 0
    return {
        "port": int(port_of(first)),
        "node": {"state": states_of(first)},
        "nodes": {
            "allocated": with_jobs,
            "idle": without,
            "other": count - with_jobs - without,
            "total": count,
            "hostnames": [node.name for node in mine],
            "addresses": [address_of(node) for node in mine],
            "nodes": [node.name for node in mine],
        },
        "cpus": {
            "allocated": sum(held),
            "idle": idle,
            "other": sum(cpus) - sum(held) - idle,
            "total": sum(cpus),
            **_extremes(cpus),
            "load": free,
        },
        "sockets": _extremes(cpus),
        "cores": _extremes([1]),
        "threads": _extremes([1]),
        "disk": _extremes([0]),
        "memory": {
            **_extremes((node.memory_bytes or 0) >> 20 for node in mine),
            "free": free,
            "allocated": sum(node.memory_held_bytes >> 20 for node in mine),
        },
        "weight": _extremes([1]),
        "features": {"total": ",".join(_features(first)), "active": ",".join(_features(first))},
        "gres": {
            "total": gres(first),
            "used": gres_used(first),
        },
        "cluster": cluster_name(),
        "comment": "",
        "extra": "",
        "reason": {
            "description": first.reason or "",
            "time": number(first.reason_at or 0),
            "user": first.reason_by or "",
        },
        "reservation": "",
        "partition": _partition(known.get(name, TenantPartition(name=name)), nodes),
    }


def print_groups(
    groups: Iterable[Group], partitions: Sequence[TenantPartition], nodes: Sequence[Node]
) -> None:
    """Print what `sinfo` lists.

    Args:
        groups: of nodes that are alike.
        partitions: of the cluster.
        nodes: all of the cluster, which the totals of partitions count.
    """
    known = {each.name: each for each in partitions}
    print_document(["sinfo"], sinfo=[_group(each, known, nodes) for each in groups])
