"""From configurations to nodes.

A part of a node never spans nodes, whole nodes are taken whole, and where fragmentation is in the
way, small jobs move. Powers of two and whole nodes guarantee that this works; jobs with another
number of GPUs than that may have to be spread, or fail.

`keep` moves as few jobs as possible: who keeps its configuration stays; jobs over several nodes
take the last empty ones; others go where they fit best. `fast` lays all out anew, largest first,
for worlds in which a move to GPUs of the same shape costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlsched.policies.scheduling.sia.ground import Ground

__all__ = ["Ask", "Counts", "fast_plan", "keeping_plan"]

Counts = list[tuple[int, int]]  # (node, GPUs)


class Ask(NamedTuple):
    """What a row is to have: GPUs of a type."""

    kind: int
    gpus: int


def fast_plan(asks: Mapping[int, Ask], ground: Ground) -> dict[int, Counts]:
    """Everybody anew: jobs by GPUs, most first, nodes in turn, whole nodes before parts."""
    plan: dict[int, Counts] = {}
    room = list(ground.room)
    for kind, nodes in enumerate(ground.nodes):
        pointer, count = 0, len(nodes)
        rows = [row for row, ask in asks.items() if ask.kind == kind]
        for row in sorted(rows, key=lambda row: -asks[row].gpus):
            size, left = ground.size[kind], asks[row].gpus
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


def keeping_plan(
    asks: Mapping[int, Ask], held: Mapping[int, Counts], ground: Ground
) -> dict[int, Counts]:
    """Move as few as possible.

    Args:
        asks: what each row is to have.
        held: where rows are that may be moved.
        ground: room when all those have left.

    Returns:
        where each row is to be; rows that found no place are left out.
    """
    return _Keeping(asks, held, ground).plan


class _Keeping:
    """A plan in the making.

    Attributes:
        plan: by row, its nodes.
    """

    def __init__(self, asks: Mapping[int, Ask], held: Mapping[int, Counts], ground: Ground) -> None:
        self._asks, self._ground = asks, ground
        self._room = list(ground.room)
        self.plan: dict[int, Counts] = {}
        for row, counts in held.items():
            if row in asks and self._same(asks[row], counts):
                self._give(row, counts)
        new = sorted((row for row in asks if row not in self.plan), key=lambda r: -asks[r].gpus)
        self._single = [row for row in new if asks[row].gpus <= ground.size[asks[row].kind]]
        for row in new:
            if asks[row].gpus > ground.size[asks[row].kind]:
                self._spread(row)
        while self._single:
            self._single.sort(key=lambda row: -asks[row].gpus)
            self._fit(self._single.pop(0))

    def _same(self, ask: Ask, counts: Counts) -> bool:
        """Is that what it has? Nobody moves for the sake of another shape alone."""
        kind = self._ground.kind(tuple(node for node, _ in counts))
        return kind == ask.kind and sum(gpus for _, gpus in counts) == ask.gpus

    def _give(self, row: int, counts: Counts) -> None:
        self.plan[row] = counts
        for node, gpus in counts:
            self._room[node] -= gpus

    def _take_back(self, row: int) -> None:
        for node, gpus in self.plan.pop(row):
            self._room[node] += gpus

    def _spread(self, row: int) -> None:
        """Whole empty nodes from the last one down; the rest where it fits best."""
        ask = self._asks[row]
        size = self._ground.size[ask.kind]
        whole, rest = divmod(ask.gpus, size)
        nodes = self._ground.nodes[ask.kind]
        empty = [node for node in reversed(nodes) if self._room[node] >= size][:whole]
        if len(empty) < whole:
            empty += self._emptied(ask.kind, whole - len(empty), set(empty))
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

    def _emptied(self, kind: int, count: int, but: set[int]) -> list[int]:
        """Clear the nodes on which the least is held by jobs of one node."""
        size = self._ground.size[kind]
        cost: list[tuple[int, int]] = []
        for node in self._ground.nodes[kind]:
            movers = self._movers(node, size)
            freed = self._room[node] + sum(self._asks[row].gpus for row in movers)
            if node not in but and self._room[node] < size and freed >= size:
                cost.append((sum(self._asks[row].gpus for row in movers), node))
        chosen = [node for _, node in sorted(cost)[:count]]
        if len(chosen) < count:
            return []
        for node in chosen:
            for row in self._movers(node, size):
                self._evict(row)
        return chosen

    def _movers(self, node: int, below: int) -> list[int]:
        """Jobs on this node alone with fewer GPUs than that (or a whole node), smallest first."""
        found = [
            row
            for row, counts in self.plan.items()
            if len(counts) == 1 and counts[0][0] == node and self._asks[row].gpus < below
        ]
        return sorted(found, key=lambda row: (self._asks[row].gpus, row))

    def _evict(self, row: int) -> None:
        self._take_back(row)
        self._single.append(row)

    def _fit(self, row: int) -> None:
        """The node with the least room that suffices, or the one where the fewest must move."""
        ask = self._asks[row]
        nodes = self._ground.nodes[ask.kind]
        fitting = [node for node in nodes if self._room[node] >= ask.gpus]
        if fitting:
            self._give(row, [(min(fitting, key=lambda n: (self._room[n], n)), ask.gpus)])
            return
        best: tuple[int, int] | None = None
        for node in nodes:
            room = self._room[node]
            for count, mover in enumerate(self._movers(node, ask.gpus), 1):
                room += self._asks[mover].gpus
                if room >= ask.gpus:
                    best = min(best or (count, node), (count, node))
                    break
        if best is None:
            self._anywhere(row)
            return
        for mover in self._movers(best[1], ask.gpus)[: best[0]]:
            self._evict(mover)
        self._give(row, [(best[1], ask.gpus)])

    def _anywhere(self, row: int) -> None:
        """Only jobs of odd sizes come to this: over as few nodes as possible, if at all."""
        ask, counts = self._asks[row], list[tuple[int, int]]()
        if ask.gpus <= self._ground.size[ask.kind] and ask.gpus & (ask.gpus - 1) == 0:
            return  # a part of a node never spans nodes
        left = ask.gpus
        for node in sorted(self._ground.nodes[ask.kind], key=lambda n: (-self._room[n], n)):
            part = min(self._room[node], left)
            if part:
                counts.append((node, part))
                left -= part
        if not left:
            self._give(row, counts)
