"""From configurations to nodes.

A configuration below a node never spans nodes, whole nodes are taken completely, and small jobs
move if fragmentation prevents a placement. With powers of two and whole nodes this always succeeds;
jobs with other numbers of GPUs may have to be spread, or fail.

`keep` moves as few jobs as possible: a job that keeps its configuration stays; jobs over several
nodes take the last empty nodes; other jobs go where they fit best. `fast` places all jobs again,
largest first, for worlds in which a move to GPUs of the same shape costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlsched.policies.scheduling.sia.node_capacity import NodeCapacity

Counts = list[tuple[int, int]]  # (node, GPUs)


class Request(NamedTuple):
    """The GPUs of a type that a row shall have."""

    gpu_type: int
    gpus: int


def plan_all_again(requests: Mapping[int, Request], capacity: NodeCapacity) -> dict[int, Counts]:
    """Place all jobs again, largest first: nodes in order, whole nodes before parts of nodes."""
    plan: dict[int, Counts] = {}
    room = list(capacity.room)
    for gpu_type, nodes in enumerate(capacity.nodes):
        pointer, count = 0, len(nodes)
        rows = [row for row, request in requests.items() if request.gpu_type == gpu_type]
        for row in sorted(rows, key=lambda row: -requests[row].gpus):
            size, left = capacity.size[gpu_type], requests[row].gpus
            whole = left // size
            given: Counts = []
            for step in range(count):
                node = nodes[(pointer + step) % count]
                if len(given) < whole and room[node] == size:
                    given.append((node, size))
            left -= sum(gpus for _, gpus in given)
            if given:
                pointer = (nodes.index(given[-1][0]) + 1) % count
            taken = {node for node, _ in given}
            for at in [(pointer + step) % count for step in range(count)]:
                node = nodes[at]
                part = 0 if node in taken else min(room[node], left)
                if part:
                    given.append((node, part))
                    left -= part
                    pointer = (at + 1) % count if part == room[node] else at
                if not left:
                    break
            if not left:
                plan[row] = given
                for node, part in given:
                    room[node] -= part
    return plan


def plan_with_few_moves(
    requests: Mapping[int, Request], held: Mapping[int, Counts], capacity: NodeCapacity
) -> dict[int, Counts]:
    """Place all jobs with as few moves as possible.

    `held` are the nodes of rows that may be moved, and `capacity` the room after these have left.

    Returns:
        the nodes of each row; rows that could not be placed are missing.
    """
    return _FewMoves(requests, held, capacity).plan


class _FewMoves:
    """A plan that is built step by step.

    Attributes:
        plan: by row, its nodes.
    """

    def __init__(
        self, requests: Mapping[int, Request], held: Mapping[int, Counts], capacity: NodeCapacity
    ) -> None:
        self._requests, self._capacity = requests, capacity
        self._room = list(capacity.room)
        self.plan: dict[int, Counts] = {}
        for row, counts in held.items():
            if row in requests and self._same(requests[row], counts):
                self._give(row, counts)
        size = capacity.size
        new = [row for row in requests if row not in self.plan]
        new.sort(key=lambda row: -requests[row].gpus)
        self._single = [row for row in new if requests[row].gpus <= size[requests[row].gpu_type]]
        for row in new:
            if requests[row].gpus > size[requests[row].gpu_type]:
                self._spread(row)
        while self._single:
            self._single.sort(key=lambda row: -requests[row].gpus)
            self._fit(self._single.pop(0))

    def _same(self, request: Request, counts: Counts) -> bool:
        """Whether these nodes satisfy the request; a job does not move only for another shape."""
        gpu_type = self._capacity.gpu_type(tuple(node for node, _ in counts))
        return gpu_type == request.gpu_type and sum(gpus for _, gpus in counts) == request.gpus

    def _give(self, row: int, counts: Counts) -> None:
        self.plan[row] = counts
        for node, gpus in counts:
            self._room[node] -= gpus

    def _take_back(self, row: int) -> None:
        for node, gpus in self.plan.pop(row):
            self._room[node] += gpus

    def _spread(self, row: int) -> None:
        """Place a job on empty nodes, from the last one down, and the rest where it fits best."""
        request = self._requests[row]
        size = self._capacity.size[request.gpu_type]
        whole, rest = divmod(request.gpus, size)
        nodes = self._capacity.nodes[request.gpu_type]
        empty = [node for node in reversed(nodes) if self._room[node] >= size][:whole]
        if len(empty) < whole:
            empty += self._emptied(request.gpu_type, whole - len(empty), set(empty))
        if len(empty) < whole:
            self._anywhere(row)
            return
        self._give(row, [(node, size) for node in empty])
        if rest:
            fitting = [n for n in nodes if self._room[n] >= rest and n not in empty]
            if fitting:
                node = min(fitting, key=lambda n: (self._room[n], n))
                self._take_back(row)
                self._give(row, [*((each, size) for each in empty), (node, rest)])
            else:
                self._take_back(row)
                self._anywhere(row)

    def _emptied(self, gpu_type: int, count: int, but: set[int]) -> list[int]:
        """Clear the nodes on which small jobs hold the fewest GPUs."""
        size = self._capacity.size[gpu_type]
        cost: list[tuple[int, int]] = []
        for node in self._capacity.nodes[gpu_type]:
            movers = self._movers(node, size)
            freed = self._room[node] + sum(self._requests[row].gpus for row in movers)
            if node not in but and self._room[node] < size and freed >= size:
                cost.append((sum(self._requests[row].gpus for row in movers), node))
        chosen = [node for _, node in sorted(cost)[:count]]
        if len(chosen) < count:
            return []
        for node in chosen:
            for row in self._movers(node, size):
                self._evict(row)
        return chosen

    def _movers(self, node: int, below: int) -> list[int]:
        """Jobs on only this node with fewer GPUs than that (or a whole node), smallest first."""
        found = [
            row
            for row, counts in self.plan.items()
            if len(counts) == 1 and counts[0][0] == node and self._requests[row].gpus < below
        ]
        return sorted(found, key=lambda row: (self._requests[row].gpus, row))

    def _evict(self, row: int) -> None:
        self._take_back(row)
        self._single.append(row)

    def _fit(self, row: int) -> None:
        """Place a job on the tightest node with room, or on the one where the fewest must move."""
        request = self._requests[row]
        nodes = self._capacity.nodes[request.gpu_type]
        fitting = [node for node in nodes if self._room[node] >= request.gpus]
        if fitting:
            self._give(row, [(min(fitting, key=lambda n: (self._room[n], n)), request.gpus)])
            return
        best: tuple[int, int] | None = None
        for node in nodes:
            room = self._room[node]
            for count, mover in enumerate(self._movers(node, request.gpus), 1):
                room += self._requests[mover].gpus
                if room >= request.gpus:
                    best = min(best or (count, node), (count, node))
                    break
        if best is None:
            self._anywhere(row)
            return
        for mover in self._movers(best[1], request.gpus)[: best[0]]:
            self._evict(mover)
        self._give(row, [(best[1], request.gpus)])

    def _anywhere(self, row: int) -> None:
        """Spread a job of unusual size over as few nodes as possible, if there is room."""
        request, counts = self._requests[row], list[tuple[int, int]]()
        if (
            request.gpus <= self._capacity.size[request.gpu_type]
            and request.gpus & (request.gpus - 1) == 0
        ):
            return  # a configuration below a node never spans nodes
        left = request.gpus
        for node in sorted(
            self._capacity.nodes[request.gpu_type], key=lambda n: (-self._room[n], n)
        ):
            part = min(self._room[node], left)
            if part:
                counts.append((node, part))
                left -= part
        if not left:
            self._give(row, counts)
