"""In which order a GPU runs its operations: as they become ready, or by ranks.

    source   longest path of operations from the beginning, smaller first (the published program)
    upward   longest path to the end with transfers, larger first (the paper; HEFT)

A rank order is kept by edges without data between the operations of one GPU.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

from simulate.worlds.plans.iteration import Edge, Graph, Network

Order = Literal["upward", "source", "fifo"]


def ranked(graph: Graph, network: Network, order: Order) -> Graph:
    """The graph with the order of each GPU's operations; `fifo` leaves it as it is."""
    if order == "fifo":
        return graph
    ranks = source_ranks(graph) if order == "source" else upward_ranks(graph, network)
    sign = 1 if order == "source" else -1
    place = {number: at for at, number in enumerate(graph.in_order())}
    chains: dict[int, list[int]] = {}
    for number, operation in enumerate(graph.operations):
        if operation.instance < 0:
            chains.setdefault(operation.device, []).append(number)
    edges = list(graph.edges)
    for chain in chains.values():
        chain.sort(key=lambda number: (sign * ranks[number], place[number]))
        edges += [Edge(a, b) for a, b in itertools.pairwise(chain)]
    return replace(graph, edges=edges)


def source_ranks(graph: Graph) -> list[int]:
    """Each operation's µs and 1, and those of the longest path to it; transfers do not count."""
    ranks = [0] * len(graph.operations)
    into: list[list[int]] = [[] for _ in graph.operations]
    for edge in graph.edges:
        into[edge.target].append(edge.source)
    for number in graph.in_order():
        before = max((ranks[each] for each in into[number]), default=0)
        ranks[number] = graph.operations[number].compute_us + 1 + before
    return ranks


def upward_ranks(graph: Graph, network: Network) -> list[int]:
    """Each operation's µs and 1, and the longest path from it to the end, transfers included."""
    ranks = [0] * len(graph.operations)
    after: list[list[tuple[int, int]]] = [[] for _ in graph.operations]
    for edge in graph.edges:
        a, b = (graph.operations[each].device for each in (edge.source, edge.target))
        cost = 0 if edge.bytes is None else network.transfer_us(a, b, edge.bytes)
        after[edge.source].append((edge.target, cost))
    for number in reversed(graph.in_order()):
        operation = graph.operations[number]
        size = graph.collective_bytes.get(operation.instance)
        own = operation.compute_us if size is None else network.collective_us(size)
        rest = max((cost + ranks[each] for each, cost in after[number]), default=0)
        ranks[number] = own + 1 + rest
    return ranks
