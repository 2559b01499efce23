"""What is free in one chain: lists of free cells by level, split and merged like buddies.

Lists are ordered: a cell is appended at the end, and the last one moves into the hole of one that
is removed. The order decides which of several equal cells is taken.

Invariant (safety): `left[l] >= all_vc_free[l]` on every level, so that any virtual cluster can have
every cell that it owns.

Bad cells: while enough healthy cells are left, dynamic binding hides a failure. When a virtual
cluster has more free cells than healthy ones are left, one of its cells is *doomed*: bound to a bad
free cell, so that gangs avoid it and users see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlsched.core.cluster.cells import Chain
from dlsched.policies.placement.hived.cells import GUARANTEED, Physical, Virtual


class Ledger:
    """Free cells of one chain. Lists by level have a place 0 that is not used.

    Attributes:
        chain: the hierarchy.
        free: free physical cells by level.
        left: by level, cells that are free or that splitting a free one would yield.
        vc_free: per virtual cluster, by level, its granted cells that are not in use.
        all_vc_free: the sum of them, by level.
        bad_free: bad cells among those that are free or part of a free one, by level.
        doomed: per virtual cluster, by level, bad cells that stand for cells of its own.
    """

    def __init__(
        self,
        chain: Chain,
        tops: Sequence[Physical],
        granted: dict[str, list[int]],
        roots: dict[str, dict[int, list[Virtual]]],
    ) -> None:
        """Begin with nothing in use.

        Args:
            chain: the hierarchy.
            tops: its top-level cells.
            granted: per virtual cluster how many cells of each level it owns, pinned ones too.
            roots: per virtual cluster, by level, its granted cells that are not pinned.
        """
        levels = range(chain.top + 1)
        self.chain = chain
        self.free: list[list[Physical]] = [[] for _ in levels]
        self.free[chain.top] = list(tops)
        self.left = [0] * (chain.top + 1)
        self.left[chain.top] = len(tops)
        for level in range(chain.top, 1, -1):
            self.left[level - 1] = self.left[level] * chain.children(level)
        self.vc_free = {vc: list(counts) for vc, counts in granted.items()}
        self.all_vc_free = [sum(counts[level] for counts in granted.values()) for level in levels]
        self.bad_free: list[list[Physical]] = [[] for _ in levels]
        self.doomed: dict[str, list[list[Physical]]] = {vc: [[] for _ in levels] for vc in granted}
        self._roots = roots

    def is_safe(self) -> bool:
        """Can every virtual cluster have all cells that it owns?"""
        pairs = zip(self.left, self.all_vc_free, strict=True)
        return all(left >= wanted for left, wanted in pairs)

    def recount(self, roots: Iterable[Virtual]) -> None:
        """Count anew from the lists of free cells and what granted cells are bound to."""
        for vc, counts in self.vc_free.items():
            self.vc_free[vc] = [0] * len(counts)
        self.left = [len(cells) for cells in self.free]
        for level in range(self.chain.top, 1, -1):
            self.left[level - 1] += self.left[level] * self.chain.children(level)
        for root in roots:
            if root.chain is self.chain and root.bound is None:
                self.vc_free[root.vc][root.level] += 1
        pairs = zip(*self.vc_free.values(), strict=True)
        self.all_vc_free = [sum(counts) for counts in pairs] or [0] * len(self.left)

    # -- granted cells in and out of use -----------------------------------------------------------

    def allocate(self, cell: Physical, vc: str) -> bool:
        """A free cell stands for a granted one from now on; returns whether safety holds."""
        level, safe = cell.level, True
        self._count(vc, level, -1)
        self.left[level] -= 1
        highest = self._take(cell)
        above = cell.parent
        for upper in range(level + 1, highest + 1):
            assert above is not None
            self.left[upper] -= 1
            safe &= self.left[upper] >= self.all_vc_free[upper]
            if above.healthy:
                self._doom(upper)
            else:
                remove(self.bad_free[upper], above)
            above = above.parent
        if cell.healthy:
            self._doom(level)
        else:
            self._bind_bad(cell)
        parts = self.chain.children(level)
        for lower in range(level - 1, 0, -1):
            self.left[lower] -= parts
            safe &= self.left[lower] >= self.all_vc_free[lower]
            self._doom(lower)
            parts *= self.chain.children(lower)
        return safe

    def release(self, cell: Physical, vc: str) -> None:
        """A cell is free again, and merged with its siblings where all of them are."""
        level = cell.level
        self._count(vc, level, +1)
        self.left[level] += 1
        highest = self._give(cell)
        above = cell.parent
        for upper in range(level + 1, highest + 1):
            assert above is not None
            self.left[upper] += 1
            if above.healthy:
                self._undoom(upper)
            else:
                self.bad_free[upper].append(above)
            above = above.parent
        if cell.healthy:
            self._undoom(level)
        else:
            self._unbind_bad(cell)
        parts = self.chain.children(level)
        for lower in range(level - 1, 0, -1):
            self.left[lower] += parts
            self._undoom(lower)
            parts *= self.chain.children(lower)

    def _count(self, vc: str, level: int, change: int) -> None:
        self.vc_free[vc][level] += change
        self.all_vc_free[level] += change

    def _take(self, cell: Physical) -> int:
        """Remove a cell from the free ones, splitting what it is part of; the highest level."""
        while True:
            above = cell.parent
            split = above is not None and not above.split
            if above is not None and split:
                self.free[cell.level] += above.children
                above.split = True
            remove(self.free[cell.level], cell)
            if above is None or not split:
                return cell.level
            cell = above

    def _give(self, cell: Physical) -> int:
        """Add a cell to the free ones, merging it with free siblings; the highest level."""
        while True:
            above, free = cell.parent, self.free[cell.level]
            siblings = [] if above is None else [s for s in above.children if s is not cell]
            if above is None or not all(sibling in free for sibling in siblings):
                free.append(cell)
                return cell.level
            for sibling in siblings:
                remove(free, sibling)
            above.split = False
            cell = above

    # -- bad cells ---------------------------------------------------------------------------------

    def set_bad(self, cell: Physical) -> None:
        """A GPU is bad from now on, and with it every cell that has it."""
        at: Physical | None = cell
        path = []
        while at is not None and at.healthy:
            at.healthy = False
            path.append(at)
            at = at.parent
        for each in reversed(path):  # larger cells first
            if is_free(each):
                self.bad_free[each.level].append(each)
                if self.all_vc_free[each.level] > self._healthy_left(each.level):
                    self._doom(each.level)
            elif each.bound is None and not each.split:
                self._bind_to_sibling(each)

    def set_healthy(self, cell: Physical) -> None:
        """A GPU is healthy again, and with it the cells that have no other bad one."""
        at: Physical | None = cell
        while at is not None and not at.healthy:
            at.healthy = True
            bound = at.bound
            if is_free(at):
                remove(self.bad_free[at.level], at)
                self._undoom(at.level)
            elif bound is not None and not at.pin and at.priority < GUARANTEED:
                # no gang uses it: it was bound only because it was bad
                _unbind(at)
                if bound.parent is None:
                    remove(self.doomed[bound.vc][at.level], at)
                    self.release(at, bound.vc)
            elif bound is not None and self.is_doomed(at, bound.vc):
                remove(self.doomed[bound.vc][at.level], at)  # a gang uses it, and it is whole now
            at = at.parent
            if at is not None and not all(child.healthy for child in at.children):
                return

    def is_doomed(self, cell: Physical, vc: str) -> bool:
        """Does a bad cell stand for one of a virtual cluster because no healthy one is left?"""
        return vc in self.doomed and cell in self.doomed[vc][cell.level]

    def _healthy_left(self, level: int) -> int:
        return self.left[level] - len(self.bad_free[level])

    def _doom(self, level: int) -> None:
        for vc, free in self.vc_free.items():
            while free[level] > self._healthy_left(level):
                virtual = _unbound(self._roots[vc].get(level, ()))
                if virtual is None or not self.bad_free[level]:
                    break  # it owns more than there is, under another configuration
                cell = self.bad_free[level][0]
                cell.bound, virtual.bound = virtual, cell
                self.doomed[vc][level].append(cell)
                self.allocate(cell, vc)

    def _undoom(self, level: int) -> None:
        for vc, free in self.vc_free.items():
            doomed = self.doomed[vc][level]
            while free[level] < self._healthy_left(level):
                # a gang may use the healthy part of one
                cell = next((cell for cell in doomed if cell.priority < GUARANTEED), None)
                if cell is None:
                    break
                _unbind(cell)
                remove(doomed, cell)
                self.release(cell, vc)

    def _bind_bad(self, cell: Physical) -> None:
        """A bad free cell is in use: its bad parts are bound too, so that they are seen."""
        if cell in self.bad_free[cell.level]:
            remove(self.bad_free[cell.level], cell)
        if cell.bound is None:
            self._bind_to_sibling(cell)
        for child in cell.children:
            if not child.healthy:
                self._bind_bad(child)

    @staticmethod
    def _bind_to_sibling(cell: Physical) -> None:
        """Bind a part of a bound cell to a part of what that is bound to."""
        above = cell.parent
        assert above is not None
        assert above.bound is not None
        virtual = _unbound(above.bound.children)
        assert virtual is not None
        cell.bound, virtual.bound = virtual, cell

    def _unbind_bad(self, cell: Physical) -> None:
        self.bad_free[cell.level].append(cell)
        _unbind(cell)
        for child in cell.children:
            if not child.healthy:
                self._unbind_bad(child)


def remove(cells: list[Physical], cell: Physical) -> None:
    """Remove a cell from a list; the last one moves into its place."""
    last = cells.pop()
    if last is not cell:
        cells[cells.index(cell)] = last


def is_free(cell: Physical) -> bool:
    """Is a cell free, or part of a free one?"""
    while True:
        if cell.bound is not None or cell.split:
            return False
        if cell.parent is None or cell.parent.split:
            return True
        cell = cell.parent


def _unbind(cell: Physical) -> None:
    """What a cell stands for is unbound, if it stands for any."""
    if cell.bound is not None:
        cell.bound.bound = None
        cell.bound = None


def _unbound(cells: Iterable[Virtual]) -> Virtual | None:
    return next((cell for cell in cells if cell.bound is None), None)
