"""Topology-aware placement of a gang's pods in a view of a cluster.

The view is a list of machines; a granted cell smaller than a machine counts as one of its own.
Pods go to machines in one scan that never goes back; inside a machine the GPUs with the lowest
common ancestor are taken. The order of the list persists from one search to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from dlsched.policies.placement.hived.cells import FREE, OPPORTUNISTIC, Cell, Physical, Virtual
from dlsched.policies.placement.hived.gangs import Request, Waits

C = TypeVar("C", Physical, Virtual)
MANY = 1 << 30  # GPUs, more than a machine has


def machines_of(cell: C) -> list[C]:
    """The machines inside a cell; a cell smaller than one stands for itself."""
    if cell.level <= cell.chain.node_level:
        return [cell]
    return [machine for child in cell.children for machine in machines_of(child)]


def physical_of(cell: Physical | Virtual) -> Physical | None:
    """The physical cell that stands for a cell; None for an unbound virtual one."""
    return cell if isinstance(cell, Physical) else cell.bound


class View(Generic[C]):
    """The machines of a virtual cluster, or of a whole chain.

    Attributes:
        machines: cells, in the order of the last search.
        largest: GPUs of the largest.
    """

    def __init__(self, cells: Iterable[C], *, packs_across: bool) -> None:
        """Begin in the order of the configuration.

        Args:
            cells: the topmost ones.
            packs_across: pack gangs of all priorities together; else a gang keeps away from those
                of higher priority.
        """
        found = [machine for cell in cells for machine in machines_of(cell)]
        # larger cells come first, each level in its own order
        self.machines: list[C] = sorted(found, key=lambda cell: -cell.level)
        self._packs_across = packs_across
        self.largest = max((cell.gpus for cell in self.machines), default=0)

    def place(self, request: Request, priority: int) -> list[list[C]] | Waits:
        """GPUs for a gang's pods; first without preemption, then at the priority."""
        if not self.machines:
            return Waits(reason="no cells")
        sizes = request.sizes(self.largest)
        if (
            request.whole
            and self.largest < self.machines[0].chain.gpus[self.machines[0].chain.node_level - 1]
        ):
            return Waits(reason="no whole machines")
        found = self._search(request, sizes, OPPORTUNISTIC)
        least = OPPORTUNISTIC
        if isinstance(found, Waits) and priority > OPPORTUNISTIC:
            found, least = self._search(request, sizes, priority), priority
        if isinstance(found, Waits):
            return found
        left: dict[int, list[C]] = {}
        pods = []
        for size, machine in zip(sizes, found, strict=True):
            if id(machine) not in left:
                left[id(machine)] = _candidates(machine, least)
            chosen = nearest(left[id(machine)], size)
            left[id(machine)] = [gpu for gpu in left[id(machine)] if gpu not in chosen]
            pods.append(chosen)
        return pods

    def _search(self, request: Request, sizes: Sequence[int], priority: int) -> list[C] | Waits:
        """A machine for each pod, at a priority below which GPUs in use count as free."""
        allowed = request.allowed
        if self._packs_across and allowed is None:
            self.machines.sort(key=_packed)
        else:
            self.machines.sort(key=lambda cell: self._rank(cell, priority, allowed))
        found: list[C] = []
        taken = 0
        for machine in self.machines:
            free = machine.gpus - machine.in_use
            if priority > OPPORTUNISTIC:  # GPUs that are used at less count as free
                free += sum(count for at, count in machine.used.items() if at < priority)
            while free - taken >= sizes[len(found)]:
                fault = _fault(machine, allowed)
                if fault:
                    return Waits(reason=fault)
                taken += sizes[len(found)]
                found.append(machine)
                if len(found) == len(sizes):
                    return found
                if request.apart:
                    break
            taken = 0
        return Waits(reason="insufficient capacity")

    def _rank(
        self, cell: C, priority: int, allowed: frozenset[str] | None
    ) -> tuple[bool, bool, int, int]:
        physical = physical_of(cell)
        bad = physical is not None and not physical.healthy
        barred = physical is not None and allowed is not None and physical.node not in allowed
        if self._packs_across:
            return bad, barred, -cell.in_use, 0
        higher = sum(count for at, count in cell.used.items() if at > priority)
        return bad, barred, -cell.used_at(priority), higher


def _packed(cell: Physical | Virtual) -> int:
    """The rank of a machine where only its use counts: bad ones last, then the fullest first."""
    physical = physical_of(cell)
    bad = physical is not None and not physical.healthy
    return (MANY if bad else 0) - cell.in_use


def _fault(machine: Physical | Virtual, allowed: frozenset[str] | None) -> str:
    """Why a machine must not be used; empty where it may be."""
    physical = physical_of(machine)
    if physical is None:
        return ""
    if not physical.healthy:
        return f"would need node {physical.node}, which is bad"
    if allowed is not None and physical.node not in allowed:
        return f"would need node {physical.node}, which it may not use"
    return ""


def _candidates(machine: C, priority: int) -> list[C]:
    """GPUs of a machine: free ones, then those used below a priority."""
    leaves = list(machine.leaves())
    free = [gpu for gpu in leaves if gpu.priority == FREE]
    return free + [gpu for gpu in leaves if FREE < gpu.priority < priority]


def common_ancestor(one: Cell[C], other: Cell[C]) -> Cell[C] | None:
    """The lowest cell that holds both; None where there is none."""
    low, high = (one, other) if one.level <= other.level else (other, one)
    at: Cell[C] | None = low
    while at is not None and at.level < high.level:
        at = at.parent
    above: Cell[C] | None = high
    while at is not above:
        if at is None or above is None:
            return None
        at, above = at.parent, above.parent
    return at


def nearest(candidates: Sequence[C], size: int) -> list[C]:
    """The first `size` GPUs, in order, whose lowest common ancestor is lowest."""
    chain = candidates[0].chain
    optimum = next(level for level, gpus in enumerate(chain.gpus, 1) if gpus >= size)
    best: list[C] = []
    best_level = chain.top + 1
    chosen: list[int] = []
    above: list[Cell[C] | None] = []
    k = 0
    while True:
        while k < len(candidates):
            gpu = candidates[k]
            ancestor = common_ancestor(gpu, above[-1]) if chosen and above[-1] else gpu
            level = chain.top + 1 if ancestor is None else ancestor.level
            if chosen and level > best_level:
                k += 1
                continue
            if len(chosen) == size - 1:
                if level < best_level:
                    best, best_level = [candidates[j] for j in (*chosen, k)], level
                    if level == optimum:
                        return best
                k += 1
                continue
            chosen.append(k)
            above.append(ancestor)
            k += 1
        if not chosen:
            return best
        k = chosen.pop() + 1
        above.pop()
