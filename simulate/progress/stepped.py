"""Units whose remaining work is lessened step by step, as a simulator with a loop over time does.

Once in a step, from the first after its start, a unit whose work is not done yet has what is left
lessened by its speed; a step after nothing is left its end is noticed. The steps are not walked:
their number is computed, with the sums of floats in the order in which the loop would add them.

Source: the simulator of Lucid (ASPLOS 2023), with steps of a second.
"""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.service_clock import Segment
from dlsched.core.units import RUNNING
from simulate.progress.lazy import LazyProgress
from simulate.progress.strategy import Setting


def lessened(left: float, each: float, steps: int) -> float:
    """What is left after so many subtractions, one after the other."""
    if each == 1.0 or steps <= 0:
        return left - max(steps, 0)  # exact in floats
    return float(_after_each(left, each, steps)[-1])


def steps_until_done(left: float, each: float) -> int:
    """The number of subtractions after which nothing is left."""
    if left <= 0:
        return 0
    if each == 1.0:
        return math.ceil(left)
    path = _after_each(left, each, math.ceil(left / each) + 2)
    return int(np.flatnonzero(path <= 0)[0])


def _after_each(left: float, each: float, steps: int) -> Floats:
    path = np.full(steps + 1, -each)
    path[0] = left
    return np.cumsum(path)


class SteppedProgress(LazyProgress):
    """The agenda of `LazyProgress`, with ends at whole steps."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._step = setting.semantics.step or 1.0
        self._left: Floats = setting.true_work - setting.table.executed
        self._joined: set[int] = set()  # rows that began beside one that was running

    @property
    def is_plain(self) -> bool:
        """Ends are counted for each unit by itself."""
        return False

    def begin(self, row: int, placement: Placement, grant: Grant | None, ready: float) -> float:
        """A unit starts, perhaps beside another; returns its work per second."""
        status = self.setting.table.status
        if any(status[each] == RUNNING for each in self.setting.occupancy.beside.get(row, ())):
            self._joined.add(row)
        return super().begin(row, placement, grant, ready)

    def end_of(self, row: int) -> float:
        """The step after the one in which nothing is left."""
        table = self.setting.table
        steps = steps_until_done(self._left.item(row), table.rate.item(row) * self._step)
        return table.progress_from.item(row) + (steps + 1) * self._step

    def change_speed(self, row: int, now: float) -> None:
        """A unit has come beside a running one, or has left it."""
        setting = self.setting
        is_alone = not setting.occupancy.beside.get(row)
        stays = setting.semantics.partners_left == "first-restored" and row in self._joined
        if not (is_alone and stays):
            super().change_speed(row, now)

    def enter_work(self, row: int, now: float) -> None:
        """Enter in the row of a running unit what it has done by now."""
        self._lessen(row, now, self.setting.table.progress_from.item(row))
        super().enter_work(row, now)

    def worked_until(self, row: int, now: float, begins: float) -> float:
        """Seconds at work, without the step in which its end is noticed."""
        left, rate = self._left.item(row), self.setting.table.rate.item(row)
        self._lessen(row, now, begins)
        worked = super().worked_until(row, now, begins)
        return min(worked, max(left, 0.0) / rate) if rate > 0 else worked

    def _lessen(self, row: int, now: float, begins: float) -> None:
        steps = max(math.floor((now - begins) / self._step), 0)
        each = self.setting.table.rate.item(row) * self._step
        self._left[row] = lessened(self._left.item(row), each, steps)

    def fall_back(self, row: int, saved: float) -> None:
        """What a unit has lost is left to do again."""
        self._left[row] += max(self.setting.table.executed.item(row) - saved, 0.0)

    def stop(self, row: int, now: float) -> Segment:
        """A unit leaves its GPUs; returns what it did on them."""
        segment = super().stop(row, now)
        self._joined.discard(row)
        return segment
