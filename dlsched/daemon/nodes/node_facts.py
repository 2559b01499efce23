"""What counts of a node: what the configuration says, else what the agent reports.

GPUs are an exception: only what the agent reports can be given out. A node that has less than the
configuration says is drained; one that has more is used as configured, and both are shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlsched.core.cluster.description import ANY_TYPE, GIB
from dlsched.core.cluster.features import CONTAINER
from dlsched.daemon.nodes.agents import Agents, Described
from dlsched.daemon.settings import NodeSection, Settings
from dlsched.protocol.ledger import Node

GB = 1e9


def facts_that_count(section: NodeSection | None, described: Described | None) -> dict[str, object]:
    """The facts of a node by the names of `LiveNode`; what is not known is left out.

    Args:
        section: of the configuration; None: the node is not listed.
        described: what the agent reported; None: nothing yet.
    """
    found: dict[str, object] = {}
    if described is not None:
        if described.facts.cpus:
            found["cpus"] = described.facts.cpus
        if described.facts.memory_bytes:
            found["memory_gb"] = described.facts.memory_bytes / GB
        if described.facts.tmp_bytes:
            found["tmp_gb"] = described.facts.tmp_bytes / GB
        sizes = [gpu.memory_bytes for gpu in described.facts.gpus if gpu.memory_bytes]
        if sizes:
            found["gpu_memory_gib"] = min(sizes) / GIB
    if section is not None:
        found |= {name: value for name, value in section.facts().items() if value not in (None, "")}
    return found


def features_in_force(settings: Settings, agents: Agents) -> dict[str, tuple[str, ...]]:
    """The features of nodes: those of the configuration, and that a node can run containers."""
    found = dict(settings.node_features())
    for name, described in agents.described.items():
        if CONTAINER in described.facts.capabilities:
            found[name] = (*found.get(name, ()), CONTAINER)
    return found


def mismatches(
    section: NodeSection, node: Node, described: Described | None
) -> Iterator[tuple[str, bool]]:
    """Where configuration and agent differ, in words, and whether the node has too little.

    Args:
        section: of the configuration.
        node: as it has registered.
        described: what its agent reported beside that; None: nothing yet.
    """
    pairs: list[tuple[str, float | None, float, str]] = [
        ("GPUs", section.gpus or None, len(node.gpus), "")
    ]
    if described is not None:
        facts = described.facts
        pairs += [
            ("CPUs", section.cpus, facts.cpus, ""),
            ("memory", section.memory_gb, facts.memory_bytes / GB, " GB"),
        ]
    for what, wanted, has, unit in pairs:
        if wanted is None or (not has and what != "GPUs"):
            continue
        low = has < wanted
        if low or (has > wanted and what != "memory"):  # a bit more memory is no news
            word = f"low {what}: " if low else f"{what}: "
            yield f"{word}{has:.4g}{unit} reported, {wanted:.4g}{unit} in the configuration", low
    types = {} if described is None else dict.fromkeys(gpu.type for gpu in described.facts.gpus)
    told = [each for each in types if each not in ("", ANY_TYPE)]
    if section.gpu_type and any(each.lower() != section.gpu_type.lower() for each in told):
        yield (
            f"GPU type: {' and '.join(told)} reported, {section.gpu_type} in the configuration",
            True,
        )
