"""Carbyne for jobs on GPUs: a graph of jobs that wait for each other is one job of the paper.

Each job of the graph is a stage of one task, which needs its gang, and CPUs and memory where they
are known. Its duration is its predicted work. A job without parents and children is a graph of
itself. Nothing is preempted.

The paper's plans are made anew when something has changed, and here also when a planned beginning
comes. Resources count as whole parts of the cluster (10⁻⁹), so that plans are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats
from dlsched.core.context import RoundContext
from dlsched.core.memory import kept, rows
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.carbyne.exact import ExactRoom
from dlsched.policies.scheduling.carbyne.live_graphs import PARTS, GraphsOfTable, LiveGraph
from dlsched.policies.scheduling.carbyne.plan import greedy, plan_backwards
from dlsched.policies.scheduling.carbyne.stages import work_left

CRUMB = 100  # parts that rounding may take; one of 100,000 GPUs has 10,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Carbyne."""

    altruistic: bool = option(
        True, "a graph begins only what must begin now; false: all that fits its share"
    )


class Carbyne(SchedulingPolicy[Options]):
    """Graphs begin what must begin now; what they leave goes to those with the least work left."""

    name = "carbyne"
    summary = "what a graph of jobs does not need now is lent to short ones (Carbyne)"
    needs = frozenset({"predicted_work"})
    plans_children = True

    _wake: float = kept(-np.inf)  # when a planned beginning comes
    _waiting: set[int] = rows(set)  # after the last plan
    _running: set[int] = rows(set)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._graphs = GraphsOfTable()

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Begin jobs of graphs, first from their shares, then from what all leave."""
        if not len(units):
            return
        waiting, running = set(units.rows.tolist()), set(ctx.running.rows.tolist())
        is_same = waiting == self._waiting and running == self._running
        if ctx.changes or not is_same or ctx.now >= self._wake:
            begun = self._plan(units, ctx, walk)
            self._waiting = waiting.difference(begun)
            self._running = running.union(begun)
        walk.wake_at(self._wake)
        walk.stable_until(self._wake)

    def _plan(self, units: Units, ctx: RoundContext, walk: Walk) -> list[int]:
        """Place jobs; returns their rows."""
        graphs = self._graphs.of(units, ctx)
        shares = _shares(graphs)
        begun: list[int] = []
        planned: list[tuple[LiveGraph, list[int]]] = []
        for graph, share in zip(graphs, shares, strict=True):
            if not graph.ready:
                continue
            first, graph.later = self._first(graph, share - graph.held)
            planned.append((graph, first))
        free = PARTS - sum((graph.held for graph in graphs), np.zeros_like(shares[0]))
        for graph, first in planned:
            free = _begin(graph, first, free, walk, begun)
        order = sorted(
            (graph for graph in graphs if graph.ready),
            key=lambda graph: work_left(graph.graph, graph.waiting),
        )
        for graph in order:
            if not (free > CRUMB).any():
                break
            plan = plan_backwards(graph.graph, graph.waiting, _room(free))
            first = [] if plan is None else [n for n in graph.ready if plan.first[n]]
            free = _begin(graph, first, free, walk, begun)
        for graph in graphs:
            for number in graph.ready:
                why = graph.reasons.get(number, Refused("Resources", "its plan begins it later"))
                walk.refuse(graph.rows[number], why)
        later = (graph.later.get(number, np.inf) for graph in graphs for number in graph.ready)
        self._wake = ctx.now + min(later, default=np.inf)
        return begun

    def _first(self, graph: LiveGraph, size: Floats) -> tuple[list[int], dict[int, float]]:
        """The ready stages to begin now, and seconds until others are planned to begin."""
        room = _room(size)
        if not self.options.altruistic:
            return greedy(graph.graph, graph.waiting, graph.ready, room), {}
        plan = plan_backwards(graph.graph, graph.waiting, room)
        if plan is None:
            return [], {}
        first = [number for number in graph.ready if plan.first[number]]
        return first, {number: float(after) for number, after in plan.later.items()}


def _shares(graphs: Sequence[LiveGraph]) -> Floats:
    """Parts of each resource that a graph is owed: equal dominant shares (DRF)."""
    totals = np.array(
        [
            [float(sum(column)) for column in zip(*needs, strict=True)]
            for graph in graphs
            if (needs := [stage.demand for stage in graph.graph.stages])
        ]
    )
    largest = totals.max(axis=1, keepdims=True)
    wanted = totals / np.where(largest > 0, largest, 1.0)
    fullest = wanted.sum(axis=0).max()
    return wanted * (PARTS / fullest if fullest > 0 else 0.0)


def _room(size: Floats) -> ExactRoom:
    return ExactRoom(np.maximum(np.rint(size) + CRUMB, 0).astype(np.int64).tolist())


def _begin(
    graph: LiveGraph, first: Sequence[int], free: Floats, walk: Walk, begun: list[int]
) -> Floats:
    """Place jobs; returns what is free then. One that cannot be placed stays ready."""
    for number in first:
        row = graph.rows[number]
        need = np.array(graph.graph.stages[number].demand)
        if (need > free + CRUMB).any():
            continue
        if isinstance(refused := walk.place(row), Refused):
            graph.reasons[number] = refused
            continue
        free = free - need
        graph.waiting[number] = 0
        graph.ready.remove(number)
        begun.append(row)
    return free
