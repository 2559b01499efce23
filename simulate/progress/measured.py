"""Trainings that were measured: their speed changes while they run, by what they learn.

The world knows when such a unit starts, stops and is slowed down. How much it has done by a moment,
and when it will be done, only its training can say.
"""

from __future__ import annotations

from typing import ClassVar

from dlsched.core.allocation import Grant
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.service_clock import Segment
from simulate.goodput.trainings import Trainings
from simulate.progress.lazy import LazyProgress
from simulate.progress.strategy import Setting


class MeasuredProgress(LazyProgress):
    """The agenda of trainings: an end is asked for anew whenever a training has changed its speed.

    Attributes:
        trainings: by row.
    """

    changes_by_itself: ClassVar[bool] = True

    def __init__(self, setting: Setting, trainings: Trainings, interference: float) -> None:
        """Let trainings run.

        `interference` is the part of its speed that a unit on several nodes loses while it shares
        one of them with another such.
        """
        super().__init__(setting)
        self.trainings = trainings
        self._interference = interference
        self._slowed: set[int] = set()  # rows that lose speed to others on the same nodes

    @property
    def is_plain(self) -> bool:
        """No: each training is asked."""
        return False

    def begin(self, row: int, placement: Placement, grant: Grant | None, ready: float) -> float:
        """A training starts; returns its work per second."""
        self.forget_end(row)
        self.trainings.begin(row, placement, self.setting.occupancy, grant, ready)
        return self.trainings.of[row].rate

    def end_of(self, row: int) -> float:
        """The earliest time at which a training could be done."""
        return self.trainings.of[row].look()

    def slowdown(self, row: int, placement: Placement, grant: Grant | None) -> float:
        """1: a training's new speed is known once it has begun."""
        return 1.0

    def stop(self, row: int, now: float) -> Segment:
        """A training leaves its GPUs; its work is entered already."""
        self._follow(row, now)
        return super().stop(row, now)._replace(work=0.0)

    def worked_until(self, row: int, now: float, begins: float) -> float:
        """Seconds at work since it was looked at last."""
        return max(now - begins, 0.0)

    def fall_back(self, row: int, saved: float) -> None:
        """A training has lost its work since a checkpoint."""
        self.trainings.of[row].fall_back(saved)

    def finish_of(self, row: int, seen: float, expected: float) -> float | None:
        """When a training was done; None where its end was not known yet, and is later."""
        self._follow(row, seen)
        finish = self.trainings.of[row].finish
        if finish is None:
            self.expect_end(row, seen)
        return finish

    def observe(self, row: int, now: float) -> None:
        """Bring a running training up to now; it may change its batch size, and so its speed."""
        self._follow(row, now)
        if self.trainings.of[row].reconsider():
            self._change(row, now)

    def meet(self, now: float) -> None:
        """A training on several nodes loses speed beside another such."""
        if not self._interference:
            return
        slowed = interfering(self.setting.occupancy)
        for row in sorted(slowed ^ self._slowed):
            if row in self.setting.occupancy.held:
                self._follow(row, now)
                self.trainings.of[row].slow_down(self._interference if row in slowed else 0.0)
                self._change(row, now)
        self._slowed = slowed

    def batch_and_goodput(self, row: int) -> tuple[float, float]:
        """A training's batch size in all, and useful samples per second."""
        each = self.trainings.of[row]
        return float(each.split.batch), each.rate * each.application.initial

    def _change(self, row: int, now: float) -> None:
        """A running training has another speed from now on."""
        self.setting.table.rate[row] = self.trainings.of[row].rate
        self.forget_end(row)
        self.expect_end(row, now)

    def _follow(self, row: int, now: float) -> None:
        """Enter a running training's work until now, and its speed from now on."""
        table, training = self.setting.table, self.trainings.of[row]
        training.advance(now)
        begins = table.progress_from.item(row)
        if now > begins:
            finish = training.finish
            worked = (now if finish is None else max(finish, begins)) - begins
            self.entered[row] += worked
            self.ready.setdefault(row, begins)
            table.progress_from[row] = now
        table.executed[row] = training.progress
        table.rate[row] = training.rate


def interfering(occupancy: Occupancy) -> set[int]:
    """Rows on several nodes that share the network of one of them with another such row."""
    spanning: dict[int, list[int]] = {}
    for row, placement in occupancy.held.items():
        if len(placement.nodes) > 1:
            for node in placement.nodes:
                spanning.setdefault(node, []).append(row)
    return {row for rows in spanning.values() if len(rows) > 1 for row in rows}
