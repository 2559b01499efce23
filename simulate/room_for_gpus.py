"""Which units may come, by limits on the GPUs of classes and users, and which wait for room."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from dlsched.core.parts import part_of
from dlsched.core.sharing.gpu_limits import Holder
from dlsched.core.units import UnitTable

Alike = tuple[tuple[Holder, ...], float]  # rows with the same holders that need as many GPUs


class RoomForGpus:
    """Counts the units that are there against their limits.

    Units under a limit get no more GPUs than they ask for, or have. Those that wait are kept by
    what they need, so an end costs a look at kinds of units and not at all units.
    """

    def __init__(self, table: UnitTable, there: Iterable[int]) -> None:
        """Begin with units that are there."""
        self._table, self._limits = table, table.gpu_limits
        self._used = self._limits.in_use()
        self._counted: dict[int, Alike] = {}
        self._waiting: dict[Alike, list[int]] = {}  # heaps: in the order of submission
        self._of_holder: dict[Holder, dict[Alike, None]] = {}  # which wait for it
        rows = np.fromiter(self._limits.holders, np.int64)
        most = np.maximum(table.gang[rows], table.gpus_now[rows])
        table.max_gpus[rows] = np.minimum(table.max_gpus[rows], most)
        for row in there:
            if row in self._limits.holders:
                self._count(row, self._needs(row))

    def _needs(self, row: int) -> Alike:
        table = self._table
        gpus = max(table.gang.item(row), table.gpus_now.item(row))
        return self._limits.holders[row], gpus * part_of(table.gpu_share.item(row))

    def _count(self, row: int, alike: Alike) -> None:
        self._counted[row] = alike
        self._used.add(*alike)

    @property
    def waiting(self) -> list[int]:
        """The units that wait for room, in the order of submission."""
        return sorted(row for rows in self._waiting.values() for row in rows)

    def comes(self, row: int) -> bool:
        """May a unit come? Then it counts; else it waits, and `left` names it when it may."""
        if row in self._counted or row not in self._limits.holders:
            return True
        alike = self._needs(row)
        if self._used.full(*alike) is None:
            self._count(row, alike)
            return True
        heapq.heappush(self._waiting.setdefault(alike, []), row)
        for holder in alike[0]:
            self._of_holder.setdefault(holder, {})[alike] = None
        return False

    def left(self, row: int) -> list[int]:
        """A unit has ended or was refused; returns those that may come now, and that count."""
        if row not in self._counted:
            return []
        holders, gpus = self._counted.pop(row)
        self._used.add(holders, -gpus)
        kinds = {alike: None for holder in holders for alike in self._of_holder.get(holder, ())}
        first = [(self._waiting[alike][0], alike) for alike in kinds]
        heapq.heapify(first)
        found: list[int] = []
        while first:
            other, alike = heapq.heappop(first)
            if self._used.full(*alike) is not None:
                continue  # nor has it room for the next of them
            self._count(heapq.heappop(self._waiting[alike]), alike)
            found.append(other)
            if self._waiting[alike]:
                heapq.heappush(first, (self._waiting[alike][0], alike))
            else:
                del self._waiting[alike]
                for holder in alike[0]:
                    del self._of_holder[holder][alike]
        return found
