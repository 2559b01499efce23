"""Units on the very same GPUs: speeds follow partners, and every GPU is counted as it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.parts import parts_of
from dlsched.core.speed.interference import SharedSpeed
from dlsched.core.units import RUNNING
from simulate.progress.strategy import Progress


class Stretch(NamedTuple):
    """A time in which a group of units had the same GPUs.

    Attributes:
        rows: the units, ascending.
        gpus: how many GPUs each had.
        start, end: seconds.
        speeds: of each unit, relative to alone; NaN where not known.
        memory: GiB that they need together on each GPU, over what it has; NaN where not known.
    """

    rows: tuple[int, ...]
    gpus: int
    start: float
    end: float
    speeds: tuple[float, ...]
    memory: float


class SharedGpus:
    """The units that share GPUs or need only parts of them, as of the last look.

    Attributes:
        counted_twice: GPU-seconds by which the parts of the units on a GPU were more than all of
            it, as happens where units do not say what part they need.
        unneeded: GPU-seconds of GPUs that units had, and of which none needed that part.
        stretches: the times in which units had partners, in order of their ends.
    """

    def __init__(self, progress: Progress) -> None:
        self.counted_twice = 0.0
        self.unneeded = 0.0
        self.stretches: list[Stretch] = []
        self._progress = progress
        self._setting = progress.setting
        self._partners: dict[int, tuple[int, ...]] = {}
        self._groups: dict[Placement, tuple[tuple[int, ...], float]] = {}  # units, and since when
        self._where: dict[int, Placement] = {}  # of the units of groups
        # since when, and how many GPUs units use that others hold or use too
        self._used_again = (0.0, 0)
        # by opportunistic units with those beside them: where one is, since when, where each is
        self._opportunistic: dict[
            tuple[int, ...], tuple[Placement, float, dict[int, Placement]]
        ] = {}

    @property
    def are_there(self) -> bool:
        """Does any unit share GPUs, or did one when it was last looked?"""
        occupancy = self._setting.occupancy
        return bool(self._partners or occupancy.beside or occupancy.opportunistic)

    def begins(self, row: int, placement: Placement, now: float) -> None:
        """A unit has started, at the speed that it has beside its partners."""
        partners = self._setting.occupancy.beside.get(row)
        if partners and row not in self._setting.occupancy.opportunistic:
            self._partners[row] = partners
        self.goes_on(row, placement, now)

    def goes_on(self, row: int, placement: Placement, now: float) -> None:
        """A unit that has left other GPUs runs here, at the speed that it had until `look`."""
        if row in self._setting.occupancy.opportunistic:  # `look` sees it
            return
        partners = self._setting.occupancy.beside.get(row, ())
        if partners or self._setting.table.says_shares:
            self._form(placement, tuple(sorted((row, *partners))), now)

    def leaves(self, row: int, now: float) -> None:
        """A unit is about to leave its GPUs."""
        placement = self._where.pop(row, None)
        if placement is not None:
            rows = tuple(other for other in self._groups[placement][0] if other != row)
            self._form(placement, rows, now)
        self._note_opportunistic_beside(row, now)

    def settle(self, now: float) -> None:
        """Count what is there up to now."""
        for placement, (rows, _) in list(self._groups.items()):
            self._form(placement, rows, now)
        self._count_used_again(now)
        for rows in list(self._opportunistic):
            self._note_opportunistic(rows, now)

    def _count_used_again(self, now: float) -> None:
        since, gpus = self._used_again
        self.counted_twice += (now - since) * gpus
        self._used_again = (now, self._setting.occupancy.used_again)

    def _note_opportunistic(self, rows: tuple[int, ...], now: float) -> None:
        """Note how long units have been together by now."""
        placement, since, where = self._opportunistic[rows]
        if now > since:
            memory, speeds = self._memory(placement, rows), self._speeds(placement, rows, where)
            self.stretches.append(Stretch(rows, placement.gpus, since, now, speeds, memory))
        self._opportunistic[rows] = placement, now, where

    def _note_opportunistic_beside(self, row: int, now: float) -> None:
        for rows in [rows for rows in self._opportunistic if row in rows]:
            self._note_opportunistic(rows, now)

    def _look_at_opportunistic(self, beside: Mapping[int, tuple[int, ...]], now: float) -> None:
        self._count_used_again(now)
        held, opportunistic = self._setting.occupancy.held, self._setting.occupancy.opportunistic
        there = {
            tuple(sorted((row, *beside[row]))): held[row] for row in opportunistic if row in beside
        }
        for rows in [rows for rows in self._opportunistic if rows not in there]:
            self._note_opportunistic(rows, now)
            del self._opportunistic[rows]
        for rows, placement in there.items():
            if rows not in self._opportunistic:
                self._opportunistic[rows] = placement, now, {row: held[row] for row in rows}

    def look(self, now: float) -> None:
        """A unit whose partners have changed runs at another speed from now on."""
        occupancy = self._setting.occupancy
        beside = occupancy.all_partners()
        if occupancy.opportunistic or self._opportunistic or self._used_again[1]:
            self._look_at_opportunistic(beside, now)
        if not beside and not self._partners:
            return
        before, self._partners = self._partners, dict(beside)
        for row in sorted({*before, *beside}):
            partners = beside.get(row, ())
            if partners != before.get(row, ()) and self._setting.table.status[row] == RUNNING:
                self._progress.change_speed(row, now)

    def change_limit(self, row: int, now: float) -> None:
        """A unit may use its GPUs more or less from now on, at other speeds of its group."""
        placement = self._where.get(row)
        if placement is not None:
            self._form(placement, self._groups[placement][0], now)
        self._note_opportunistic_beside(row, now)

    def _form(self, placement: Placement, rows: tuple[int, ...], now: float) -> None:
        """These units have the GPUs from now on; count those that had them until now."""
        group = self._groups.pop(placement, None)
        if group is not None and now > group[1]:
            self._count(placement, *group, now)
        if rows:
            self._groups[placement] = rows, now
            self._where.update(dict.fromkeys(rows, placement))

    def _count(self, placement: Placement, rows: tuple[int, ...], start: float, end: float) -> None:
        table, gpus = self._setting.table, placement.gpus
        needed = float(parts_of(table.gpu_share[list(rows)]).sum())
        self.counted_twice += max(needed - 1.0, 0.0) * gpus * (end - start)
        self.unneeded += max(1.0 - needed, 0.0) * gpus * (end - start)
        if len(rows) > 1:
            memory = self._memory(placement, rows)
            speeds = self._speeds(placement, rows)
            self.stretches.append(Stretch(rows, gpus, start, end, speeds, memory))

    def _memory(self, placement: Placement, rows: tuple[int, ...]) -> float:
        occupancy = self._setting.occupancy
        types = [occupancy.type_of.item(node) for node in placement.nodes]
        return float(self._setting.table.gpu_memory[list(rows)].sum()) / float(
            occupancy.cluster.gpu_memory[types].min()
        )

    def _speeds(
        self,
        placement: Placement,
        rows: tuple[int, ...],
        where: Mapping[int, Placement] | None = None,
    ) -> tuple[float, ...]:
        truth, setting = self._setting.performance, self._setting
        if not isinstance(truth, SharedSpeed):
            return (np.nan,) * len(rows)
        found = truth.relative(rows, placement, setting.table, setting.occupancy, where)
        return tuple(found.tolist())
