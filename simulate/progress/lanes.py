"""Units that take turns on their GPUs, iteration by iteration, in lanes of GPU memory.

Lanes and turns are those of `dlsched.policies.node.salus`. The first unit of a lane to want an
iteration runs one, the others of the lane stand still, and at the end of each iteration the order
says which goes on. Units of different lanes run at once, as fast as interference lets them.
An iteration is as long as the column `iteration_ms` says, else one of `total_iterations`, else one
second of work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats
from dlsched.core.cluster.occupancy import Placement
from dlsched.policies.node.salus.lane_table import LaneTable, TurnRules, memories, takes_turns
from dlsched.policies.node.salus.turns import Turns
from simulate.progress.lazy import LazyProgress
from simulate.progress.strategy import Complete, Setting

DEFAULT_ITERATION_S = 1.0
ROUNDED = 1e-9  # of an iteration: its end, but for rounding

LaneKey = tuple[Placement, int]


class LaneProgress(LazyProgress):
    """Units of which one in each lane works."""

    def __init__(self, setting: Setting, rules: TurnRules) -> None:
        super().__init__(setting)
        self._lanes = LaneTable(rules)
        self._rules = rules
        self._turns: dict[LaneKey, Turns] = {}
        self._lane: dict[int, LaneKey] = {}  # of each unit
        self._begun: dict[int, float] = {}  # work done when the present iteration began
        self._ready: dict[int, float] = {}  # when units that still restart will want their first
        self._now = 0.0
        self._ended: list[int] = []  # units whose iteration has just ended
        self._changed: set[Placement] = set()  # GPUs on which a turn may begin
        extra = setting.table.extra
        self._memory = memories(setting.table)
        self._iteration_ms: Floats | None = extra.get("iteration_ms")
        self._iterations: Floats | None = extra.get("total_iterations")

    @property
    def is_plain(self) -> bool:
        """No: most of the units on shared GPUs stand still."""
        return False

    # -- speeds ------------------------------------------------------------------------------------

    def begin(self, row: int, placement: Placement, grant: Grant | None, ready: float) -> float:
        """A unit starts, and stands still until it has its turn."""
        rate = super().begin(row, placement, grant, ready)
        if not takes_turns(self._memory, row):
            return rate
        self._ready[row] = ready
        return 0.0

    def change_speed(self, row: int, now: float) -> None:
        """A unit works in its turn, beside the units that have theirs in other lanes."""
        table, setting = self.setting.table, self.setting
        if not takes_turns(self._memory, row):
            super().change_speed(row, now)
            return
        rate = 0.0
        if self._works(row):
            others = setting.occupancy.beside.get(row, ())
            working = tuple(each for each in others if self._works(each))
            where = setting.occupancy.held[row]
            rate = setting.performance.rate(row, where, table, setting.occupancy, working)
        self.go_on_at(rate, row, now)

    def _works(self, row: int) -> bool:
        turns = self._turns.get(self._lane[row]) if row in self._lane else None
        return turns is not None and turns.running == str(row)

    def _alone(self, row: int) -> float:
        """Work per second of a unit that has its GPUs alone."""
        setting = self.setting
        where = setting.occupancy.held[row]
        return setting.performance.rate(row, where, setting.table, setting.occupancy)

    def _iteration(self, row: int) -> float:
        """Work of one iteration."""
        if self._iteration_ms is not None and self._iteration_ms[row] > 0:
            return float(self._iteration_ms[row]) / 1000.0 * self._alone(row)
        if self._iterations is not None and self._iterations[row] > 0:
            return self.setting.true_work.item(row) / float(self._iterations[row])
        return DEFAULT_ITERATION_S * self._alone(row)

    def _done(self, row: int, now: float) -> float:
        """Work that a unit has done by now."""
        table = self.setting.table
        worked = max(now - table.progress_from.item(row), 0.0) * table.rate.item(row)
        return float(table.executed.item(row) + worked)

    # -- units come and go -------------------------------------------------------------------------

    def meet(self, now: float) -> None:
        """Units have come to GPUs or have left them: give the turns that may begin."""
        self._now = now
        gone, fresh = self._lanes.follow(self.setting.occupancy, self._memory)
        for row in gone:
            self._leave(row)
        for row in fresh:
            where, number = self._lanes.where(row), self._lanes.lane_of(row)
            if where is not None and number:
                self._lane[row] = where, number
                turns = self._turns.setdefault(
                    (where, number),
                    Turns(self._rules.order, conserves_work=self._rules.conserves_work),
                )
                left = self.setting.true_work.item(row) - self.setting.table.executed.item(row)
                turns.enter(str(row), left / self._alone(row))
                self._changed.add(where)

    def _leave(self, row: int) -> None:
        key = self._lane.pop(row, None)
        self._begun.pop(row, None)
        self._ready.pop(row, None)
        if key is not None:
            self._changed.add(key[0])
            self._turns[key].leave(str(row))
            if not self._turns[key].sessions:
                del self._turns[key]

    # -- turns -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let each lane that is free begin its next iteration, now that all units have come."""
        now = self._now
        ready = [row for row, at in self._ready.items() if at <= now]
        if not self._changed and not ready:
            return
        for row in ready:
            del self._ready[row]
        for row in (*ready, *self._ended):
            if row in self._lane:
                self._changed.add(self._lane[row][0])
                self._turns[self._lane[row]].want(str(row))
        self._ended.clear()
        changed, self._changed = self._changed, set()
        for key, turns in self._turns.items():
            picked = turns.pick() if key[0] in changed else None
            if picked is not None:
                self._begun[int(picked)] = self._done(int(picked), now)
        for row, key in list(self._lane.items()):
            if key[0] in changed:
                self.change_speed(row, now)

    def _iteration_end(self, row: int) -> float:
        """When the iteration of a working unit ends, if that matters to another one."""
        if len(self._turns[self._lane[row]].sessions) == 1:
            return math.inf
        rate = self.setting.table.rate.item(row)
        if rate <= 0:
            return math.inf
        each, begun = self._iteration(row), self._begun[row]
        done = self._done(row, self._now)
        whole = max(math.ceil((done - begun) / each - ROUNDED), 1)  # alone, it went on by itself
        left = begun + whole * each - done
        return self._now + max(left, 0.0) / rate

    def _working(self) -> Iterable[int]:
        return [int(turns.running) for turns in self._turns.values() if turns.running is not None]

    # -- the agenda --------------------------------------------------------------------------------

    def next_end(self) -> float:
        """When the next unit, or the next iteration that matters, is seen to end."""
        self._settle()
        iterations = min(map(self._iteration_end, self._working()), default=math.inf)
        return min(self.next_of_agenda(), iterations, min(self._ready.values(), default=math.inf))

    def complete_until(self, now: float, complete: Complete) -> list[int]:
        """Complete every unit that is seen to end by now, and every iteration."""
        self._settle()
        ends = {row: self._iteration_end(row) for row in self._working()}
        done = super().complete_until(now, complete)
        self._now = now
        for row, end in ends.items():
            if row in self._lane and end <= now:
                took = (self._done(row, now) - self._begun[row]) / self._alone(row)
                self._turns[self._lane[row]].end(took)
                self._changed.add(self._lane[row][0])
                self._ended.append(row)
        return done
