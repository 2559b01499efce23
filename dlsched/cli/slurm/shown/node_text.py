"""`scontrol show node` and `show partition`: Slurm's lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlsched.cli.slurm.formats import moment
from dlsched.cli.slurm.node_words import (
    address_of,
    configured,
    cpus_held,
    features,
    gres,
    gres_used,
    long_state,
    port_of,
)
from dlsched.cli.slurm.sacct_cells import clock
from dlsched.client.records import Node
from dlsched.host_lists import fold
from dlsched.rpc.v1.control_pb2 import TenantPartition


def node_text(node: Node, *, details: bool = False) -> str:
    """The lines of a node; with details, which GPUs are in use."""
    cpus, memory = node.cpus or 0, (node.memory_bytes or 0) >> 20
    held, held_memory = cpus_held(node), node.memory_held_bytes >> 20
    can, has = features(node), gres(node) or "(null)"
    lines = [
        f"NodeName={node.name} CoresPerSocket=1",
        f"   CPUAlloc={held} CPUEfctv={cpus} CPUTot={cpus} CPULoad=N/A",
        f"   AvailableFeatures={can}",
        f"   ActiveFeatures={can}",
        f"   Gres={has}",
        *([f"   GresDrain=N/A\n   GresUsed={gres_used(node) or '(null)'}"] if details else ()),
        f"   NodeAddr={address_of(node)} NodeHostName={node.name} Port={port_of(node)} "
        f"Version={node.agent_version or ''}",
        f"   RealMemory={memory} AllocMem={held_memory} FreeMem=N/A Sockets={cpus} Boards=1",
        f"   State={long_state(node).upper()} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "
        "MCS_label=N/A",
        f"   Partitions={','.join(node.partitions)}",
        f"   CfgTRES={configured(node)}",
        f"   AllocTRES={held_text(node)}",
    ]
    if node.reason:
        by = f"[{node.reason_by or 'Unknown'}@{moment(node.reason_at)}]"
        lines.append(f"   Reason={node.reason} {by}")
    return "\n".join([*lines, ""])


def held_text(node: Node) -> str:
    """What jobs hold of a node, as Slurm writes it; nothing where no job is."""
    held = {
        "cpu": str(cpus_held(node) or ""),
        "mem": f"{node.memory_held_bytes >> 20}M" if node.memory_held_bytes else "",
        "gres/gpu": str(node.busy_gpus or ""),
    }
    return ",".join(f"{name}={value}" for name, value in held.items() if value)


def partition_text(each: TenantPartition, nodes: Sequence[Node]) -> str:
    """The lines of a partition.

    Args:
        each: the partition.
        nodes: of the cluster.
    """
    mine = [node for node in nodes if each.name in node.partitions]
    cpus = sum(node.cpus or 0 for node in mine)
    memory = sum((node.memory_bytes or 0) >> 20 for node in mine)
    gpus = sum(node.gpus for node in mine)
    limit = clock(each.max_time_s) if each.HasField("max_time_s") else "UNLIMITED"
    usual = clock(each.default_time_s) if each.HasField("default_time_s") else "NONE"
    groups, accounts = ",".join(each.groups) or "ALL", ",".join(each.accounts) or "ALL"
    lines = [
        f"PartitionName={each.name}",
        f"   AllowGroups={groups} AllowAccounts={accounts} AllowQos=ALL",
        f"   AllocNodes=ALL Default={'YES' if each.is_default else 'NO'} QoS=N/A",
        f"   DefaultTime={usual} DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
        f"   MaxNodes=UNLIMITED MaxTime={limit} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
        f"   Nodes={each.nodes or fold([node.name for node in mine])}",
        "   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
        "   OverTimeLimit=NONE PreemptMode=OFF",
        f"   State=UP TotalCPUs={cpus} TotalNodes={len(mine)} SelectTypeParameters=NONE",
        "   JobDefaults=(null)",
        "   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"   TRES=cpu={cpus},mem={memory}M,node={len(mine)},billing={cpus}"
        + (f",gres/gpu={gpus}" if gpus else ""),
    ]
    return "\n".join([*lines, ""])


def partition_texts(
    found: Sequence[TenantPartition], nodes: Sequence[Node], asked: set[str]
) -> Iterator[str]:
    """The texts of the partitions that are asked for; of all where none is named."""
    for each in found:
        if not asked or each.name in asked:
            yield partition_text(each, nodes)
