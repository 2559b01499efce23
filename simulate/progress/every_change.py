"""A published clock: all running units restart whenever anything happens in the cluster.

From one change to the next a unit works for the time between them, less the restart overheads of
all units on its GPUs. The end of a unit is foreseen without them, and it ends then if nothing
happens before. Source: the artifact of Muri (SIGCOMM 2022).
"""

from __future__ import annotations

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.cluster.occupancy import Placement
from simulate.progress.lazy import LazyProgress
from simulate.progress.strategy import Complete, Setting


class EveryChange(LazyProgress):
    """Units at constant speeds, which lose their overhead again at every change."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        count = len(setting.table)
        self._own = np.zeros(count)  # restart overhead in seconds
        self._from = np.zeros(count)  # when the present stretch of each unit began
        self._begun: set[int] = set()  # in the present decision

    @property
    def is_plain(self) -> bool:
        """No: each unit is looked at."""
        return False

    def begin(self, row: int, placement: Placement, grant: Grant | None, ready: float) -> float:
        """A unit starts; returns its work per second."""
        self._begun.add(row)
        return super().begin(row, placement, grant, ready)

    def expect_end(self, row: int, now: float) -> None:
        """Enter in the agenda when a running unit will end if nothing happens before."""
        if row in self._begun:
            self._own[row] = self.setting.table.progress_from.item(row) - now
        self._stretch(row, now)
        super().expect_end(row, now)

    def end_of(self, row: int) -> float:
        """When a unit will be done, as if it lost no more time."""
        table = self.setting.table
        left = self.setting.true_work.item(row) - table.executed.item(row)
        return self._from.item(row) + max(left, 0.0) / table.rate.item(row)

    def change_speed(self, row: int, now: float) -> None:
        """Others share a running unit's GPUs from now on: it has another speed and overhead."""
        table = self.setting.table
        if table.rate[row] > 0 and self.end_of(row) <= now:
            return  # it ends now, as was foreseen
        self.enter_work(row, now)
        table.rate[row] = self.setting.rate(row, self.setting.occupancy.held[row])
        self.forget_end(row)
        if table.rate[row] > 0:
            self.expect_end(row, now)

    def meet(self, now: float) -> None:
        """All units of a decision have started: each now knows what its partners lose."""
        for row in self._begun & self.setting.occupancy.held.keys():
            self._stretch(row, now)
        self._begun.clear()

    def worked_until(self, row: int, now: float, begins: float) -> float:
        """Seconds at work in the present stretch, all of it where the unit ends."""
        if self.setting.table.rate[row] > 0 and now >= self.end_of(row):
            return now - self._from.item(row)
        return max(now - begins, 0.0)

    def complete_until(self, now: float, complete: Complete) -> list[int]:
        """Complete every unit that ends by now; for all others a stretch ends and one begins."""
        done = super().complete_until(now, complete)
        rate = self.setting.table.rate
        for row in list(self.setting.occupancy.held):
            self.enter_work(row, now)
            self.forget_end(row)
            if rate[row] > 0:
                self.expect_end(row, now)
        return done

    def _stretch(self, row: int, now: float) -> None:
        """A stretch begins, with the overheads of a unit and of its partners."""
        together = [row, *self.setting.occupancy.beside.get(row, ())]
        self._from[row] = now
        self.setting.table.progress_from[row] = now + float(self._own[together].sum())
