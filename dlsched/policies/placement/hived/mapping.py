"""From virtual GPUs to GPUs: buddy allocation of granted cells, and what is inside them.

A virtual GPU that is bound keeps its GPU. Of the others the highest unbound ancestor is mapped: a
granted cell by buddy allocation on copies of the lists of free cells, any other one among the
children of what its parent is bound to. Both search with backtracking, since a cell may be bad or
may lie on a machine that the gang may not use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlsched.core.cluster.cells import Chain
from dlsched.policies.placement.hived.cells import OPPORTUNISTIC, Physical, Virtual, is_usable
from dlsched.policies.placement.hived.gangs import VirtualPods
from dlsched.policies.placement.hived.ledger import remove

Bindings = dict[Virtual, Physical]
FreeLists = list[list[Physical]]


class Need:
    """A virtual cell that must be bound, with the parts of it that must be too."""

    __slots__ = ("cell", "parts")

    def __init__(self, cell: Virtual) -> None:
        self.cell = cell
        self.parts: list[Need] = []


def needs_of(pods: VirtualPods) -> tuple[list[Need], list[list[Need]], Bindings]:
    """What must be bound for virtual GPUs.

    Returns:
        granted cells, other cells grouped by their parents, and the GPUs that are bound already.
    """
    known: dict[Virtual, Need] = {}
    granted: list[Need] = []
    inside: dict[Virtual, list[Need]] = {}
    bound: Bindings = {}
    for gpu in (gpu for pod in pods for gpu in pod):
        if gpu.bound is not None:
            bound[gpu] = gpu.bound
            continue
        path: list[Virtual] = []
        at: Virtual | None = gpu
        while at is not None and at.bound is None and at not in known:
            path.append(at)
            at = at.parent
        for cell in reversed(path):
            need = known[cell] = Need(cell)
            if cell.parent is None:
                granted.append(need)
            elif cell.parent in known:
                known[cell.parent].parts.append(need)
            else:
                inside.setdefault(cell.parent, []).append(need)
    return granted, list(inside.values()), bound


def mapped(
    pods: VirtualPods,
    chain: Chain,
    free: FreeLists,
    all_vc_free: Sequence[int],
    allowed: frozenset[str] | None,
) -> list[list[Physical]] | None:
    """The GPUs that stand for virtual GPUs; None where they would be bad or not allowed.

    Args:
        pods: the virtual GPUs of each pod.
        chain: their hierarchy.
        free: free cells by level; not changed.
        all_vc_free: by level, granted cells that are not in use.
        allowed: the machines that may be used; None for all.
    """
    granted, inside, bindings = needs_of(pods)
    search = _Search(chain, [list(cells) for cells in free], list(all_vc_free), allowed, bindings)
    if not all(search.granted(need) for need in granted):
        return None
    for needs in inside:
        above = needs[0].cell.parent
        assert above is not None
        assert above.bound is not None
        if search.among(needs, above.bound.children) is None:
            return None
    return [[bindings[gpu] for gpu in pod] for pod in pods]


class _Search:
    """One gang's mapping, on lists of its own."""

    def __init__(
        self,
        chain: Chain,
        free: FreeLists,
        wanted: list[int],
        allowed: frozenset[str] | None,
        bindings: Bindings,
    ) -> None:
        self._chain = chain
        self._free = free
        self._wanted = wanted
        self._allowed = allowed
        self._bindings = bindings

    def granted(self, need: Need) -> bool:
        """Map a granted cell to a free one, splitting larger ones."""
        level = need.cell.level
        start = next((k for k in range(level, self._chain.top + 1) if self._free[k]), None)
        if start is not None and self._buddy(need, start):
            self._wanted[level] -= 1
            return True
        return self._relaxed(need)

    def _buddy(self, need: Need, level: int) -> bool:
        """Take a cell from a level, or a part of one of its cells."""
        free = self._free
        if level == need.cell.level:
            return self._take(need)
        for cell in self._usable(free[level], 1) or ():
            free[level - 1] += cell.children
            if self._buddy(need, level - 1):
                remove(free[level], cell)
                return True
            free[level - 1] = []
        return False

    def _take(self, need: Need) -> bool:
        """Map a cell to one that is free at its own level."""
        free = self._free[need.cell.level]
        picked = self.among([need], free)
        if picked is None:
            return False
        remove(free, picked[0])
        return True

    def _relaxed(self, need: Need) -> bool:
        """Split more larger cells than it takes, as many as safety allows."""
        free, chain, level = self._free, self._chain, need.cell.level
        splittable = [0] * (chain.top + 2)
        for k in range(chain.top, 0, -1):
            splittable[k] = len(free[k]) - self._wanted[k]
            if k < chain.top:
                splittable[k] += splittable[k + 1] * chain.children(k + 1)
            if splittable[k] < 0:
                return False  # safety is broken already, by another configuration
        for k in range(level + 1, chain.top + 1):
            count = min(len(free[k]), splittable[k])
            if count <= 0:
                continue
            cells = []
            for _ in range(count):
                cells.append(free[k][0])
                remove(free[k], free[k][0])
            splittable[k] -= count
            for _ in range(k, level, -1):
                cells = [child for cell in cells for child in cell.children]
            free[level] = cells + free[level]
            if self._take(need):
                return True
        return False

    def _usable(self, cells: Iterable[Physical], count: int) -> list[Physical] | None:
        """Cells that may be bound, fewest opportunistic GPUs first; None for fewer than wanted."""
        found = [cell for cell in cells if is_usable(cell, self._allowed)]
        if len(found) < count:
            return None
        return sorted(found, key=lambda cell: cell.used_at(OPPORTUNISTIC))

    def among(self, needs: Sequence[Need], cells: Iterable[Physical]) -> list[Physical] | None:
        """Map virtual cells to some of these, each in its turn to the first that can serve it."""
        candidates = self._usable(cells, len(needs))
        if candidates is None:
            return None
        picked: list[int] = []
        k = 0
        while True:
            need = needs[len(picked)]
            while k < len(candidates) and (k in picked or not self._serves(candidates[k], need)):
                k += 1
            if k < len(candidates):
                picked.append(k)
                if len(picked) == len(needs):
                    return [candidates[j] for j in picked]
                k = 0
            elif picked:
                k = picked.pop() + 1
            else:
                return None

    def _serves(self, cell: Physical, need: Need) -> bool:
        if cell.level == 1:
            self._bindings[need.cell] = cell
            return True
        return self.among(need.parts, cell.children) is not None
