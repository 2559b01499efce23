"""What counts of a node: what the configuration says, else what the agent reports.

GPUs are an exception: only what the agent reports can be given out. A node that has less than the
configuration says is drained; one that has more is used as configured, and both are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dlsched.core.cluster.description import ANY_TYPE, GIB
from dlsched.core.cluster.features import CONTAINER
from dlsched.daemon.nodes.agents import Agents, Described
from dlsched.daemon.settings import NodeSection, Settings
from dlsched.nodes.fields import ROWS, Row, of_report
from dlsched.protocol.ledger import Node


def facts_that_count(section: NodeSection | None, described: Described | None) -> dict[str, object]:
    """The facts of a node by the names of `LiveNode`; what is not known is left out.

    Args:
        section: of the configuration; None: the node is not listed.
        described: what the agent reported; None: nothing yet.
    """
    found: dict[str, object] = {}
    if described is not None:
        found |= of_report(partial(getattr, described.facts))
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
    gpus = Row(form="number", label="GPUs", exact=True)
    pairs: list[tuple[Row, object, float]] = [(gpus, section.gpus or None, len(node.gpus))]
    if described is not None:
        reported = of_report(partial(getattr, described.facts))
        wanted_of = section.facts()
        pairs += [(ROWS[name], wanted_of.get(name), has) for name, has in reported.items()]
    for row, wanted, has in pairs:
        if not isinstance(wanted, int | float):
            continue
        low = has < wanted
        if low or (has > wanted and row.exact):
            word = f"low {row.label}: " if low else f"{row.label}: "
            word += f"{has:.4g}{row.unit} reported"
            yield f"{word}, {wanted:.4g}{row.unit} in the configuration", low
    types = {} if described is None else dict.fromkeys(gpu.type for gpu in described.facts.gpus)
    told = [each for each in types if each not in ("", ANY_TYPE)]
    if section.gpu_type and any(each.lower() != section.gpu_type.lower() for each in told):
        yield (
            f"GPU type: {' and '.join(told)} reported, {section.gpu_type} in the configuration",
            True,
        )
