"""Which task of a batch goes to which node, and in which order they are sent.

At most one task of a batch goes to each node, so that its wait stays true. In each iteration a task
proposes to the node on which it would be done first. A node with several proposals takes the task
that would lose most by going elsewhere; the others propose again to what is left.

Paper: section 3.4, a variant of stable matching. `greedily` and `at_best` are what the paper
compares it with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlsched.policies.blas import one_thread

Costs = NDArray[Any]  # floats or exact fractions
MOST_ITERATIONS = 10


class Matching(NamedTuple):
    """The node of each matched task, and how many iterations it took."""

    node_of: dict[int, int]
    iterations: int


def match(
    costs: Costs, priority: Sequence[float], most_iterations: int = MOST_ITERATIONS
) -> Matching:
    """Match the tasks of a batch with nodes.

    Args:
        costs: completion of each task on each node, [task, node]; infinite: it cannot run there.
        priority: of each task; a smaller number wins a tie.
        most_iterations: after which the rest waits for the next batch.
    """
    tasks, nodes = list(range(costs.shape[0])), np.arange(costs.shape[1])
    node_of: dict[int, int] = {}
    iterations = 0
    while tasks and len(nodes) and iterations < most_iterations:
        here = costs[np.asarray(tasks)[:, None], nodes]
        best = here.argmin(axis=1)  # the first of equals: the lower node
        rows = np.arange(len(tasks))
        first = here[rows, best]
        others = here.copy()
        others[rows, best] = np.inf
        saving = others.min(axis=1) - np.where(first == np.inf, 0, first)
        proposals: dict[int, list[int]] = {}
        for place in rows.tolist():
            if first[place] < np.inf:
                proposals.setdefault(int(best[place]), []).append(place)
        if not proposals:
            break
        iterations += 1
        for node, places in proposals.items():
            won = min(places, key=lambda p: (-saving[p], priority[tasks[p]], tasks[p]))
            node_of[tasks[won]] = int(nodes[node])
        tasks = [task for task in tasks if task not in node_of]
        nodes = np.delete(nodes, list(proposals))
    return Matching(dict(sorted(node_of.items())), iterations)


def greedily(costs: Costs, priority: Sequence[float]) -> dict[int, int]:
    """Each task in turn, by priority, takes the best node that is left."""
    nodes = np.arange(costs.shape[1])
    node_of: dict[int, int] = {}
    for task in sorted(range(costs.shape[0]), key=lambda task: (priority[task], task)):
        if not len(nodes):
            break
        best = int(costs[task, nodes].argmin())
        if costs[task, nodes[best]] < np.inf:
            node_of[task] = int(nodes[best])
            nodes = np.delete(nodes, best)
    return dict(sorted(node_of.items()))


def at_best(costs: Costs) -> dict[int, int]:
    """The assignment with the least sum."""
    with one_thread():
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - heavy, and only used here

    can = costs < np.inf
    if not can.any():
        return {}
    most = float(costs[can].max())
    dear = (most + 1.0) * (max(costs.shape) + 1)  # more than any assignment without it
    tasks, nodes = linear_sum_assignment(np.where(can, costs, dear).astype(np.float64))
    return {int(t): int(n) for t, n in zip(tasks, nodes, strict=True) if can[t, n]}


def dispatch_order(node_of: dict[int, int], costs: Costs, wait: Any) -> list[int]:
    """Matched tasks in the order in which they are sent: least wait, then least completion.

    Args:
        node_of: the matching.
        costs: completion of each task on each node, [task, node].
        wait: on each node, [node], or of each task on each node, [task, node].
    """
    waits = np.broadcast_to(wait, costs.shape)

    def key(task: int) -> tuple[Any, Any, int]:
        node = node_of[task]
        return waits[task, node], costs[task, node], task

    return sorted(node_of, key=key)


def first_batch(priority: Sequence[float], nodes: int, span: float = 0.0) -> list[int]:
    """Which of the ready tasks are matched together: those of about the highest priority.

    Args:
        priority: of each ready task, a smaller number first.
        nodes: there are at most so many tasks in a batch.
        span: priorities that differ by no more than so much are similar.

    Returns:
        places, by priority and then as they came.
    """
    order = sorted(range(len(priority)), key=lambda place: (priority[place], place))
    top = priority[order[0]] if order else 0.0
    return [place for place in order[:nodes] if priority[place] <= top + span]
