"""Units that work at a constant speed until something changes: nothing is done in between."""

from __future__ import annotations

import heapq
import math

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.occupancy import Placement
from simulate.progress.strategy import Complete, Progress, Setting

ROUNDED = 1 - 1e-12  # a whole number of seconds but for rounding
STALE_ENDS = 256  # outdated entries of the agenda that are kept before it is cleaned


class LazyProgress(Progress):
    """An agenda of ends; an entry is outdated when its unit has stopped or changed its speed."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._ends: list[tuple[float, int, int]] = []  # (seen at, row, which speed)
        self._exact_end: dict[int, float] = {}
        self._grants: dict[int, Grant] = {}  # of units whose ends are planned
        self._speeds = [0] * len(setting.table)  # grows with every stop and change of speed

    def begin(self, row: int, placement: Placement, grant: Grant | None, ready: float) -> float:
        """A unit starts, perhaps to stop working at a time; returns its work per second."""
        if grant is not None and self.setting.semantics.release == "planned":
            self._grants[row] = grant
        return super().begin(row, placement, grant, ready)

    def end_of(self, row: int) -> float:
        """When a unit will be done, as far as its row says."""
        table = self.setting.table
        left = self.setting.true_work.item(row) - table.executed.item(row)
        return table.progress_from.item(row) + max(left, 0.0) / table.rate.item(row)

    def ends_of(self, rows: Rows) -> Floats:
        """As `end_of`, of many units."""
        table = self.setting.table
        left = np.maximum(self.setting.true_work[rows] - table.executed[rows], 0.0)
        ends: Floats = table.progress_from[rows] + left / table.rate[rows]
        return ends

    def expect_end(self, row: int, now: float) -> None:
        """Enter in the agenda when a running unit will be seen to end."""
        end = seen = self.end_of(row)
        semantics = self.setting.semantics
        if semantics.release == "tick":
            seen = semantics.tick_at_or_after(end)
            seen = seen if seen > now else semantics.tick_after(now)
        elif row in self._grants:
            planned = self._grants[row].ends_at
            seen = planned if planned < math.inf else end
        if seen != end:
            self._exact_end[row] = end
        self.enter_end(row, seen)
        self._drop_stale_ends()

    def expect_ends(self, rows: Rows, now: float) -> None:
        """Enter in the agenda when units that have just begun will be seen to end."""
        semantics = self.setting.semantics
        if semantics.release != "tick" or not len(rows):
            super().expect_ends(rows, now)
            return
        ends = self.ends_of(rows)
        seen = semantics.ticks_at_or_after(ends)
        for place in np.flatnonzero(seen <= now).tolist():
            seen[place] = semantics.tick_after(now)
        listed = rows.tolist()
        later = seen != ends
        self._exact_end.update(zip(rows[later].tolist(), ends[later].tolist(), strict=True))
        speeds = [self._speeds[row] for row in listed]
        self._ends += zip(seen.tolist(), listed, speeds, strict=True)
        heapq.heapify(self._ends)
        self._drop_stale_ends()

    def _drop_stale_ends(self) -> None:
        if len(self._ends) > 2 * len(self.setting.occupancy.held) + STALE_ENDS:
            speeds = self._speeds
            self._ends = [end for end in self._ends if speeds[end[1]] == end[2]]
            heapq.heapify(self._ends)

    def enter_end(self, row: int, seen: float) -> None:
        """Enter in the agenda that a unit is seen to end then, at its present speed."""
        heapq.heappush(self._ends, (seen, row, self._speeds[row]))

    def forget_end(self, row: int) -> None:
        """An agenda entry of the row is outdated from now on."""
        self._speeds[row] += 1
        if self._exact_end:
            self._exact_end.pop(row, None)
        if self._grants:
            self._grants.pop(row, None)

    def worked_until(self, row: int, now: float, begins: float) -> float:
        """Seconds at work; GPUs may be kept for a while after the work is done."""
        worked = min(now, self._pause_of(row)) - begins
        if not self.setting.semantics.owes_restarts:
            worked = max(worked, 0.0)
        if self.setting.semantics.release == "exact":
            return worked
        table = self.setting.table
        rate = table.rate.item(row)
        if rate <= 0:
            return worked
        left = max(self.setting.true_work.item(row) - table.executed.item(row), 0.0)
        return min(worked, left / rate)

    def _pause_of(self, row: int) -> float:
        """When a unit stops working before it ends; inf: it does not."""
        grant = self._grants.get(row)
        return math.inf if grant is None else grant.pauses_at

    def next_end(self) -> float:
        """When the next unit is seen to end; inf when none will."""
        return self.next_of_agenda()

    def next_of_agenda(self) -> float:
        """When the next unit is seen to end; inf when none will."""
        ends, speeds = self._ends, self._speeds
        while ends:
            seen, row, speed = ends[0]
            if speeds[row] == speed:
                return seen
            heapq.heappop(ends)
        return math.inf

    def pop_end(self) -> int:
        """Take the unit that `next_end` speaks of off the agenda."""
        return heapq.heappop(self._ends)[1]

    def complete_until(self, now: float, complete: Complete) -> list[int]:
        """Complete every unit that is seen to end by now, in order; returns their rows."""
        done: list[int] = []
        while self.next_of_agenda() <= now:
            seen, row, _ = heapq.heappop(self._ends)
            finish = self.finish_of(row, seen, self._exact_end.pop(row, seen))
            if finish is not None:
                complete(row, seen, finish if self.setting.semantics.finish == "exact" else seen)
                done.append(row)
        if self.setting.semantics.release == "planned":
            ends = ((end, row) for row, end in self._exact_end.items())
            ready = [(end, row) for end, row in ends if end <= min(now, self._pause_of(row))]
            for end, row in sorted(ready):
                grant = self._grants.get(row)
                free = end - (grant.restart_s or 0.0 if grant else 0.0)
                complete(row, end, math.ceil(free * ROUNDED))
                done.append(row)
            for row, grant in self._grants.items():
                if grant.pauses_at < now:  # what has passed since is no work
                    self.enter_work(row, grant.pauses_at)
                    self.setting.table.progress_from[row] = now
        return done

    def finish_of(self, row: int, seen: float, expected: float) -> float | None:
        """When a unit that is seen to end has finished its work; None where it goes on.

        Args:
            row: the unit.
            seen: now.
            expected: when it was expected to.
        """
        return expected


class EndedByPolicy(LazyProgress):
    """Units go on until the policy, which counts what they have done, completes them.

    Some published simulators work so.
    """

    @property
    def is_plain(self) -> bool:
        """No: none of them is ever done by itself."""
        return False

    def expect_end(self, row: int, now: float) -> None:
        """Nothing is expected."""
