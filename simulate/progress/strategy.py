"""What the world asks of the progress of its units, whichever way they get on.

There are three ways: `LazyProgress` (a constant speed between changes), `WholeSteps` (whole steps
in each round) and `MeasuredProgress` (trainings whose speed changes while they run).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.semantics import Semantics
from dlsched.core.service_clock import Segment, SegmentArrays
from dlsched.core.speed.truth import PerformanceModel
from dlsched.core.units import UnitTable

Complete = Callable[[int, float, float], None]  # row, now, and the finish that is recorded
COUNTED_ELSEWHERE = -math.inf  # a restart's end, where steps say what it has cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What progress depends on.

    Attributes:
        table: all units.
        occupancy: the GPUs that each unit holds.
        true_work: seconds of work (or steps) that each unit really needs.
        performance: how fast units really run.
        semantics: the profile.
    """

    table: UnitTable
    occupancy: Occupancy
    true_work: Floats
    performance: PerformanceModel
    semantics: Semantics

    def rate(self, row: int, placement: Placement) -> float:
        """Work per second of a row on a placement, beside the units that share its GPUs now."""
        partners = self.occupancy.partners(row)
        return self.performance.rate(row, placement, self.table, self.occupancy, partners)


class Progress(ABC):
    """How running units work, how fast, and when they are done.

    Attributes:
        in_rounds: is anything decided and seen only where a round of whole steps ends?
        changes_by_itself: may the speed of a running unit change without any event?
        before_limit: is told of each unit whose limit is about to change, and when.
        adapted: rows whose speed a policy should know anew, since the last round.
        entered: seconds that each unit has worked since its start and that its row has already.
        ready: when a start's overhead ended, of units whose work was entered since.
    """

    in_rounds: ClassVar[bool] = False
    changes_by_itself: ClassVar[bool] = False
    adapted: Sequence[int] = ()
    before_limit: Callable[[int, float], None] | None = None

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.entered = np.zeros(len(setting.table))
        self.ready: dict[int, float] = {}

    # -- a unit starts, changes, leaves -----------------------------------------------------------

    def admitted(self, row: int) -> None:  # noqa: B027 - optional
        """A unit has entered the queue."""

    def begin(self, row: int, placement: Placement, grant: Grant | None, ready: float) -> float:
        """A unit starts; returns its work per second.

        Args:
            row: the unit.
            placement: its GPUs.
            grant: what it gets besides.
            ready: until then it only restarts.
        """
        return self.setting.rate(row, placement)

    @abstractmethod
    def expect_end(self, row: int, now: float) -> None:
        """A unit's row says how fast it runs from now on: see when it will be done."""

    def slowdown(self, row: int, placement: Placement, grant: Grant | None) -> float:
        """The speed of a unit that leaves its GPUs, over that on the GPUs that it gets."""
        after = self.setting.rate(row, placement)
        return self.setting.table.rate.item(row) / after if after > 0 else 1.0

    def change_speed(self, row: int, now: float) -> None:
        """Other units share a running unit's GPUs from now on: it goes on faster or slower."""
        self.go_on_at(self.setting.rate(row, self.setting.occupancy.held[row]), row, now)

    def go_on_at(self, rate: float, row: int, now: float) -> None:
        """A unit does so much work per second from now on."""
        table = self.setting.table
        if rate == table.rate[row]:
            return
        self.enter_work(row, now)
        table.rate[row] = rate
        self.forget_end(row)
        if rate > 0:
            self.expect_end(row, now)

    def limit(self, limits: Mapping[int, float], now: float) -> None:
        """Let running units use their GPUs for such parts of the time from now on.

        Units beside them change their speeds, too.
        """
        setting = self.setting
        concerned: set[int] = set()
        for row, part in limits.items():
            if setting.table.gpu_limit.item(row) != part:
                if self.before_limit is not None:
                    self.before_limit(row, now)
                setting.table.gpu_limit[row] = part
                concerned |= {row, *setting.occupancy.partners(row)}
        for row in sorted(concerned):
            self.change_speed(row, now)

    def enter_work(self, row: int, now: float) -> None:
        """Enter in the row of a running unit what it has done by now."""
        table = self.setting.table
        begins = table.progress_from.item(row)
        if now > begins:
            table.executed[row] += (now - begins) * table.rate[row]
            self.entered[row] += now - begins
            self.ready.setdefault(row, begins)
            table.progress_from[row] = now

    def stop(self, row: int, now: float) -> Segment:
        """A unit leaves its GPUs; returns what it did on them."""
        table, entered = self.setting.table, self.entered.item(row)
        begins = table.progress_from.item(row)
        worked = self.worked_until(row, now, begins)
        ready = self.ready.pop(row, begins)
        self.entered[row] = 0.0
        self.forget_end(row)
        return Segment(worked, entered, worked * table.rate.item(row), ready)

    def worked_until(self, row: int, now: float, begins: float) -> float:
        """Seconds that a unit has worked since its work was entered last.

        Args:
            row: the unit.
            now: seconds.
            begins: when its work was entered last, or when it is ready to work.
        """
        return max(now - begins, 0.0)

    def fall_back(self, row: int, saved: float) -> None:  # noqa: B027 - optional
        """A unit has lost its work since a checkpoint, at which it had done so much."""

    def forget_end(self, row: int) -> None:  # noqa: B027 - optional
        """What was expected of a unit's end holds no more."""

    # -- many units at once -----------------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Do all running units work at the speed of their row since it was entered last?"""
        return True

    def begin_all(self, launched: dict[int, Placement]) -> Floats:
        """As `begin`, for many units, beside which no other has their GPUs; their speeds."""
        setting = self.setting
        return setting.performance.rates(launched, setting.table, setting.occupancy)

    def expect_ends(self, rows: Rows, now: float) -> None:
        """As `expect_end`, for many units that have just begun."""
        for row in rows.tolist():
            self.expect_end(row, now)

    def stop_all(self, rows: Rows, now: float | Floats) -> SegmentArrays:
        """As `stop`, for many units; `now` is that of all or of each."""
        table, entered = self.setting.table, self.entered[rows]
        begins, rate = table.progress_from[rows], table.rate[rows]
        worked = np.maximum(now - begins, 0.0)
        if self.setting.semantics.release != "exact":
            left = np.maximum(self.setting.true_work[rows] - table.executed[rows], 0.0)
            needed = np.divide(left, rate, out=np.full(len(rows), np.inf), where=rate > 0)
            worked = np.minimum(worked, needed)
        self.entered[rows] = 0.0
        for row in rows.tolist():
            self.forget_end(row)
        ready = begins
        if self.ready:
            pairs = zip(rows.tolist(), begins.tolist(), strict=True)
            ready = np.array([self.ready.pop(row, begin) for row, begin in pairs])
        return SegmentArrays(worked, entered, worked * rate, ready)

    # -- ends -------------------------------------------------------------------------------------

    @abstractmethod
    def next_end(self) -> float:
        """When the next unit (or round) is seen to end; inf when none will."""

    @abstractmethod
    def complete_until(self, now: float, complete: Complete) -> list[int]:
        """Complete every unit that is seen to end by now, in order; returns their rows."""

    # -- decisions --------------------------------------------------------------------------------

    def observe(self, row: int, now: float) -> None:  # noqa: B027 - optional
        """A decision is near: bring what is known of a running unit up to now."""

    def meet(self, now: float) -> None:  # noqa: B027 - optional
        """Units have come to nodes or left them: see whose neighbours slow it down."""

    def batch_and_goodput(self, row: int) -> tuple[float, float]:
        """A unit's batch size in all, and useful samples per second; NaN where it has none."""
        return math.nan, math.nan
